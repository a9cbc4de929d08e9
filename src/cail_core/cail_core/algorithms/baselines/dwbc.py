"""DWBC (Xu et al. 2022, "Discriminator-Weighted Offline Imitation Learning from Suboptimal Demonstrations").

A discriminator d tells the expert's pairs from all others, where "others" may hide more of the expert's (positive-unlabelled
learning); cloning weights every pair by it. The expert's pairs are those of the best ranked trajectories.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad

from cail_core.algorithms.batch import Batch
from cail_core.algorithms.eq7.cail import draw
from cail_core.algorithms.eq7.gradient import Parameters, mean_one
from cail_core.algorithms.eq7.optim import Adam
from cail_core.algorithms.inner.base import ModuleLearner
from cail_core.algorithms.inner.bc import BehaviourCloning
from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import OfflineConfig
from cail_core.algorithms.trainers.base import Metrics
from cail_core.algorithms.trainers.cloning import CloningLearner
from cail_core.algorithms.trainers.trust import Trust, uniform_trust
from cail_core.config import setting
from cail_core.demos.demonstrations import Demonstrations, Ints
from cail_core.rl.networks import Standardise, mlp

LOG_PROB_RANGE = 10.0  # log π enters d within ±10 of 0


@dataclass(frozen=True)
class DwbcSettings:
    """η, α and the limits of d are the authors'."""

    RENAMED: ClassVar[dict[str, str]] = {"rate": "learning_rate", "experts": "expert_fraction"}

    expert_fraction: float = setting(0.2, "fraction of the ranked trajectories, best first, that counts as the expert's; at "
                                          "least one", low=0.0, high=1.0)
    eta: float = setting(0.5, "η: the weight of the expert's pairs in the discriminator", low=0.0, high=1.0)
    alpha: float = setting(7.5, "α: the weight of cloning the expert's pairs", low=0.0)
    limit: float = setting(0.1, "d stays in [limit, 1 − limit]", low=1e-3, high=0.5)
    hidden: list[int] = setting([100, 100], "sizes of the discriminator's hidden layers (ReLU)")
    learning_rate: float = setting(3e-4, "of the discriminator", low=0.0)


@dataclass(frozen=True)
class DwbcConfig(OfflineConfig):
    """`config/dwbc.yaml`."""

    dwbc: DwbcSettings = setting(DwbcSettings, "the discriminator")


def expert_episodes(demos: Demonstrations, share: float) -> Ints:
    """The best of the ranked trajectories, and those tied with the last of them."""
    ranked = demos.ranked
    last = demos.rank[ranked[max(1, round(share * len(ranked))) - 1]]
    best: Ints = ranked[demos.rank[ranked] <= last]
    return best


class Discriminator(ModuleLearner):
    """d(s, a, log π(a|s)): log π tells it what the policy already does."""

    def __init__(self, observation_dim: int, action_dim: int, generator: torch.Generator, hidden: list[int]) -> None:
        super().__init__()
        self.state_scale = Standardise(observation_dim)
        self.net = mlp([observation_dim + action_dim + 1, *hidden, 1], nn.ReLU, generator)

    def forward(self, batch: Batch) -> Tensor:
        log_prob = batch.log_prob.clamp(-LOG_PROB_RANGE, LOG_PROB_RANGE)[:, None] / LOG_PROB_RANGE
        out: Tensor = self.net(torch.cat([self.state_scale(batch.state), batch.action, log_prob], dim=-1)).squeeze(-1)
        return out

    def logit(self, theta: Parameters, batch: Batch) -> Tensor:
        out: Tensor = functional_call(self, theta, (batch,))
        return out


def discriminator_loss(expert: Tensor, other: Tensor, eta: float) -> Tensor:
    """η E_e[−log d] + E_o[−log(1 − d)] − η E_e[−log(1 − d)]; the arguments are logits of d."""
    return eta * F.softplus(-expert).mean() + F.softplus(other).mean() - eta * F.softplus(expert).mean()


def policy_weights(expert: Tensor, other: Tensor, c: DwbcSettings) -> tuple[Tensor, Tensor]:
    """What −log π of each pair counts: α − η / (d (1 − d)) for the expert's, 1 / (1 − d) for all. The arguments are logits."""
    d_expert, d_other = (torch.sigmoid(logit).clamp(c.limit, 1 - c.limit) for logit in (expert, other))
    return c.alpha - c.eta / (d_expert * (1 - d_expert)), 1 / (1 - d_other)


class WeightedCloning(BehaviourCloning):
    """E_e[w_e · −log π] + E_o[w_o · −log π], with the weights as they are: an expert's pair may weigh less than nothing."""

    def loss(self, theta: Parameters, beta: Tensor, demo: Batch, other: Batch) -> Tensor:
        """`beta`: the weights of `demo` (the expert's pairs) and of `other` (any), one after the other."""
        n = len(demo.state)
        return -(beta[:n] * self.reward(theta, demo)).mean() - (beta[n:] * self.reward(theta, other)).mean()


class DwbcLearner(CloningLearner):
    """Cloning, with a step of the discriminator before each step of the policy."""

    def __init__(self, training: Training[DwbcConfig], trust: Trust) -> None:
        super().__init__(training, trust)
        c, demos = training.config.dwbc, training.demos
        self._d = Discriminator(self.data.state.shape[1], self.data.action.shape[1], self.generator, c.hidden)
        self._d.state_scale.set(self.actor.standardise.mean, self.actor.standardise.scale)
        self._d_theta, self._d_adam = self._d.theta(), Adam(c.learning_rate)
        expert = torch.zeros(demos.episodes, dtype=torch.bool)
        expert[torch.as_tensor(expert_episodes(demos, c.expert_fraction))] = True
        self._expert_rows = torch.nonzero(expert[torch.as_tensor(demos.episode_of_pair)]).squeeze(1)

    def _make_inner(self) -> BehaviourCloning:
        return WeightedCloning(self.actor, self._cloning.sigma)

    def _update(self, rows: Tensor, demo: Batch, other: Batch) -> Metrics:
        c = self.config.dwbc
        drawn = self._expert_rows[draw(len(self._expert_rows), len(rows), self.generator)]
        expert, other = (self._with_log_prob(batch) for batch in (self.data.rows(drawn), other))

        def loss(theta: Parameters) -> Tensor:
            return discriminator_loss(self._d.logit(theta, expert), self._d.logit(theta, other), c.eta)

        self._d_theta = self._d_adam.propose(self._d_theta, grad(loss)(self._d_theta))
        self._d_adam.take()
        with torch.no_grad():
            weights = policy_weights(self._d.logit(self._d_theta, expert), self._d.logit(self._d_theta, other), c)
        return {"inner_loss": self.inner_learner.weighted_step(torch.cat(weights), expert, other), "accepted": 1.0}

    def confidence(self) -> Tensor:
        """The weight 1 / (1 − d) of every pair, with mean 1."""
        with torch.no_grad():
            logit = self._d.logit(self._d_theta, self._with_log_prob(self.data))
        return mean_one(policy_weights(logit, logit, self.config.dwbc)[1])

    def weight(self) -> Tensor:
        return self.confidence()

    @torch.no_grad()
    def _with_log_prob(self, batch: Batch) -> Batch:
        return batch._replace(log_prob=self.inner_learner.inner.reward(self.inner_learner.theta, batch))

    def state(self) -> dict[str, Any]:
        return super().state() | {"discriminator": {"theta": self._d_theta, "adam": self._d_adam.state()}}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._d_theta = dict(state["discriminator"]["theta"])
        self._d_adam.restore(state["discriminator"]["adam"])


@method("dwbc", DwbcConfig, offline=True, needs_ranking=True)
def dwbc(training: Training[DwbcConfig]) -> DwbcLearner:
    return DwbcLearner(training, uniform_trust(training))
