"""T-REX (Brown et al. 2019, "Extrapolating Beyond Suboptimal Demonstrations"): a reward that explains the ranking, then PPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from cail_core.algorithms.batch import Batch, demo_batch
from cail_core.algorithms.eq7.gradient import Parameters, mean_one
from cail_core.algorithms.inner.base import ModuleLearner
from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import OnlineConfig, RewardConfig
from cail_core.algorithms.trainers.absorbing import Padded
from cail_core.algorithms.trainers.adversarial import OnlineLearner, RewardNetwork
from cail_core.algorithms.trainers.base import Metrics
from cail_core.algorithms.trainers.trust import uniform_trust
from cail_core.config import setting
from cail_core.demos.demonstrations import Demonstrations
from cail_core.rl.networks import Standardise, mlp


@dataclass(frozen=True)
class TrexConfig(OnlineConfig):
    """`config/t-rex.yaml`."""

    reward: RewardConfig = setting(RewardConfig, "the learned reward")


class Trajectories(NamedTuple):
    """Whole trajectories one after another; trajectory i is rows `starts[i]:starts[i + 1]`. A larger `worth` is better."""

    batch: Batch
    starts: Tensor
    worth: Tensor

    def better_worse(self, margin: float = 0.0) -> Tensor:
        """All (better, worse) of which the worths differ, by `margin` at least: [n, 2]."""
        difference = self.worth[:, None] - self.worth[None, :]
        return torch.nonzero((difference > 0) & (difference >= margin - 1e-6))

    def snippets(self, which: Tensor, length: int, generator: torch.Generator) -> Batch:
        """`length` successive pairs from anywhere in each trajectory of `which`, one snippet after another."""
        room = self.starts[which + 1] - self.starts[which] - length + 1
        first = self.starts[which] + (torch.rand(len(which), generator=generator) * room).long()
        return self.batch.rows((first[:, None] + torch.arange(length)).flatten())

    def shortest(self) -> int:
        return int((self.starts[1:] - self.starts[:-1]).min())


def ranked(demos: Demonstrations) -> Trajectories:
    """The ranked demonstrations; of their ranks only the order is used."""
    chosen = demos.select(demos.ranked)
    return Trajectories(demo_batch(chosen), torch.as_tensor(chosen.starts), -torch.as_tensor(chosen.rank).float())


class SnippetReward(ModuleLearner):
    """R(s) or R(s, a): the mean of a few ReLU networks.

    It does not see the absorbing flag: waiting where an episode ended is worth what that place is worth.
    """

    def __init__(self, observation_dim: int, action_dim: int, generator: torch.Generator, config: RewardConfig, *,
                 sees_action: bool = False) -> None:
        super().__init__()
        self.sees_action = sees_action
        self.observation_dim = observation_dim
        self.state_scale = Standardise(observation_dim + 1)
        sizes = [observation_dim + (action_dim if sees_action else 0), *config.hidden, 1]
        self.nets = nn.ModuleList(mlp(sizes, nn.ReLU, generator) for _ in range(config.nets))

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """[nets, pairs]; `state` with or without the flag."""
        n = self.observation_dim
        scaled = (state[:, :n] - self.state_scale.mean[:n]) / self.state_scale.scale[:n]
        seen = torch.cat([scaled, action], dim=-1) if self.sees_action else scaled
        return torch.stack([net(seen).squeeze(-1) for net in self.nets])

    def each(self, theta: Parameters, batch: Batch) -> Tensor:
        out: Tensor = functional_call(self, theta, (batch.state, batch.action))
        return out

    def reward(self, theta: Parameters, batch: Batch) -> Tensor:
        return self.each(theta, batch).mean(0)

    def policy_reward(self, theta: Parameters, batch: Batch) -> Tensor:
        return self.reward(theta, batch)

    def loss(self, theta: Parameters, beta: Tensor, demo: Batch, other: Batch) -> Tensor:
        """Cross-entropy of the better snippet (rows of `demo`) against the worse (rows of `other`), one β per pair of snippets:

            −log exp Σ R(better) / (exp Σ R(better) + exp Σ R(worse))
        """
        better, worse = (self.each(theta, batch).reshape(len(self.nets), len(beta), -1).sum(-1) for batch in (demo, other))
        return (mean_one(beta) * F.softplus(worse - better)).mean()


class TrexLearner(OnlineLearner):
    """The reward is learned once, before the policy's first improvement."""

    inner: SnippetReward
    _loss: float | None = None

    def _make_inner(self, states: int, actions: int) -> RewardNetwork:
        return SnippetReward(states, actions, self.generator, self.config.reward)

    def _learning_rate(self) -> float:
        rate: float = self.config.reward.learning_rate
        return rate

    def _improve(self, policy: Padded) -> Metrics:
        if self._loss is None:
            self._loss = self._learn_reward()
        return {"inner_loss": self._loss, "accepted": 1.0}

    def _learn_reward(self) -> float:
        return self.learn_order(ranked(self._demos))

    def learn_order(self, trajectories: Trajectories, margin: float = 0.0) -> float:
        """Fit the reward to the order; gives the mean loss of the last tenth of the steps."""
        c = self.config.reward
        pairs, length = trajectories.better_worse(margin), min(c.snippet, trajectories.shortest())
        losses = []
        for _ in range(c.steps):
            better, worse = pairs[torch.randint(len(pairs), (c.batch_size,), generator=self.generator)].T
            losses.append(self.inner_learner.weighted_step(
                torch.ones(c.batch_size), trajectories.snippets(better, length, self.generator),
                trajectories.snippets(worse, length, self.generator)))
        return float(np.mean(losses[-max(1, c.steps // 10):]))

    def state(self) -> dict[str, Any]:
        return super().state() | {"reward_loss": self._loss}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._loss = state["reward_loss"]


@method("t-rex", TrexConfig, needs_ranking=True)
def t_rex(training: Training[TrexConfig]) -> TrexLearner:
    return TrexLearner(training, uniform_trust(training))
