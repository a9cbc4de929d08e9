"""Generative adversarial imitation learning (Ho & Ermon 2016) as an inner learner."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cail_core.algorithms.batch import Batch, joined
from cail_core.algorithms.eq7.gradient import Parameters, Terms
from cail_core.algorithms.inner.base import PairLearner
from cail_core.rl.networks import Standardise, mlp, relu_mlp


class Gail(PairLearner):
    """D(s, a) = σ(logit(s, a)), a 2×100 ReLU network with a linear output."""

    def __init__(self, observation_dim: int, action_dim: int, generator: torch.Generator, *, hidden: list[int]) -> None:
        super().__init__()
        self.state_scale = Standardise(observation_dim)
        self._depth = len(hidden) + 1
        self.net = mlp([observation_dim + action_dim, *hidden, 1], nn.ReLU, generator)

    def logit(self, theta: Parameters, batch: Batch) -> Tensor:
        return relu_mlp(theta, "net", self._depth, torch.cat([self.state_scale(batch.state), batch.action], dim=-1)).squeeze(-1)

    def terms(self, theta: Parameters, demo: Batch, other: Batch) -> Terms:
        """−log D of each demonstration pair, and E_π[−log(1 − D)]."""
        of_demo, of_other = torch.split(self.logit(theta, joined(demo, other)), [len(demo.state), len(other.state)])
        return Terms(F.softplus(-of_demo), F.softplus(of_other).mean(), of_demo)

    def reward(self, theta: Parameters, batch: Batch) -> Tensor:
        """R'_θ = log D − log(1 − D): the log-ratio of the two occupancies, unbounded on both sides."""
        return self.logit(theta, batch)

    def policy_reward(self, theta: Parameters, batch: Batch) -> Tensor:
        """What the policy maximises: −log(1 − D)."""
        return F.softplus(self.logit(theta, batch))
