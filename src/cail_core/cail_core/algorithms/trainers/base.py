"""What the loops of all methods share: weighted pairs, batches for cloning, a step of Eq. 7 or of its third line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cail_core.algorithms.batch import Batch, demo_batch
from cail_core.algorithms.eq7.cail import Cail, draw, draw_by
from cail_core.algorithms.eq7.confidence import spread
from cail_core.algorithms.eq7.gradient import Parameters
from cail_core.algorithms.eq7.optim import Adam
from cail_core.algorithms.eq7.outer import OuterLoss, RankedTrajectories
from cail_core.algorithms.inner.base import InnerLearner
from cail_core.algorithms.inner.weighted import WeightedInnerLearner
from cail_core.algorithms.registry import Training, get_method
from cail_core.algorithms.settings import CloningConfig, MethodConfig
from cail_core.algorithms.trainers.corrective import Corrections, displaced, mismeasured, sensor_errors
from cail_core.algorithms.trainers.trust import Trust
from cail_core.demos.demonstrations import Demonstrations
from cail_core.policy import Gates
from cail_core.rl.networks import TanhGaussianActor
from cail_core.tasks.base import Task

CORRECTIONS_SEED = 0
"""The dynamics are learned anew by a resumed run, and must come out the same."""
Metrics = dict[str, float]


class Learner(Protocol):
    """A method at work."""

    actor: TanhGaussianActor
    done: int

    def iterate(self) -> Metrics:
        """One iteration; adds its steps to `done`."""
        ...

    def confidence(self) -> Tensor:
        """β of every demonstration pair, mean 1, in dataset order."""
        ...

    def weight(self) -> Tensor:
        """What every demonstration pair counts for the policy, mean 1."""
        ...

    def learned_returns(self) -> list[float] | None:
        """The learned return of each ranked trajectory, best ranked first; None where fewer than two are ranked."""
        ...

    def begin_segment(self, segment: int) -> None:
        """Called at the start and after every checkpoint: what cannot be saved (environments) starts anew here."""
        ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


def make_learner(method: str, task: Task, demos: Demonstrations, config: MethodConfig, seed: int, *,
                 resumed: bool = False) -> Learner:
    """The learner of a method; `task` is asked for environments only by those that act while they learn.

    `resumed`: a `restore` follows and brings the confidence with it, so it is not learned again.
    """
    learner = get_method(method).make(Training(task, demos, config, seed, torch.Generator().manual_seed(seed), resumed))
    if task.spec.gates:
        learner.actor.standardise.gates = Gates(task.spec.gates, task.spec.observation_names)
    if isinstance(learner, WeightedLearner):
        learner.errors = sensor_errors(task.spec, learner.config.cloning.sensor_errors)
    return learner


class WeightedLearner:
    """A learner on weighted demonstration pairs. Its subclasses have the loops."""

    inner_learner: WeightedInnerLearner
    """θ, and its steps; with a joint confidence it is `Cail`."""

    def __init__(self, training: Training[Any], trust: Trust) -> None:
        self.training = training
        self.config = training.config
        self.generator = training.generator
        self.trust = trust
        self.done = 0
        self.data = demo_batch(training.demos)
        self.outer: OuterLoss | None = None
        self._demos = training.demos
        self._cloning: CloningConfig = training.config.cloning
        self._last_row = torch.as_tensor(training.demos.starts[1:][training.demos.episode_of_pair] - 1)
        """Of each pair: the last of its episode."""
        self.errors = torch.empty(0, self.data.state.shape[1])
        """What the task's sensors may be wrong by, in entries of the state (`corrective.py`)."""
        self._corrections: Corrections | None = None
        self._demo_jacobians = torch.empty(0)

    def confidence(self) -> Tensor:
        return self.trust.beta

    def weight(self) -> Tensor:
        return self.trust.weight

    @torch.no_grad()
    def learned_returns(self) -> list[float] | None:
        return None if self.outer is None else self.outer.returns(self.inner_learner.theta).tolist()

    def _tie(self, inner: InnerLearner, learning_rate: float, ranked: RankedTrajectories | None) -> WeightedInnerLearner:
        """The inner learner with what moves it; along with it β, where that is learned jointly."""
        optimizer = Adam(learning_rate)
        self.outer = None if ranked is None else OuterLoss(inner, ranked, self.trust.outer)
        if self.trust.joint is None or self.outer is None:
            return WeightedInnerLearner(inner, optimizer)
        return Cail(inner, self.trust.confidence, self.outer, optimizer, mu=self.trust.joint.mu)

    def _ranked(self) -> RankedTrajectories | None:
        outer = self.trust.outer
        if len(self._demos.ranked) < 2:
            return None
        return RankedTrajectories.of(self._demos, self._demos.ranked, outer.gamma, outer.returns)

    def _update(self, rows: Tensor, demo: Batch, other: Batch) -> Metrics:
        """Eq. 7 where β is learned along with the policy, its third line alone where β is given."""
        joint = self.trust.joint
        if joint is not None and isinstance(self.inner_learner, Cail):
            gate = 0.0 if joint.gate and self.done >= joint.gate_after else None
            result = self.inner_learner.step(rows, demo, other, gate=gate)
            return {"inner_loss": result.inner, "accepted": float(result.accepted)}
        return {"inner_loss": self.inner_learner.weighted_step(self._row_weights(rows), demo, other), "accepted": 1.0}

    def _row_weights(self, rows: Tensor) -> Tensor:
        """What each pair of a batch counts in the loss."""
        return torch.ones(len(rows)) if self.trust.drawn else self.trust.fixed_weight[rows]

    def _demo_rows(self, pairs: Tensor, size: int, times: int) -> list[Tensor]:
        """Places in `pairs` (each names a demonstration pair) for `times` batches."""
        if not self.trust.drawn:
            return [draw(len(pairs), size, self.generator) for _ in range(times)]
        cum_weights = self.trust.fixed_weight[pairs].double().cumsum(0)
        return list(torch.split(draw_by(cum_weights, size * times, self.generator), size))

    def _cloning_batches(self, times: int) -> Iterator[tuple[Tensor, Batch]]:
        """Demonstration pairs for `times` steps of cloning, some of them displaced where the method wants that."""
        c = self._cloning
        jacobians = self._jacobians()
        for rows in self._demo_rows(torch.arange(len(self.data.state)), c.batch_size, times):
            pairs = self.data.rows(rows)
            if c.lead_steps:
                later = torch.randint(c.lead_steps + 1, (len(rows),), generator=self.generator)
                pairs = pairs._replace(action=self.data.action[torch.minimum(rows + later, self._last_row[rows])])
            if c.corrective_noise_steps:
                pairs = displaced(pairs, jacobians[rows], c.corrective_noise_steps, c.corrective_horizon, self.generator)
            yield rows, mismeasured(pairs, self.errors, self.generator)

    def _jacobians(self) -> Tensor:
        """B(s) at every demonstration pair (`corrective.py`), learned when first asked for; nothing where it is not wanted."""
        if self._cloning.corrective_noise_steps and self._corrections is None:
            self._corrections = Corrections(self.data, torch.Generator().manual_seed(CORRECTIONS_SEED))
            self._demo_jacobians = self._corrections.at(self.data)
        return self._demo_jacobians

    def _confidence_metrics(self) -> Metrics:
        metrics = {"confidence_spread": spread(self.trust.confidence.per_episode())}
        if self.outer is not None:
            with torch.no_grad():
                metrics["outer_loss"] = float(self.outer(self.inner_learner.theta))
        return metrics

    def state(self) -> dict[str, Any]:
        return {"inner": self.inner_learner.state(), "trust": self.trust.state(), "done": self.done,
                "generator": self.generator.get_state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.inner_learner.restore(state["inner"])
        self.trust.restore(state["trust"])
        self.done = state["done"]
        self.generator.set_state(state["generator"])


def ema(average: Parameters, theta: Parameters, decay: float) -> Parameters:
    """Cloning wanders around its optimum from step to step; the middle of where it has been is steadier."""
    if decay == 0.0:
        return theta
    return {name: torch.lerp(value, average[name], decay) for name, value in theta.items()}


def scale_of(states: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation to standardise by."""
    return states.mean(0), states.std(0).clamp_min(1e-3)


def mean_of(metrics: list[Metrics]) -> Metrics:
    return {name: float(np.mean([m[name] for m in metrics])) for name in metrics[0]}
