"""The ranking losses against hand-worked numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cail_core.algorithms.eq7.outer import RankedTrajectories, logistic, ranking_loss, rk
from cail_core.demos.demonstrations import Demonstrations

EPSILON = 1e-5


def one(difference: float, sign: float) -> tuple[float, float]:
    """RK and its derivative in the difference."""
    d = torch.tensor(difference, dtype=torch.float64, requires_grad=True)
    value = rk(d, torch.tensor(sign, dtype=torch.float64), EPSILON)
    (slope,) = torch.autograd.grad(value, d)
    return value.item(), slope.item()


@pytest.mark.parametrize(("difference", "sign", "value", "slope"), [
    (2.0, 1.0, 0.0, 0.0),                     # in order: no loss
    (-2.0, 1.0, 2.0, -1.0),                   # out of order: the gap
    (2.0, -1.0, 2.0, 1.0),
    (-2.0, -1.0, 0.0, 0.0),
    (0.0, 1.0, EPSILON / 4, -0.5),            # parabola: ε²/(4ε), slope −2ε/(4ε)
    (0.5e-5, 1.0, EPSILON / 16, -0.25),       # (−ε/2)²/(4ε) = ε/16
    (-0.5e-5, 1.0, 9 * EPSILON / 16, -0.75),  # (−3ε/2)²/(4ε) = 9ε/16
    (0.5e-5, -1.0, 9 * EPSILON / 16, 0.75),
])
def test_rk_has_hand_worked_value_and_slope_on_all_branches(difference: float, sign: float, value: float, slope: float) -> None:
    found, found_slope = one(difference, sign)
    assert found == pytest.approx(value, abs=1e-15)
    assert found_slope == pytest.approx(slope, abs=1e-9)


@pytest.mark.parametrize("edge", [EPSILON, -EPSILON])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rk_is_continuous_and_smooth_where_its_branches_meet(edge: float, sign: float) -> None:
    step = 1e-11
    (low, low_slope), (high, high_slope) = one(edge - step, sign), one(edge + step, sign)
    assert low == pytest.approx(high, abs=1e-10)
    assert low_slope == pytest.approx(high_slope, abs=1e-5)


def test_order_matters_inside_the_smoothing_band() -> None:
    assert one(-0.5e-5, 1.0)[0] == pytest.approx(9 * one(0.5e-5, 1.0)[0])


def test_ranking_loss_sums_over_all_ordered_pairs() -> None:
    # η' = 1, 3, 2 for ranks 1, 2, 3: pairs (1,2) off by 2, (1,3) off by 1, (2,3) right.
    returns = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)
    assert float(ranking_loss(returns, torch.tensor([1, 2, 3]))) == pytest.approx(3.0)
    # The order in which the trajectories are listed does not matter.
    assert float(ranking_loss(returns[[2, 0, 1]], torch.tensor([3, 1, 2]))) == pytest.approx(3.0)


def test_ties_contribute_nothing_to_loss_or_gradient() -> None:
    returns = torch.tensor([5.0, -5.0], dtype=torch.float64, requires_grad=True)
    for kind in ("rk", "logistic"):
        loss = ranking_loss(returns, torch.tensor([2, 2]), kind)
        (slope,) = torch.autograd.grad(loss, returns)
        assert loss.item() == 0.0
        assert slope.tolist() == [0.0, 0.0]


def test_logistic_is_bradley_terry() -> None:
    returns = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    expected = math.log(2) + 2 * math.log(1 + math.e)  # pair (1,2) even, (1,3) and (2,3) off by 1
    assert float(ranking_loss(returns, torch.tensor([1, 2, 3]), "logistic")) == pytest.approx(expected)
    assert float(logistic(torch.tensor(-3.0), torch.tensor(-1.0))) == pytest.approx(math.log(1 + math.exp(-3)))


def two_episodes() -> Demonstrations:
    states = np.arange(5, dtype=np.float32)[:, None]
    return Demonstrations(states, states, states, np.zeros(5, bool), np.array([0, 2, 5]), np.array([2, 1]))


def test_learned_returns_are_discounted_sums_or_means_per_step() -> None:
    demos = two_episodes()
    reward = torch.tensor([1.0, 2.0, 4.0, 3.0, 5.0], dtype=torch.float64)  # ranked best first: episode 1 (3 steps), 0 (2 steps)
    total = RankedTrajectories.of(demos, demos.ranked, 0.5, "sum", torch.float64)
    assert total.batch.state[:, 0].tolist() == [2, 3, 4, 0, 1]
    assert total.returns(reward).tolist() == [1 + 2 / 2 + 4 / 4, 3 + 5 / 2]
    mean = RankedTrajectories.of(demos, demos.ranked, 0.5, "mean", torch.float64)
    assert mean.returns(reward).tolist() == pytest.approx([3 / 1.75, 5.5 / 1.5])


def test_mean_returns_give_a_long_trajectory_no_advantage() -> None:
    demos = two_episodes()
    ranked = RankedTrajectories.of(demos, demos.ranked, 0.9, "mean", torch.float64)
    assert ranked.returns(torch.full((5,), -2.0, dtype=torch.float64)).tolist() == pytest.approx([-2.0, -2.0])


def test_a_ranked_trajectory_that_ended_goes_on_waiting_until_the_horizon() -> None:
    """Episode 1 (ranked first) of 3 steps terminated, episode 0 of 2 steps did not; horizon 5, γ = 1/2."""
    demos = two_episodes()
    demos.terminated[:] = [False, False, False, False, True]
    total = RankedTrajectories.of(demos, demos.ranked, 0.5, "sum", torch.float64, horizon=5)
    assert total.batch.state[:, 0].tolist() == [2, 3, 4, 0, 1, demos.next_states[4, 0]]
    assert total.batch.state[:, -1].tolist() == [0, 0, 0, 0, 0, 1]  # the flag
    reward = torch.tensor([1, 2, 4, 3, 5, 8], dtype=torch.float64)  # 8: of every step of waiting
    assert total.returns(reward).tolist() == [3 + 8 / 8 + 8 / 16, 3 + 5 / 2]
    mean = RankedTrajectories.of(demos, demos.ranked, 0.5, "mean", torch.float64, horizon=5)
    assert mean.returns(reward).tolist() == pytest.approx([4.5 / (1 + 1 / 2 + 1 / 4 + 1 / 8 + 1 / 16), 5.5 / 1.5])
