"""Adversarial inverse reinforcement learning (Fu et al. 2018), the paper's inner learner (Eq. 11, 12)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cail_core.algorithms.batch import Batch, joined
from cail_core.algorithms.eq7.gradient import Parameters, Terms
from cail_core.algorithms.inner.base import PairLearner
from cail_core.rl.networks import Standardise, mlp, relu_mlp


class Airl(PairLearner):
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
        self._depth = len(hidden) + 1
        self.g = mlp([observation_dim + (action_dim if reward_sees_action else 0), *hidden, 1], nn.ReLU, generator)
        self.h = mlp([observation_dim, *hidden, 1], nn.ReLU, generator)

    def logit(self, theta: Parameters, batch: Batch) -> Tensor:
        reward, rest = self._parts(theta, batch)
        return reward + rest

    def _parts(self, theta: Parameters, batch: Batch) -> tuple[Tensor, Tensor]:
        """The logit as g and the rest of it."""
        n = len(batch.state)
        states = self.state_scale(torch.cat([batch.state, batch.next_state]))
        h = relu_mlp(theta, "h", self._depth, states).squeeze(-1)
        return self._g(theta, states[:n], batch.action), self.gamma * (1 - batch.terminated) * h[n:] - h[:n] - batch.log_prob

    def _g(self, theta: Parameters, state: Tensor, action: Tensor) -> Tensor:
        seen = torch.cat([state, action], dim=-1) if self.reward_sees_action else state
        return relu_mlp(theta, "g", self._depth, seen).squeeze(-1)

    def terms(self, theta: Parameters, demo: Batch, other: Batch) -> Terms:
        """Eq. 11: −log D of each demonstration pair, and E_π[−log(1 − D)]."""
        n = len(demo.state)
        g, rest = self._parts(theta, joined(demo, other))
        reward = g[:n]
        return Terms(F.softplus(-(reward + rest[:n])), F.softplus(g[n:] + rest[n:]).mean(), reward)

    def reward(self, theta: Parameters, batch: Batch) -> Tensor:
        """R'_θ = g: what AIRL recovers of the demonstrators' reward."""
        return self._g(theta, self.state_scale(batch.state), batch.action)

    def ranking(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.named_parameters() if name.startswith("g."))

    def policy_reward(self, theta: Parameters, batch: Batch) -> Tensor:
        """What the policy maximises, Eq. 12: log D − log(1 − D) = f − log π."""
        return self.logit(theta, batch)
