"""Demonstrations and environments in the numbers that the learners are made for, whatever units a lab has.

States become (s - mean) / spread of the demonstrations, actions lie in [-1, 1]. A policy is saved with the scaling folded into
its standardisation of the input, and a guard in the states' own units: whoever uses them never meets the scaled numbers. Tasks
that chose their own scales (`TaskSpec.own_units` False) are left as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cail_core.demos.demonstrations import Demonstrations
from cail_core.guard import Guard
from cail_core.policy import Network
from cail_core.tasks.base import Array, BatchEnv, Demonstrator, RepeatingEnv, Step, Task, TaskSpec

Doubles = NDArray[np.float64]
NARROW = 1e-6
"""A spread that is a smaller share of an entry's size than this is rounding: the entry never changed."""


@dataclass(frozen=True)
class Scaling:
    """`mean` and `spread` of every entry of the states; None where a task's numbers are used as they are."""

    spec: TaskSpec
    mean: Doubles | None = None
    spread: Doubles | None = None

    @classmethod
    def of(cls, spec: TaskSpec, demos: Demonstrations) -> Scaling:
        if not spec.own_units:
            return cls(spec)
        states = demos.states.astype(np.float64)
        mean, spread = states.mean(axis=0), states.std(axis=0)
        size = np.abs(states).max(axis=0)
        still = spread <= NARROW * size
        return cls(spec, mean, np.where(still, np.where(size > 0, size, 1.0), spread))

    def states(self, states: NDArray[np.floating]) -> Array:
        if self.mean is None or self.spread is None:
            return np.asarray(states, dtype=np.float32)
        made: Array = ((np.asarray(states, dtype=np.float64) - self.mean) / self.spread).astype(np.float32)
        return made

    def demos(self, demos: Demonstrations) -> Demonstrations:
        if self.mean is None and not self.spec.action_low:
            return demos
        return replace(demos, states=self.states(demos.states), actions=self.spec.normalised(demos.actions),
                       next_states=self.states(demos.next_states))

    def task(self, task: Task) -> Task:
        """The task with environments that show scaled states; its actions are in [-1, 1] already."""
        return task if self.mean is None else ScaledTask(task, self)

    def network(self, network: Network) -> Network:
        """A network that was trained on scaled states, for states as they are."""
        if self.mean is None or self.spread is None:
            return network
        mean, scale = (network.weights[name].astype(np.float64) for name in ("observation_mean", "observation_scale"))
        weights = {**network.weights, "observation_mean": (self.mean + self.spread * mean).astype(np.float32),
                   "observation_scale": (self.spread * scale).astype(np.float32)}
        return Network(weights, network.activation, network.gates)

    def guard(self, guard: Guard) -> Guard:
        """A guard that was fitted on scaled states, for states as they are: the distances are the same."""
        if self.mean is None or self.spread is None:
            return guard
        states, start = (self.mean + self.spread * part.astype(np.float64) for part in (guard.states, guard.start))
        return Guard(states.astype(np.float32), (self.spread * guard.scale).astype(np.float32), start.astype(np.float32),
                     guard.slow_at, guard.stop_at)


class ScaledTask:
    """A task whose environments show scaled states."""

    def __init__(self, task: Task, scaling: Scaling) -> None:
        self.spec, self._task, self._scaling = task.spec, task, scaling

    def make_env(self, num_envs: int) -> BatchEnv:
        env = self._task.make_env(num_envs)
        return _RepeatingScaledEnv(env, self._scaling) if isinstance(env, RepeatingEnv) else _ScaledEnv(env, self._scaling)

    def mixes(self) -> dict[str, Sequence[tuple[Demonstrator, float]]]:
        return self._task.mixes()


class _ScaledEnv:
    def __init__(self, env: BatchEnv, scaling: Scaling) -> None:
        self.num_envs, self._env, self._scaling = env.num_envs, env, scaling

    def reset(self, seed: int) -> Array:
        return self._scaling.states(self._env.reset(seed))

    def step(self, action: Array) -> Step:
        step = self._env.step(action)
        return step._replace(observation=self._scaling.states(step.observation),
                             next_observation=self._scaling.states(step.next_observation))

    def close(self) -> None:
        self._env.close()


class _RepeatingScaledEnv(_ScaledEnv):
    _env: RepeatingEnv

    def begin(self, agenda: Sequence[Sequence[int]]) -> Array:
        return self._scaling.states(self._env.begin(agenda))
