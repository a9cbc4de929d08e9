"""AIRL's and GAIL's numbers by hand, and what each recovers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cail_bench.methods import demonstrate
from cail_core.algorithms.batch import Batch
from cail_core.algorithms.inner.airl import Airl
from cail_core.algorithms.inner.bc import BehaviourCloning
from cail_core.algorithms.inner.gail import Gail
from cail_core.algorithms.method import method_config
from cail_core.algorithms.trainers.base import make_learner
from cail_core.demos.demonstrations import Demonstrations
from cail_core.evaluation import evaluate
from cail_core.rl.networks import TanhGaussianActor
from cail_core.tasks.pointmass import PointMass


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def batch(terminated: float) -> Batch:
    return Batch(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5]]), torch.tensor([[3.0, -1.0]]), torch.tensor([terminated]),
                 torch.tensor([-0.7]))


@pytest.mark.parametrize("terminated", [0.0, 1.0])
def test_airl_logit_and_reward_by_hand(terminated: float) -> None:
    airl = Airl(2, 1, 0.9, generator(), hidden=[1], reward_sees_action=True)
    with torch.no_grad():  # g = 2·relu(s1 + s2 + a) − 10 = 2·3.5 − 10 = −3;  h = relu(s1) + 0.5: h(s) = 1.5, h(s') = 3.5
        airl.g[0].weight.copy_(torch.tensor([[1.0, 1.0, 1.0]]))
        airl.g[2].weight.copy_(torch.tensor([[2.0]]))
        airl.g[2].bias.fill_(-10.0)
        airl.h[0].weight.copy_(torch.tensor([[1.0, 0.0]]))
        airl.h[2].weight.copy_(torch.tensor([[1.0]]))
        airl.h[2].bias.fill_(0.5)
    theta = airl.theta()
    logit = -3.0 + 0.9 * (1 - terminated) * 3.5 - 1.5 + 0.7
    assert float(airl.logit(theta, batch(terminated))) == pytest.approx(logit, abs=1e-6)
    assert float(airl.policy_reward(theta, batch(terminated))) == pytest.approx(logit, abs=1e-6)
    # The reward is g, negative here: a ReLU on the output would have made it 0 and cut its gradient.
    assert float(airl.reward(theta, batch(terminated))) == pytest.approx(-3.0)
    d = 1 / (1 + math.exp(-logit))
    loss = -2 * math.log(d) / 2 - math.log(1 - d)  # β = 2, normalised to 1
    assert float(airl.loss(theta, torch.tensor([2.0]), batch(terminated), batch(terminated))) == pytest.approx(loss, abs=1e-5)


def test_gail_reward_is_minus_log_one_minus_d() -> None:
    gail = Gail(2, 1, generator(), hidden=[4])
    theta = gail.theta()
    d = torch.sigmoid(gail.logit(theta, batch(0.0)))
    assert float(gail.policy_reward(theta, batch(0.0))) == pytest.approx(float(-torch.log(1 - d)), abs=1e-6)


def test_cloning_likelihood_is_a_gaussian_around_the_mode() -> None:
    actor = TanhGaussianActor(2, 1, generator())
    cloning = BehaviourCloning(actor, 0.5)
    error = 0.5 - float(actor.mode(batch(0.0).state))
    expected = -0.5 * (error / 0.5) ** 2 - math.log(0.5) - 0.5 * math.log(2 * math.pi)
    assert float(cloning.reward(cloning.theta(), batch(0.0))) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("make", [
    lambda: Airl(2, 1, 0.9, generator(), hidden=[8], reward_sees_action=True), lambda: Gail(2, 1, generator(), hidden=[8]),
    lambda: BehaviourCloning(TanhGaussianActor(2, 1, generator()), 0.3)], ids=["airl", "gail", "bc"])
def test_a_pair_of_confidence_zero_has_no_say(make) -> None:  # type: ignore[no-untyped-def]
    """The loss is weighted pair by pair, not reduced before the weights come in."""
    learner = make()
    theta, good = learner.theta(), batch(0.0)
    both = Batch(*(torch.cat([a, b]) for a, b in zip(good, batch(1.0)._replace(action=torch.tensor([[-0.9]])), strict=True)))
    alone = learner.loss(theta, torch.ones(1), good, good)
    assert float(learner.loss(theta, torch.tensor([1.0, 0.0]), both, good)) == pytest.approx(float(alone), abs=1e-6)
    assert float(learner.loss(theta, torch.tensor([1.0, 1.0]), both, good)) != pytest.approx(float(alone), abs=1e-4)


def only(demos: Demonstrations, name: str) -> Demonstrations:
    chosen = [e for e in range(demos.episodes) if demos.demonstrator[e] == name]
    rows = np.concatenate([np.arange(demos.starts[e], demos.starts[e + 1]) for e in chosen])
    lengths = np.diff(demos.starts)[chosen]
    return Demonstrations(demos.states[rows], demos.actions[rows], demos.next_states[rows], demos.terminated[rows],
                          np.concatenate([[0], np.cumsum(lengths)]), demos.rank[chosen], [name] * len(chosen))


@pytest.mark.parametrize("method", ["airl", "gail"])
def test_recovers_a_point_mass_expert(method: str) -> None:
    torch.set_num_threads(1)
    task = PointMass()
    demos, returns = demonstrate(task, "paper", 0)
    expert = only(demos, "expert")
    learner = make_learner(method, task, expert, method_config(method), seed=0)
    learner.begin_segment(0)
    at_rest = evaluate(task, lambda o: np.zeros((len(o), 2), np.float32), 40).mean
    while learner.done < 60_000:
        learner.iterate()
    found = evaluate(task, lambda o: learner.actor.mode(torch.as_tensor(o)).detach().numpy(), 40).mean
    best = returns[[name == "expert" for name in demos.demonstrator]].mean()
    assert found > 0.75 * best + 0.25 * at_rest, f"{method}: {found:.1f}, expert {best:.1f}, doing nothing {at_rest:.1f}"
