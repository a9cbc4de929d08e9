"""SSRR (Chen et al. 2020, "Learning from Suboptimal Demonstration via Self-Supervised Reward Regression").

AIRL gives a first policy and a first reward. The policy acts with more and more noise, the first reward judges it, and how its
performance falls with the noise is fitted by a sigmoid. A second reward is regressed to that curve, then PPO.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cail_core.algorithms.baselines.drex import noisy_rollouts
from cail_core.algorithms.baselines.trex import SnippetReward, Trajectories, TrexLearner
from cail_core.algorithms.batch import Batch
from cail_core.algorithms.eq7.confidence import segment_mean
from cail_core.algorithms.eq7.gradient import Parameters
from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import AirlMethodConfig, NoiseConfig, RewardConfig
from cail_core.algorithms.trainers.absorbing import flagged
from cail_core.algorithms.trainers.adversarial import RewardNetwork, airl_learner
from cail_core.algorithms.trainers.base import Metrics
from cail_core.algorithms.trainers.trust import Trust, uniform_trust
from cail_core.config import setting

Floats = NDArray[np.float64]
GRID, ROUNDS = 21, 12


@dataclass(frozen=True)
class SsrrNoiseConfig(NoiseConfig):
    """SSRR: the rollouts with growing noise, and the policy that makes them."""

    airl_steps: int = setting(100_000, "environment steps of AIRL, whose policy gets the noise and whose reward judges it", low=1)


@dataclass(frozen=True)
class SsrrConfig(AirlMethodConfig):
    """`config/ssrr.yaml`."""

    reward: RewardConfig = setting(RewardConfig, "the regressed reward")
    noise: SsrrNoiseConfig = setting(SsrrNoiseConfig, "the rollouts with growing noise")


class Sigmoid(NamedTuple):
    """Performance by noise: σ(η) = c / (1 + exp(−k (η − η₀))) + y₀; it falls where c is negative."""

    c: float
    k: float
    eta0: float
    y0: float

    def __call__(self, eta: Floats) -> Floats:
        return self.c * logistic(self.k * (eta - self.eta0)) + self.y0


def logistic(z: Floats) -> Floats:
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def fit_sigmoid(eta: Floats, performance: Floats) -> Sigmoid:
    """The least-squares sigmoid with k in [1, 50] and η₀ in [0, 1].

    For given k and η₀ the best c and y₀ are linear regression, so only those two are searched, on a grid that is made
    finer around the best point: the same data always give the same curve.
    """
    low, high = np.array([0.0, 0.0]), np.array([np.log(50.0), 1.0])  # log k, η₀
    width = high - low
    centre, best = (low + high) / 2, Sigmoid(0.0, 1.0, 0.5, float(performance.mean()))
    least = float(((performance - best.y0) ** 2).sum())
    for _ in range(ROUNDS):
        at = centre
        for log_k in np.clip(np.linspace(centre[0] - width[0] / 2, centre[0] + width[0] / 2, GRID), low[0], high[0]):
            for eta0 in np.clip(np.linspace(centre[1] - width[1] / 2, centre[1] + width[1] / 2, GRID), low[1], high[1]):
                shape = logistic(np.exp(log_k) * (eta - eta0))
                spread = ((shape - shape.mean()) ** 2).sum()
                c = ((shape - shape.mean()) * performance).sum() / max(spread, 1e-12)
                y0 = performance.mean() - c * shape.mean()
                error = float(((performance - c * shape - y0) ** 2).sum())
                if error < least:
                    least, at = error, np.array([log_k, eta0])
                    best = Sigmoid(float(c), float(np.exp(log_k)), float(eta0), float(y0))
        centre, width = at, width / 4
    return best


class SsrrReward(SnippetReward):
    """R(s, a), regressed."""

    def regression(self, theta: Parameters, snippets: Batch, target: Tensor) -> Tensor:
        """E[(R̄ − σ(η))²] with R̄ the mean reward over each snippet, for every network."""
        mean = self.each(theta, snippets).reshape(len(self.nets), len(target), -1).mean(-1)
        return (mean - target).square().mean()


class SsrrLearner(TrexLearner):
    """AIRL for its share of the steps, then a policy of its own on the regressed reward."""

    inner: SsrrReward

    def __init__(self, training: Training[SsrrConfig], trust: Trust) -> None:
        super().__init__(training, trust)
        self.first = airl_learner(training, uniform_trust(training))
        self._segment = 0
        self._follow()

    def _make_inner(self, states: int, actions: int) -> RewardNetwork:
        return SsrrReward(states, actions, self.generator, self.config.reward, sees_action=True)

    def begin_segment(self, segment: int) -> None:
        self._segment = segment
        if self._on_its_own():
            super().begin_segment(segment)
        else:
            self.first.begin_segment(segment)

    def iterate(self) -> Metrics:
        if self._on_its_own():
            return super().iterate()
        metrics = self.first.iterate()
        self.done = self.first.done
        self._follow()
        if self._on_its_own():
            super().begin_segment(self._segment)
        return metrics

    def _on_its_own(self) -> bool:
        return bool(self.first.done >= self.config.noise.airl_steps)

    def _follow(self) -> None:
        """The policy to show is AIRL's as long as there is no other."""
        self.actor = self.ppo.actor if self._on_its_own() else self.first.actor

    def _learn_reward(self) -> float:
        c, noise = self.config.reward, self.config.noise
        rollouts, steps = noisy_rollouts(self._task, self.first.actor, noise.levels, noise.rollouts, self._seed, self.generator)
        self.done += steps
        target = torch.tensor(self._curve(rollouts), dtype=torch.float32)
        length = min(c.snippet, rollouts.shortest())
        losses = []
        for _ in range(c.steps):
            which = torch.randint(len(target), (c.batch_size,), generator=self.generator)
            snippets = rollouts.snippets(which, length, self.generator)
            losses.append(self.inner_learner.descend(partial(self.inner.regression, snippets=snippets, target=target[which])))
        return float(np.mean(losses[-max(1, c.steps // 10):]))

    def _curve(self, rollouts: Trajectories) -> Floats:
        """σ(η) of every rollout: its mean first reward over the steps, standardised, with the accidents fitted away."""
        lengths = rollouts.starts[1:] - rollouts.starts[:-1]
        trajectory = torch.arange(len(lengths)).repeat_interleave(lengths)
        with torch.no_grad():
            reward = self.first.inner.reward(self.first.inner_learner.theta, flagged(rollouts.batch))
        performance = segment_mean(reward, trajectory, len(lengths)).double().numpy()
        performance = (performance - performance.mean()) / max(performance.std(), 1e-6)
        eta = -rollouts.worth.double().numpy()
        return fit_sigmoid(eta, performance)(eta)

    def state(self) -> dict[str, Any]:
        return super().state() | {"first": self.first.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.first.restore(state["first"])
        super().restore(state)
        self._follow()

    def close(self) -> None:
        super().close()
        self.first.close()


@method("ssrr", SsrrConfig)
def ssrr(training: Training[SsrrConfig]) -> SsrrLearner:
    return SsrrLearner(training, uniform_trust(training))
