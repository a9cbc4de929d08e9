"""Outer losses: how badly the learned returns of the ranked demonstrations disagree with their ranking (Eq. 13, 14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cail_core.algorithms.batch import Batch, demo_batch
from cail_core.algorithms.eq7.gradient import Parameters
from cail_core.algorithms.settings import OuterConfig
from cail_core.algorithms.trainers.absorbing import with_waiting
from cail_core.demos.demonstrations import Demonstrations, Ints

EPSILON = 1e-5


def rk(difference: Tensor, sign: Tensor, epsilon: float = EPSILON) -> Tensor:
    """The smooth ranking loss of one pair, Eq. 14, with d = η'_i − η'_j and I = ±1 for η_i > η_j or η_i < η_j.

        RK = max(0, −I·d)                 where |d| > ε
             (I·d − ε)² / (4ε)            where |d| ≤ ε

    The parabola meets both straight parts in value and slope, which makes RK Lipschitz-smooth. It holds I·d and not
    |d|: the order counts inside the smoothing band too.
    """
    agreement = sign * difference
    return torch.where(difference.abs() > epsilon, F.relu(-agreement), (agreement - epsilon) ** 2 / (4 * epsilon))


def logistic(difference: Tensor, sign: Tensor) -> Tensor:
    """The Bradley–Terry loss of one pair, −log σ(I·d): unlike RK it still pulls on pairs that are in order by a hair."""
    return F.softplus(-sign * difference)


def ranking_loss(returns: Tensor, rank: Tensor, loss: str = "rk") -> Tensor:
    """L_out = Σ_i Σ_{j>i} RK[η'_i, η'_j; I[η_i > η_j]], Eq. 13, or the same sum of logistic losses.

    `rank` is 1 for the best. Two trajectories of equal rank say nothing about their order and contribute nothing.
    """
    i, j = torch.triu_indices(len(returns), len(returns), offset=1)
    sign = torch.sign(rank[j] - rank[i]).to(returns.dtype)
    pair = {"rk": rk, "logistic": logistic}[loss]
    return (sign.abs() * pair(returns[i] - returns[j], sign)).sum()


@dataclass(frozen=True)
class RankedTrajectories:
    """The evaluation data D_E: ranked demonstrations one after another, ready for Eq. 13."""

    batch: Batch
    segment: Tensor
    weight: Tensor
    rank: Tensor

    @classmethod
    def of(cls, demos: Demonstrations, episodes: Ints, gamma: float, returns: str, dtype: torch.dtype = torch.float32,
           horizon: int = 0) -> RankedTrajectories:
        """`returns`: "sum" is Eq. 13's Σ_t γ^t R'; "mean" divides by Σ_t γ^t, so that a long trajectory has no advantage.

        With a `horizon` the states have the absorbing flag, and a trajectory that ended before it goes on waiting until then.
        """
        rows, lengths = demos.rows_of(episodes), demos.lengths[episodes]
        step = np.concatenate([np.arange(n) for n in lengths])
        segment = np.repeat(np.arange(len(episodes)), lengths)
        weight = gamma**step
        batch = demo_batch(demos, dtype).rows(torch.as_tensor(rows))
        if horizon:
            ends = np.flatnonzero(demos.terminated[rows])
            batch = with_waiting(batch)
            weight = np.append(weight, [np.sum(gamma ** np.arange(step[end] + 1, horizon)) for end in ends])
            segment = np.append(segment, segment[ends])
        if returns == "mean":
            weight = weight / np.bincount(segment, weights=weight)[segment]
        return cls(batch, torch.as_tensor(segment), torch.as_tensor(weight, dtype=dtype), torch.as_tensor(demos.rank[episodes]))

    def returns(self, reward: Tensor) -> Tensor:
        """η'_ξ = Σ_t γ^t R'(s_t, a_t) of each trajectory (or its mean per step), from the rewards of all their pairs."""
        total = torch.zeros(len(self.rank), dtype=reward.dtype)
        return total.index_add(0, self.segment, self.weight * reward)


class Rewarding(Protocol):
    """What has a learned reward R'_θ(s, a)."""

    def reward(self, theta: Parameters, batch: Batch) -> Tensor: ...


@dataclass(frozen=True)
class OuterLoss:
    """L_out(θ), Eq. 13: how badly the learned returns of the ranked trajectories disagree with their ranking."""

    inner: Rewarding
    ranked: RankedTrajectories
    config: OuterConfig

    def __call__(self, theta: Parameters) -> Tensor:
        return ranking_loss(self.returns(theta) / self.config.temperature, self.ranked.rank, self.config.loss)

    def returns(self, theta: Parameters) -> Tensor:
        """η' of the ranked trajectories, best ranked first."""
        return self.ranked.returns(self.inner.reward(theta, self.ranked.batch))
