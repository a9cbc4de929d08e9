"""Adversarial inverse reinforcement learning (Fu et al. 2018), the paper's inner learner (Eq. 11, 12)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from cail_core.algorithms.batch import Batch, joined
from cail_core.algorithms.bilevel import Parameters, mean_one
from cail_core.algorithms.inner import ModuleLearner
from cail_core.rl.networks import Standardise, mlp


class Airl(ModuleLearner):
    """D = exp f / (exp f + π(a|s)) with f(s, a, s') = g(s[, a]) + γ (1 − terminated) h(s') − h(s).

    Its logit is log D − log(1 − D) = f − log π(a|s). g is the reward, h the shaping that it is free of. Both are 2×100
    ReLU networks with a linear output: a ReLU there would cut the outer loss off from every pair below 0.
    """

    def __init__(self, observation_dim: int, action_dim: int, gamma: float, generator: torch.Generator, *,
                 hidden: list[int], reward_sees_action: bool) -> None:
        super().__init__()
        self.gamma = gamma
        self.reward_sees_action = reward_sees_action
        self.state_scale = Standardise(observation_dim)
        self.g = mlp([observation_dim + (action_dim if reward_sees_action else 0), *hidden, 1], nn.ReLU, generator)
        self.h = mlp([observation_dim, *hidden, 1], nn.ReLU, generator)

    def forward(self, batch: Batch, part: str) -> Tensor:
        """`part`: the whole logit, or g alone."""
        state = self.state_scale(batch.state)
        g: Tensor = self.g(torch.cat([state, batch.action], dim=-1) if self.reward_sees_action else state).squeeze(-1)
        if part == "g":
            return g
        h: Tensor = self.h(state).squeeze(-1)
        h_next: Tensor = self.h(self.state_scale(batch.next_state)).squeeze(-1)
        return g + self.gamma * (1 - batch.terminated) * h_next - h - batch.log_prob

    def logit(self, theta: Parameters, batch: Batch) -> Tensor:
        out: Tensor = functional_call(self, theta, (batch, "logit"))
        return out

    def loss(self, theta: Parameters, beta: Tensor, demo: Batch, other: Batch) -> Tensor:
        """Eq. 11: E_{β p_d}[−log D] + E_π[−log(1 − D)]."""
        of_demo, of_other = torch.split(self.logit(theta, joined(demo, other)), [len(demo.state), len(other.state)])
        return (mean_one(beta) * F.softplus(-of_demo)).mean() + F.softplus(of_other).mean()

    def reward(self, theta: Parameters, batch: Batch) -> Tensor:
        """R'_θ = g: what AIRL recovers of the demonstrators' reward."""
        out: Tensor = functional_call(self, theta, (batch, "g"))
        return out

    def policy_reward(self, theta: Parameters, batch: Batch) -> Tensor:
        """What the policy maximises, Eq. 12: log D − log(1 − D) = f − log π."""
        return self.logit(theta, batch)
