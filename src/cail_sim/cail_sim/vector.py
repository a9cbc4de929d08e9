"""Many environments at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cail_core.tasks import Step
from cail_core.tasks.base import Array
from cail_core.tasks.pick_place_avoid import OBSERVATION_NAMES, Outcome
from cail_sim.env import PickPlaceAvoidEnv


class LocalEnv:
    """Environments of this process, one after the other. Environment `numbers[i]` has the same episodes wherever it runs."""

    def __init__(self, envs: Sequence[PickPlaceAvoidEnv], numbers: Sequence[int]) -> None:
        self.num_envs = n = len(envs)
        self._envs, self._numbers = envs, numbers
        self._rngs = [np.random.default_rng(number) for number in numbers]
        self.outcomes: list[Outcome | None] = [None] * n
        """How the last episode of each environment ended, if it just did."""
        width = len(OBSERVATION_NAMES)
        self._observation, self._reached = np.zeros((n, width), np.float32), np.zeros((n, width), np.float32)
        self._reward = np.zeros(n, np.float32)
        self._flags: NDArray[np.bool_] = np.zeros((3, n), np.bool_)

    def reset(self, seed: int) -> Array:
        self._rngs = [np.random.default_rng((seed, number)) for number in self._numbers]
        for i, env in enumerate(self._envs):
            env.start(self._rngs[i])
            self._observation[i] = env.observe()
        return self._observation.copy()

    def restart(self, which: int, seed: int) -> Array:
        """Start one environment's next episode anew."""
        self._rngs[which] = np.random.default_rng((seed, 0))
        self._envs[which].start(self._rngs[which])
        self._observation[which] = self._envs[which].observe()
        started: Array = self._observation[which].copy()
        return started

    def step(self, action: Array) -> Step:
        terminated, truncated, success = self._flags
        wanted = np.asarray(action, dtype=np.float64).tolist()
        for i, env in enumerate(self._envs):
            self._reward[i], outcome = env.decide(wanted[i])
            self._reached[i] = seen = env.observe()
            self.outcomes[i] = outcome
            if outcome is not None:
                env.start(self._rngs[i])
                seen = env.observe()
            self._observation[i] = seen
            truncated[i] = outcome is Outcome.TIMEOUT
            success[i] = outcome is Outcome.SUCCESS
            terminated[i] = outcome is not None and outcome is not Outcome.TIMEOUT
        return Step(self._observation.copy(), self._reached.copy(), self._reward.copy(), *self._flags.copy())

    def close(self) -> None:
        for env in self._envs:
            env.close()
