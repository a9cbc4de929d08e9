"""Eq. 7 against finite differences, and the two theorems on a convex problem."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import grad

from cail_core.algorithms.batch import Batch
from cail_core.algorithms.eq7.cail import Cail
from cail_core.algorithms.eq7.gradient import Parameters, Terms, confidence_gradient, mean_one, requires_grad_copy
from cail_core.algorithms.eq7.optim import Adam, Sgd
from cail_core.algorithms.eq7.outer import RankedTrajectories, ranking_loss
from cail_core.algorithms.inner.airl import Airl
from cail_core.algorithms.inner.base import PairLearner
from cail_core.algorithms.inner.bc import BehaviourCloning
from cail_core.algorithms.inner.gail import Gail
from cail_core.demos.demonstrations import Demonstrations
from cail_core.rl.networks import TanhGaussianActor

STATES, ACTIONS, GAMMA = 3, 2, 0.9


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


LEARNERS: dict[str, Callable[[], PairLearner]] = {
    "airl g(s, a)": lambda: Airl(STATES, ACTIONS, GAMMA, generator(), hidden=[10, 10], reward_sees_action=True),
    "airl g(s)": lambda: Airl(STATES, ACTIONS, GAMMA, generator(), hidden=[10, 10], reward_sees_action=False),
    "gail": lambda: Gail(STATES, ACTIONS, generator(), hidden=[10, 10]),
    "bc": lambda: BehaviourCloning(TanhGaussianActor(STATES, ACTIONS, generator(), hidden=(8, 8)), 0.5),
}


def random_batch(n: int, rng: np.random.Generator) -> Batch:
    columns = (rng.normal(size=(n, STATES)), rng.uniform(-1, 1, (n, ACTIONS)), rng.normal(size=(n, STATES)),
               rng.integers(0, 2, n), rng.normal(size=n))
    return Batch(*(torch.as_tensor(column, dtype=torch.float64) for column in columns))


@pytest.mark.parametrize("loss", ["rk", "logistic"])
@pytest.mark.parametrize("name", LEARNERS)
def test_confidence_gradient_equals_central_differences(name: str, loss: str) -> None:
    rng = np.random.default_rng(1)
    learner = LEARNERS[name]().double()
    demo, other = random_batch(7, rng), random_batch(6, rng)
    ranked = Demonstrations(*(rng.normal(size=(12, d)).clip(-1, 1).astype(np.float32) for d in (STATES, ACTIONS, STATES)),
                            np.zeros(12, bool), np.array([0, 5, 9, 12]), np.array([3, 1, 2]))
    trajectories = RankedTrajectories.of(ranked, ranked.ranked, GAMMA, "sum", torch.float64)
    theta, mu = learner.theta(), 0.05
    start = trajectories.returns(learner.reward(theta, trajectories.batch)).detach()
    rank = start.argsort().argsort() + 1  # the reverse of what θ says: every pair is out of order and RK pulls on all of them

    def pseudo_update(b: Tensor) -> Parameters:
        return {key: theta[key] - mu * slope for key, slope in grad(learner.loss)(theta, b, demo, other).items()}

    def outer(t: Parameters) -> Tensor:
        return ranking_loss(trajectories.returns(learner.reward(t, trajectories.batch)), rank, loss)

    beta = torch.as_tensor(rng.uniform(0.5, 1.5, 7))
    terms = learner.terms(requires_grad_copy(theta), demo, other)
    slope_of_reward = {key: s for key, s in grad(learner.loss)(theta, beta, demo, other).items() if key in learner.ranking()}
    slope, value = confidence_gradient(theta, beta, slope_of_reward, terms, lambda t: learner.reward(t, demo), outer, mu)
    assert float(value) == pytest.approx(float(outer(pseudo_update(beta))))
    step = 1e-5
    for i in range(7):
        up, down = beta.clone(), beta.clone()
        up[i] += step
        down[i] -= step
        rise = outer(pseudo_update(up)) - outer(pseudo_update(down))
        assert float(slope[i]) == pytest.approx(float(rise) / (2 * step), rel=1e-4, abs=1e-9)
    assert float(slope.abs().max()) > 0  # no dead output: every learner passes a gradient to the confidences


class Beta:
    """β by plain gradient steps, no lower than `least`; the squared norm of each gradient is kept."""

    def __init__(self, value: Tensor, alpha: float, least: float = 0.0) -> None:
        self.value, self.alpha, self.least = value, alpha, least
        self.squares: list[float] = []

    def of(self, rows: Tensor) -> Tensor:
        return self.value[rows]

    def update(self, rows: Tensor, grad: Tensor) -> None:
        self.squares.append(float(grad.pow(2).sum()))
        self.value = self.value.index_copy(0, rows, (self.value[rows] - self.alpha * grad).clamp_min(self.least))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_step_is_eq_7_line_by_line(name: str) -> None:
    """Against the three lines written out with torch.func and a second backward pass; θ itself is left alone."""
    rng = np.random.default_rng(2)
    learner = LEARNERS[name]().double()
    demo, other = random_batch(7, rng), random_batch(6, rng)
    theta, mu, alpha = learner.theta(), 0.05, 0.3
    kept = {key: value.clone() for key, value in theta.items()}
    start = torch.as_tensor(rng.uniform(0.5, 1.5, 7))
    beta = Beta(start.clone(), alpha)

    def outer(t: Parameters) -> Tensor:
        return learner.reward(t, other).square().sum()

    def through(b: Tensor) -> Tensor:
        return outer({key: theta[key] - mu * slope for key, slope in grad(learner.loss)(theta, b, demo, other).items()})

    after = start - alpha * grad(through)(start)
    expected = {key: theta[key] - mu * slope for key, slope in grad(learner.loss)(theta, after, demo, other).items()}

    cail = Cail(learner, beta, outer, Sgd(mu), mu=mu)
    cail.theta = theta
    result = cail.step(torch.arange(7), demo, other, gate=None)
    assert torch.allclose(beta.value, after, rtol=1e-9, atol=1e-12)
    assert float((after - start).abs().max()) > 1e-6
    assert all(torch.allclose(cail.theta[key], expected[key], rtol=1e-9, atol=1e-12) for key in theta)
    assert result.inner == pytest.approx(float(learner.loss(theta, after, demo, other)))
    assert all(torch.equal(theta[key], kept[key]) for key in theta)


def test_weights_have_mean_one_whatever_the_scale() -> None:
    assert mean_one(torch.tensor([1.0, 3.0])).tolist() == [0.5, 1.5]
    assert mean_one(torch.tensor([10.0, 30.0])).tolist() == [0.5, 1.5]


class Pulled(PairLearner):
    """Two kinds of demonstrators pull θ to +1 and −1: L_in = Σ βᵢ‖θ − aᵢ‖²/2n. Convex in θ."""

    def __init__(self) -> None:
        super().__init__()
        self.x = torch.nn.Parameter(torch.tensor([-0.5], dtype=torch.float64))
        self.pulls = torch.tensor([[1.0], [1.1], [-1.0], [-0.9]], dtype=torch.float64)

    def reward(self, theta: Parameters, batch: Batch) -> Tensor:
        return -(theta["x"] - self.pulls).pow(2).sum(1) / 2

    def terms(self, theta: Parameters, demo: Batch, other: Batch) -> Terms:
        reward = self.reward(theta, demo)
        return Terms(-reward, torch.zeros((), dtype=torch.float64), reward)


class Toy:
    """Eq. 7 on `Pulled` with L_out = ‖θ − 1‖²/2."""

    def __init__(self, alpha: float, mu: float, gate: float | None) -> None:
        self.confidence = Beta(torch.ones(4, dtype=torch.float64), alpha, least=1e-3)
        self.cail = Cail(Pulled(), self.confidence, self.outer, Sgd(mu), mu=mu)
        self.gate, self._batch = gate, random_batch(4, np.random.default_rng(0))

    @property
    def theta(self) -> Parameters:
        return self.cail.theta

    @theta.setter
    def theta(self, value: Parameters) -> None:
        self.cail.theta = value

    @property
    def beta(self) -> Tensor:
        return self.confidence.value

    @property
    def slopes(self) -> list[float]:
        return self.confidence.squares

    def outer(self, theta: Parameters) -> Tensor:
        return (theta["x"] - 1.0).pow(2).sum() / 2

    def step(self) -> bool:
        return self.cail.step(torch.arange(4), self._batch, self._batch, gate=self.gate).accepted


def test_confidence_moves_towards_those_who_help() -> None:
    toy = Toy(alpha=1.0, mu=0.1, gate=None)
    toy.step()
    assert toy.beta[:2].min() > 1 > toy.beta[2:].max()


def test_theorem_1_outer_loss_never_rises_with_the_gate() -> None:
    toy = Toy(alpha=0.5, mu=0.3, gate=0.2)  # L = 1, so μ ≤ 2C/L holds with C = 0.2
    values, accepted = [float(toy.outer(toy.theta))], []
    for _ in range(200):
        accepted.append(toy.step())
        values.append(float(toy.outer(toy.theta)))
    assert all(after <= before + 1e-15 for before, after in pairwise(values))
    assert values[-1] < values[0]


def test_without_the_gate_the_outer_loss_can_rise() -> None:
    toy = Toy(alpha=0.0, mu=0.3, gate=None)
    toy.theta = {"x": torch.tensor([0.9], dtype=torch.float64)}  # close to the goal; the demonstrators' mean lies at 0.05
    before = float(toy.outer(toy.theta))
    toy.step()
    assert float(toy.outer(toy.theta)) > before
    refused = Toy(alpha=0.0, mu=0.3, gate=0.0)
    refused.theta = {"x": torch.tensor([0.9], dtype=torch.float64)}
    assert not refused.step()
    assert refused.theta["x"].tolist() == [0.9]


def test_theorem_2_smallest_gradient_falls_at_least_like_one_over_root_t() -> None:
    lengths, smallest = [25, 100, 400], []
    for t in lengths:
        toy = Toy(alpha=2.0 / t**0.5, mu=1.0 / t, gate=None)
        for _ in range(t):
            toy.step()
        smallest.append(min(toy.slopes))
    bound = smallest[0] * lengths[0] ** 0.5
    assert all(value <= bound / t**0.5 * (1 + 1e-9) for value, t in zip(smallest, lengths, strict=True))


def test_adam_equals_torch_and_a_refused_step_leaves_no_trace() -> None:
    theta = {"x": torch.tensor([1.0, -2.0])}
    reference = torch.nn.Parameter(theta["x"].clone())
    torch_adam, ours = torch.optim.Adam([reference], lr=0.1), Adam(0.1)
    for k in range(5):
        slope = {"x": torch.tensor([0.3 * (k + 1), -1.0])}
        reference.grad = slope["x"].clone()
        torch_adam.step()
        ours.propose(theta, {"x": torch.tensor([100.0, 100.0])})  # proposed, never taken
        theta = ours.propose(theta, slope)
        ours.take()
    assert theta["x"].tolist() == pytest.approx(reference.tolist(), rel=1e-5)
