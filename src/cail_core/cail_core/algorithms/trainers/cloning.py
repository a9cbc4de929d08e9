"""Behaviour cloning from recorded data (bc, cail-bc, rinse)."""

from __future__ import annotations

from typing import Any

from cail_core.algorithms.inner.bc import BehaviourCloning
from cail_core.algorithms.registry import Training
from cail_core.algorithms.trainers.base import Metrics, WeightedLearner, ema, mean_of, scale_of
from cail_core.algorithms.trainers.trust import Trust
from cail_core.rl.networks import TanhGaussianActor

STEPS = 50
"""Gradient steps in one iteration."""


class CloningLearner(WeightedLearner):
    """Nothing but the recorded data. Its config has a section `cloning`."""

    def __init__(self, training: Training[Any], trust: Trust) -> None:
        super().__init__(training, trust)
        c = training.config.cloning
        self.actor = TanhGaussianActor(self.data.state.shape[1], self.data.action.shape[1], self.generator, hidden=c.hidden)
        self.actor.standardise.set(*scale_of(self.data.state))
        self.inner_learner = self._tie(self._make_inner(), c.learning_rate, self._ranked())
        self._average = self.inner_learner.theta

    def _make_inner(self) -> BehaviourCloning:
        return BehaviourCloning(self.actor, self._cloning.sigma)

    def iterate(self) -> Metrics:
        metrics: list[Metrics] = []
        for rows, demo in self._cloning_batches(STEPS):
            metrics.append(self._update(rows, demo, demo))
            self._average = ema(self._average, self.inner_learner.theta, self._cloning.ema_decay)
        self.done += STEPS
        self.inner_learner.inner.load(self._average)
        return mean_of(metrics) | self._confidence_metrics()

    def begin_segment(self, segment: int) -> None:
        """Nothing runs outside."""

    def state(self) -> dict[str, Any]:
        return super().state() | {"average": self._average}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._average = dict(state["average"])
        self.inner_learner.inner.load(self._average)

    def close(self) -> None:
        """Nothing to release."""
