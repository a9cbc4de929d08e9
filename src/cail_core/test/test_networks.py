from __future__ import annotations

import math

import numpy as np
import torch
from torch import distributions, nn

from cail_core.rl.networks import ACTION_BOUND, Critic, TanhGaussianActor, mlp, squash_log_det


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def actor(**options) -> TanhGaussianActor:
    made = TanhGaussianActor(3, 2, generator(), **options)
    with torch.no_grad():  # away from the start at rest, so that means differ from 0
        made.net[-1].weight.mul_(60)
    return made


def test_log_prob_is_that_of_the_transformed_distribution():
    for state_dependent in (False, True):
        policy = actor(state_dependent_std=state_dependent).double()
        observation = torch.randn(50, 3, generator=generator(1), dtype=torch.float64)
        mean, log_std = policy.gaussian(observation)
        reference = distributions.Independent(
            distributions.TransformedDistribution(distributions.Normal(mean, log_std.exp()), distributions.TanhTransform()), 1)
        action = (torch.rand(50, 2, generator=generator(2), dtype=torch.float64) * 2 - 1) * 0.999
        torch.testing.assert_close(policy.log_prob(observation, action), reference.log_prob(action))


def test_density_integrates_to_one():
    policy = TanhGaussianActor(1, 1, generator(), initial_log_std=-0.5).double()
    u = torch.linspace(-4.9, 4.9, 20001, dtype=torch.float64)
    action = torch.tanh(u)
    density = policy.log_prob(torch.zeros(len(u), 1, dtype=torch.float64), action[:, None]).exp()
    np.testing.assert_allclose(torch.trapezoid(density, action).item(), 1.0, atol=1e-5)


def test_squash_log_det_stays_exact_where_tanh_saturates():
    # log(1 - tanh(u)^2) -> log 4 - 2|u|: at u = 20 the direct formula gives log 0.
    torch.testing.assert_close(squash_log_det(torch.tensor([20.0, -20.0])), torch.full((2,), math.log(4) - 40.0))
    torch.testing.assert_close(squash_log_det(torch.tensor([0.0])), torch.tensor([0.0]), atol=1e-6, rtol=0)


def test_sampled_log_prob_equals_the_one_computed_later_even_at_the_limit():
    policy = actor(initial_log_std=1.5)  # wide: most samples saturate
    observation = torch.randn(500, 3, generator=generator(3))
    with torch.no_grad():
        action, log_prob = policy.sample(observation, generator(4))
        assert action.abs().max() <= ACTION_BOUND
        torch.testing.assert_close(policy.log_prob(observation, action), log_prob, atol=0, rtol=0)


def test_log_prob_of_an_action_on_the_limit_is_finite_with_finite_gradient():
    policy = actor()
    log_prob = policy.log_prob(torch.zeros(2, 3), torch.tensor([[1.0, -1.0], [1.0, 1.0]]))
    log_prob.sum().backward()
    assert torch.isfinite(log_prob).all()
    assert all(torch.isfinite(p.grad).all() for p in policy.parameters())


def test_reparameterised_sample_has_the_right_log_prob_and_a_gradient():
    policy = actor(state_dependent_std=True)
    observation = torch.randn(100, 3, generator=generator(5))
    action, log_prob = policy.reparameterised(observation, generator(6))
    inside = action.abs().amax(dim=1) < 0.999
    torch.testing.assert_close(policy.log_prob(observation, action)[inside], log_prob[inside], atol=2e-3, rtol=2e-3)
    action.sum().backward()
    assert policy.net[0].weight.grad.abs().sum() > 0


def test_actor_starts_at_rest_and_mode_is_tanh_of_the_mean():
    policy = TanhGaussianActor(3, 2, generator())
    observation = torch.randn(20, 3, generator=generator(7))
    assert policy.mode(observation).abs().max() < 0.05
    torch.testing.assert_close(policy.mode(observation), torch.tanh(policy.gaussian(observation)[0]))


def test_networks_draw_from_the_given_generator_only():
    before = torch.get_rng_state()
    first, second = mlp([3, 8, 1], nn.ReLU, generator(9)), mlp([3, 8, 1], nn.ReLU, generator(9))
    Critic(3, generator())
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_standardised_actor_equals_one_fed_with_scaled_observations():
    plain, scaled = actor(), actor()
    mean, scale = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([2.0, 0.1, 3.0])
    scaled.standardise.set(mean, scale)
    observation = torch.randn(10, 3, generator=generator(8))
    torch.testing.assert_close(scaled.mode(observation), plain.mode((observation - mean) / scale))
