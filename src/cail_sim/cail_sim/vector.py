"""Many environments at once, in this process or in worker processes that share their numbers with it through memory.

Environment i has the same episodes for the same seed, wherever it runs and with however many others.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cail_core.config import to_dict
from cail_core.errors import CailError
from cail_core.tasks import Step
from cail_core.tasks.base import Array
from cail_core.tasks.pick_place_avoid import Outcome
from cail_sim.env import PickPlaceAvoidEnv

if TYPE_CHECKING:
    from cail_sim.tasks import Panda

OUTCOMES = tuple(Outcome)
RUNNING = -1


class WorkerLost(CailError):
    """A worker process ended by itself."""


class Batch:
    """The numbers of one step of all environments, laid out in `memory` so that several processes can fill their rows."""

    def __init__(self, num_envs: int, observation_dim: int, action_dim: int, memory: Any = None) -> None:
        shapes: dict[str, tuple[tuple[int, ...], type[np.generic]]] = {
            "action": ((num_envs, action_dim), np.float32),
            "observation": ((num_envs, observation_dim), np.float32),
            "reached": ((num_envs, observation_dim), np.float32),
            "reward": ((num_envs,), np.float32),
            "outcome": ((num_envs,), np.int8),
        }
        if memory is None:
            memory = bytearray(self.size(num_envs, observation_dim, action_dim))
        arrays, at = {}, 0
        for name, (shape, kind) in shapes.items():
            arrays[name] = np.ndarray(shape, kind, memory, at)
            at += arrays[name].nbytes
        self.action: Array = arrays["action"]
        self.observation: Array = arrays["observation"]
        self.reached: Array = arrays["reached"]
        self.reward: Array = arrays["reward"]
        self.outcome: NDArray[np.int8] = arrays["outcome"]
        """Of the episode that this step ended: a place in `OUTCOMES`, or `RUNNING`."""

    @staticmethod
    def size(num_envs: int, observation_dim: int, action_dim: int) -> int:
        return num_envs * (4 * (action_dim + 2 * observation_dim + 1) + 1)

    def step(self) -> Step:
        """What happened, as a copy that the next step does not change."""
        ended, timeout = self.outcome != RUNNING, self.outcome == OUTCOMES.index(Outcome.TIMEOUT)
        return Step(self.observation.copy(), self.reached.copy(), self.reward.copy(), ended & ~timeout, timeout,
                    self.outcome == OUTCOMES.index(Outcome.SUCCESS))

    def outcome_of(self, which: int) -> str | None:
        """How the episode of one environment ended that the last step ended; None if it goes on."""
        code = int(self.outcome[which])
        return None if code == RUNNING else OUTCOMES[code].value


class LocalEnv:
    """Environments of this process, one after the other; `rows` of the batch are theirs."""

    def __init__(self, envs: Sequence[PickPlaceAvoidEnv], batch: Batch, rows: Sequence[int]) -> None:
        self.num_envs = len(envs)
        self._envs, self._batch, self._rows = dict(zip(rows, envs, strict=True)), batch, rows
        self._rngs: dict[int, np.random.Generator] = {}

    def reset(self, seed: int) -> Array:
        for row in self._rows:
            self._begin(row, np.random.default_rng((seed, row)))
        return self._batch.observation.copy()

    def restart(self, which: int, seed: int) -> Array:
        """Begin an episode in one environment; which one and how many others there are makes no difference to it."""
        self._begin(which, np.random.default_rng(seed))
        begun: Array = self._batch.observation[which].copy()
        return begun

    def step(self, action: Array) -> Step:
        self._batch.action[:] = action
        self.advance()
        return self._batch.step()

    def advance(self) -> None:
        """Execute the actions that stand in the batch."""
        b = self._batch
        wanted = b.action.tolist()
        for row, env in self._envs.items():
            b.reward[row], outcome = env.decide(wanted[row])
            b.reached[row] = seen = env.observe()
            if outcome is not None:
                env.start(self._rngs[row])
                seen = env.observe()
            b.observation[row] = seen
            b.outcome[row] = RUNNING if outcome is None else OUTCOMES.index(outcome)

    def outcome(self, which: int) -> str | None:
        return self._batch.outcome_of(which)

    def close(self) -> None:
        for env in self._envs.values():
            env.close()

    def _begin(self, row: int, rng: np.random.Generator) -> None:
        self._rngs[row] = rng
        self._envs[row].start(rng)
        self._batch.observation[row] = self._envs[row].observe()
        self._batch.outcome[row] = RUNNING


class WorkerEnv:
    """Environments spread over worker processes, stepped at the same time.

    A worker reads commands from a pipe and answers through another (`cail_sim.worker`). When this process ends, in whatever
    way, the pipe closes and the worker ends too.
    """

    def __init__(self, task: Panda, num_envs: int, workers: int) -> None:
        self.num_envs = num_envs
        dims = num_envs, task.spec.observation_dim, task.spec.action_dim
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (no name: nothing stays behind)
        self._file.truncate(Batch.size(*dims))
        self._batch = Batch(*dims, mmap.mmap(self._file.fileno(), 0))
        self._rows = [list(map(int, rows)) for rows in np.array_split(np.arange(num_envs), workers)]
        about = {"task": [type(task).__module__, type(task).__qualname__], "config": to_dict(task.config), "dims": dims,
                 "memory": self._file.fileno()}
        self._workers = [
            subprocess.Popen([sys.executable, "-m", "cail_sim.worker", json.dumps({**about, "rows": rows})],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[self._file.fileno()],
                             start_new_session=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
            for rows in self._rows
        ]  # fmt: skip
        try:
            self._wait(range(workers))
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    def reset(self, seed: int) -> Array:
        self._all(f"reset {seed}")
        return self._batch.observation.copy()

    def restart(self, which: int, seed: int) -> Array:
        """As `LocalEnv.restart`."""
        worker = next(k for k, rows in enumerate(self._rows) if which in rows)
        self._tell(worker, f"restart {which} {seed}")
        self._wait([worker])
        begun: Array = self._batch.observation[which].copy()
        return begun

    def step(self, action: Array) -> Step:
        self._batch.action[:] = action
        self._all("step")
        return self._batch.step()

    def outcome(self, which: int) -> str | None:
        return self._batch.outcome_of(which)

    def close(self) -> None:
        for worker in self._workers:
            assert worker.stdin is not None
            assert worker.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                worker.stdin.close()
            worker.stdout.close()
        for worker in self._workers:
            try:
                worker.wait(timeout=10)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self._file.close()

    def _all(self, command: str) -> None:
        for k in range(len(self._workers)):
            self._tell(k, command)
        self._wait(range(len(self._workers)))

    def _tell(self, k: int, command: str) -> None:
        stdin = self._workers[k].stdin
        assert stdin is not None
        try:
            stdin.write(command + "\n")
            stdin.flush()
        except (BrokenPipeError, ValueError):
            self._lost(k)

    def _wait(self, which: Sequence[int]) -> None:
        for k in which:
            stdout = self._workers[k].stdout
            assert stdout is not None
            answer = stdout.readline()
            if answer != "ok\n":
                self._lost(k, answer.strip())

    def _lost(self, k: int, why: str = "") -> None:
        worker = self._workers[k]
        if not why:
            code = worker.wait()
            why = f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
        raise WorkerLost(
            f"simulation worker {k + 1} of {len(self._workers)} (process {worker.pid}) is lost: {why}; "
            "start the command again, what was saved is intact"
        )
