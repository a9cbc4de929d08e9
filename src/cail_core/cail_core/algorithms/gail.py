"""Generative adversarial imitation learning (Ho & Ermon 2016) as an inner learner."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from cail_core.algorithms.batch import Batch, joined
from cail_core.algorithms.bilevel import Parameters, mean_one
from cail_core.algorithms.inner import ModuleLearner
from cail_core.rl.networks import Standardise, mlp


class Gail(ModuleLearner):
    """D(s, a) = σ(logit(s, a)), a 2×100 ReLU network with a linear output."""

    def __init__(self, observation_dim: int, action_dim: int, generator: torch.Generator, *, hidden: list[int]) -> None:
        super().__init__()
        self.state_scale = Standardise(observation_dim)
        self.net = mlp([observation_dim + action_dim, *hidden, 1], nn.ReLU, generator)

    def forward(self, batch: Batch) -> Tensor:
        out: Tensor = self.net(torch.cat([self.state_scale(batch.state), batch.action], dim=-1)).squeeze(-1)
        return out

    def logit(self, theta: Parameters, batch: Batch) -> Tensor:
        out: Tensor = functional_call(self, theta, (batch,))
        return out

    def loss(self, theta: Parameters, beta: Tensor, demo: Batch, other: Batch) -> Tensor:
        """E_{β p_d}[−log D] + E_π[−log(1 − D)]."""
        of_demo, of_other = torch.split(self.logit(theta, joined(demo, other)), [len(demo.state), len(other.state)])
        return (mean_one(beta) * F.softplus(-of_demo)).mean() + F.softplus(of_other).mean()

    def reward(self, theta: Parameters, batch: Batch) -> Tensor:
        """R'_θ = log D − log(1 − D): the log-ratio of the two occupancies, unbounded on both sides."""
        return self.logit(theta, batch)

    def policy_reward(self, theta: Parameters, batch: Batch) -> Tensor:
        """What the policy maximises: −log(1 − D)."""
        return F.softplus(self.logit(theta, batch))
