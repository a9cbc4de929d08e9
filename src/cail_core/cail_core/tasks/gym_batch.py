"""Many Gymnasium environments at once, in this process or, where a step takes long enough, in processes of `gymnasium.vector`.

Every episode has a seed of its own, drawn from the seed of its environment: the same episodes wherever they are played.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv
from numpy.typing import NDArray

from cail_core.errors import CailError
from cail_core.tasks.base import Array, Step

SLOW_STEP_S = 3e-4
"""A step that takes longer than this is worth sending to another process, which costs about as much."""
FLAGS = 4
"""Columns of a row behind the two observations: reward, terminated, truncated, success."""


class WorkerLost(CailError):
    """A process that played environments ended by itself."""


class One(Protocol):
    """One environment, as `tasks.gymnasium.Opened` is."""

    def reset(self, seed: int) -> Array: ...

    def step(self, action: Array) -> tuple[Array, float, bool, bool, bool]: ...

    def close(self) -> None: ...


class Group(gymnasium.Env[Any, Any]):
    """Environments `first` … `first + count - 1` of a batch, as one environment whose observation has a row for each: what is
    seen now, what the step led to, reward, terminated, truncated, success. Made only when they begin, where they are played."""

    def __init__(self, make: Callable[[], One], first: int, count: int, rows: int, observations: int, actions: int,
                 in_worker: bool = False) -> None:
        self._make, self._first, self._count, self._in_worker = make, first, count, in_worker
        self._size = observations
        self.observation_space = spaces.Box(-np.inf, np.inf, (rows, 2 * observations + FLAGS), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (rows, actions), np.float32)
        self._table = np.zeros((rows, 2 * observations + FLAGS), np.float32)
        self._envs: list[One] = []
        self._rngs: list[np.random.Generator] = []
        self._agenda: list[list[int]] = [[] for _ in range(count)]

    def begin(self, seed: int | None, agenda: Sequence[Sequence[int]] = ()) -> Array:
        """Start all episodes anew. Environment i begins from the seeds agenda[i], then from seeds drawn from `seed`, or where
        that is None from those of the last `begin`."""
        self._open()
        if seed is not None:
            children = np.random.SeedSequence(seed).spawn(self._first + self._count)[self._first :]
            self._rngs = [np.random.default_rng(child) for child in children]
        self._agenda = [list(agenda[self._first + i]) if agenda else [] for i in range(self._count)]
        for i in range(self._count):
            self._table[i, : self._size] = self._envs[i].reset(self._next_seed(i))
        return self._table[: self._count, : self._size].copy()

    def restart(self, which: int, seed: int) -> Array | None:
        """Begin an episode in one environment, if it is one of these."""
        self._open()
        i = which - self._first
        if not 0 <= i < self._count:
            return None
        self._table[i, : self._size] = self._envs[i].reset(seed)
        return self._table[i, : self._size].copy()

    def step(self, action: NDArray[Any]) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        table, size = self._table, self._size
        for i, env in enumerate(self._envs):
            reached, reward, terminated, truncated, success = env.step(action[i])
            table[i, size : 2 * size] = reached
            table[i, 2 * size :] = reward, terminated, truncated, success
            table[i, :size] = env.reset(self._next_seed(i)) if terminated or truncated else reached
        return table, 0.0, False, False, {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        return self._table, {}

    def close(self) -> None:
        for env in self._envs:
            env.close()
        self._envs = []

    def _open(self) -> None:
        if not self._envs:
            if self._in_worker:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides what an interrupt ends
            self._envs = [self._make() for _ in range(self._count)]
            if not self._rngs:
                self._rngs = [np.random.default_rng((self._first + i,)) for i in range(self._count)]

    def _next_seed(self, i: int) -> int:
        return self._agenda[i].pop(0) if self._agenda[i] else int(self._rngs[i].integers(2**31))


class GymBatch:
    """A batch of environments of one task: a `RestartableEnv` and a `RepeatingEnv`."""

    def __init__(self, make: Callable[[], One], num_envs: int, observations: int, actions: int, step_s: float,
                 workers: int | None = None) -> None:
        self.num_envs, self._size = num_envs, observations
        if workers is None:
            workers = min(num_envs, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
            workers = workers if step_s > SLOW_STEP_S and "fork" in multiprocessing.get_all_start_methods() else 1
        rows = math.ceil(num_envs / max(1, workers))
        firsts = range(0, num_envs, rows)
        groups = [(first, min(rows, num_envs - first)) for first in firsts]
        self._one: Group | None = None
        self._many: AsyncVectorEnv | None = None
        if len(groups) == 1:
            self._one = Group(make, 0, num_envs, num_envs, observations, actions)
            return

        def group(first: int, count: int) -> Callable[[], Group]:
            return lambda: Group(make, first, count, rows, observations, actions, in_worker=True)

        # Forked, so that a script needs no `if __name__ == "__main__"`; the environments are made in the processes.
        self._many = AsyncVectorEnv([group(*where) for where in groups], context="fork")

    def reset(self, seed: int) -> Array:
        return self._begun(seed, ())

    def begin(self, agenda: Sequence[Sequence[int]]) -> Array:
        return self._begun(None, [list(map(int, seeds)) for seeds in agenda])

    def restart(self, which: int, seed: int) -> Array:
        found = [part for part in self._asked("restart", which, seed) if part is not None]
        made: Array = found[0]
        return made

    def outcome(self, which: int) -> str | None:
        """An environment says no more than success."""
        return None

    def step(self, action: Array) -> Step:
        action = np.asarray(action, dtype=np.float32)
        if self._one is not None:
            table = self._one.step(action)[0].copy()
        else:
            table = self._stepped(action)
        n = self._size
        flags = table[:, 2 * n + 1 :] > 0
        return Step(table[:, :n], table[:, n : 2 * n], table[:, 2 * n], flags[:, 0], flags[:, 1], flags[:, 2])

    def close(self) -> None:
        if self._one is not None:
            self._one.close()
        if self._many is not None:
            self._many.close(terminate=True)

    def _begun(self, seed: int | None, agenda: Sequence[Sequence[int]]) -> Array:
        return np.concatenate(self._asked("begin", seed, agenda))

    def _stepped(self, action: Array) -> Array:
        assert self._many is not None
        workers, rows = self._many.num_envs, self._many.single_action_space.shape[0]  # type: ignore[index]
        padded = np.zeros((workers * rows, action.shape[1]), np.float32)
        padded[: len(action)] = action
        try:
            table = self._many.step(padded.reshape(workers, rows, -1))[0]
        except (EOFError, ConnectionError) as fault:
            raise self._lost() from fault
        made: Array = np.array(table.reshape(workers * rows, -1)[: self.num_envs])
        return made

    def _asked(self, what: str, *given: Any) -> Sequence[Any]:
        if self._one is not None:
            return [getattr(self._one, what)(*given)]
        assert self._many is not None
        try:
            return self._many.call(what, *given)
        except (EOFError, ConnectionError) as fault:
            raise self._lost() from fault

    def _lost(self) -> WorkerLost:
        return WorkerLost("a process that played environments ended by itself, perhaps for want of memory; what was saved is "
                          "intact")
