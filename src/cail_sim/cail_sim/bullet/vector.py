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
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cail_core.config import to_dict
from cail_core.errors import CailError
from cail_core.policy import ACTION_BOUND, Gates, Network
from cail_core.tasks import Step
from cail_core.tasks.base import Array, Flags, Played
from cail_core.tasks.pick_place_avoid import Outcome
from cail_sim.tasks.env import PickPlaceAvoidEnv, decide_all

if TYPE_CHECKING:
    from cail_sim.tasks.panda import Panda

OUTCOMES = tuple(Outcome)
RUNNING = -1
BOUND = np.float32(ACTION_BOUND)
STEPWISE = ("noise", "observation", "action", "reached", "reward", "outcome")
"""The arrays of a stretch that have one row for each step."""


class WorkerLost(CailError):
    """A worker process ended by itself."""


def laid_out(memory: Any, shapes: Mapping[str, tuple[Sequence[int], type[np.generic]]]) -> tuple[dict[str, NDArray[Any]], int]:
    """Arrays one after another in `memory`, and how many bytes they take. Several processes that do the same share them."""
    arrays, at = {}, 0
    for name, (shape, kind) in shapes.items():
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        if memory is not None:
            arrays[name] = np.ndarray(tuple(shape), kind, memory, at)
        at += size
    return arrays, at


def endings(outcome: NDArray[np.int8]) -> tuple[Flags, Flags, Flags]:
    """Of places in `OUTCOMES`, or `RUNNING`: what terminated, what was truncated, what succeeded."""
    ended, timeout = outcome != RUNNING, outcome == OUTCOMES.index(Outcome.TIMEOUT)
    return ended & ~timeout, timeout, outcome == OUTCOMES.index(Outcome.SUCCESS)


class Batch:
    """The numbers of one step of all environments, laid out in `memory` so that several processes can fill their rows."""

    def __init__(self, num_envs: int, observation_dim: int, action_dim: int, memory: Any = None) -> None:
        if memory is None:
            memory = bytearray(self.size(num_envs, observation_dim, action_dim))
        arrays, _ = laid_out(memory, self._shapes(num_envs, observation_dim, action_dim))
        self.action: Array = arrays["action"]
        self.observation: Array = arrays["observation"]
        self.reached: Array = arrays["reached"]
        self.reward: Array = arrays["reward"]
        self.outcome: NDArray[np.int8] = arrays["outcome"]
        """Of the episode that this step ended: a place in `OUTCOMES`, or `RUNNING`."""

    @staticmethod
    def _shapes(num_envs: int, observation_dim: int, action_dim: int) -> dict[str, tuple[Sequence[int], type[np.generic]]]:
        return {
            "action": ((num_envs, action_dim), np.float32),
            "observation": ((num_envs, observation_dim), np.float32),
            "reached": ((num_envs, observation_dim), np.float32),
            "reward": ((num_envs,), np.float32),
            "outcome": ((num_envs,), np.int8),
        }

    @classmethod
    def size(cls, num_envs: int, observation_dim: int, action_dim: int) -> int:
        return laid_out(None, cls._shapes(num_envs, observation_dim, action_dim))[1]

    def step(self) -> Step:
        """What happened, as a copy that the next step does not change."""
        return Step(self.observation.copy(), self.reached.copy(), self.reward.copy(), *endings(self.outcome))

    def outcome_of(self, which: int) -> str | None:
        """How the episode of one environment ended that the last step ended; None if it goes on."""
        code = int(self.outcome[which])
        return None if code == RUNNING else OUTCOMES[code].value


class Stretch:
    """Many steps that environments play on their own: the network and its noise go in, what happened comes out.

    `about` says how it is laid out, in values that JSON can carry.
    """

    def __init__(self, about: Mapping[str, Any], memory: Any = None) -> None:
        self.about = about
        (steps, n), (states, actions) = about["steps"], about["dims"]
        shapes: dict[str, tuple[Sequence[int], type[np.generic]]] = {
            name: (shape, np.float32) for name, shape in about["weights"].items()}
        shapes |= {
            "noise": ((steps, n, actions), np.float32),
            "gain": ((n, actions), np.float32),
            "observation": ((steps, n, states), np.float32),
            "action": ((steps, n, actions), np.float32),
            "reached": ((steps, n, states), np.float32),
            "reward": ((steps, n), np.float32),
            "outcome": ((steps, n), np.int8),
        }
        self._shapes = shapes
        self.arrays, self.size = laid_out(memory, shapes)

    @classmethod
    def of(cls, network: Network, steps: int, num_envs: int, dims: tuple[int, int], *, noisy: bool) -> Stretch:
        """Not in memory yet: see `size`, then `put`."""
        weights = {name: list(array.shape) for name, array in network.weights.items()}
        return cls({"steps": [steps, num_envs], "dims": list(dims), "weights": weights, "activation": network.activation,
                    "gates": network.gates and {"about": network.gates.about, "names": network.gates.names}, "noisy": noisy})

    def put(self, memory: Any, network: Network, noise: Array | None, gain: Array | None) -> None:
        """Take this memory, with the network, its noise and its gain in it."""
        self.arrays, _ = laid_out(memory, self._shapes)
        for name, array in network.weights.items():
            self.arrays[name][:] = array
        if noise is not None:
            self.arrays["noise"][:] = noise
        self.arrays["gain"][:] = 1.0 if gain is None else gain

    def network(self) -> Network:
        gates = self.about["gates"]
        return Network({name: self.arrays[name] for name in self.about["weights"]}, self.about["activation"],
                       gates and Gates.read(gates["about"], gates["names"]))

    def played(self, current: Array) -> Played:
        """What happened, as a copy."""
        a = self.arrays
        terminated, truncated, success = endings(a["outcome"])
        return Played(a["observation"].copy(), a["action"].copy(), a["reached"].copy(), a["reward"].copy(), terminated, truncated,
                      success, current.copy())


class LocalEnv:
    """Environments of this process; `rows` of the batch, one after the other, are theirs."""

    def __init__(self, envs: Sequence[PickPlaceAvoidEnv], batch: Batch, rows: Sequence[int]) -> None:
        self.num_envs = len(envs)
        self._envs, self._batch, self._rows = dict(zip(rows, envs, strict=True)), batch, rows
        self._in_order = list(envs)
        self._slice = slice(rows[0], rows[-1] + 1)
        self._rngs: dict[int, np.random.Generator] = {}
        self._agenda: dict[int, list[int]] = {}

    def reset(self, seed: int) -> Array:
        self._agenda.clear()
        for row in self._rows:
            self._begin(row, np.random.default_rng((seed, row)))
        return self._batch.observation.copy()

    def begin(self, agenda: Sequence[Sequence[int]]) -> Array:
        """As `RepeatingEnv.begin`."""
        for row in self._rows:
            first, *self._agenda[row] = agenda[row]
            self._begin(row, np.random.default_rng(first))
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
        b, rows = self._batch, self._slice
        b.reward[rows], b.outcome[rows], b.reached[rows], b.observation[rows] = self._decide(b.action[rows])

    def _decide(self, actions: Array) -> tuple[list[float], list[int], Array, Array]:
        """One decision of all: rewards, outcomes, what they led to, and what is seen next, where an episode ended of the next."""
        envs = self._in_order
        rewards, codes, ended = [], [], []
        for i, (reward, outcome) in enumerate(decide_all(envs, actions.tolist())):
            rewards.append(reward)
            codes.append(RUNNING if outcome is None else OUTCOMES.index(outcome))
            if outcome is not None:
                ended.append(i)
        seen = reached = np.array([env.observe() for env in envs], np.float32)
        if ended:
            seen = reached.copy()
        for i in ended:
            row = self._rows[i]
            if following := self._agenda.get(row):
                self._rngs[row] = np.random.default_rng(following.pop(0))
            envs[i].start(self._rngs[row])
            seen[i] = envs[i].observe()
        return rewards, codes, reached, seen

    def play(self, network: Network, steps: int, noise: Array | None = None, gain: Array | None = None) -> Played:
        """As `PlayingEnv.play`."""
        dims = self._batch.observation.shape[1], self._batch.action.shape[1]
        stretch = Stretch.of(network, steps, self.num_envs, dims, noisy=noise is not None)
        stretch.put(bytearray(stretch.size), network, noise, gain)
        self.play_out(stretch)
        return stretch.played(self._batch.observation)

    def play_out(self, stretch: Stretch) -> None:
        """The environments of this process, all of them at each step."""
        network, noisy, rows = stretch.network(), stretch.about["noisy"], self._slice
        mine = {name: array[:, rows] for name, array in stretch.arrays.items() if name in STEPWISE}
        gain = stretch.arrays["gain"][rows]
        seen = self._batch.observation[rows].copy()
        steps = []  # put into the shared memory at the end: between two steps of the engine little code costs least
        for noise in mine["noise"]:
            action = network.one_by_one(seen)
            if noisy:
                action = np.minimum(np.maximum(np.tanh(gain * action + noise), -BOUND), BOUND)
            else:
                action = np.tanh(action)
            before, (reward, outcome, reached, seen) = seen, self._decide(action)
            steps.append((before, action, reached, reward, outcome))
        for name, values in zip(("observation", "action", "reached", "reward", "outcome"), zip(*steps, strict=True), strict=True):
            mine[name][:] = values
        self._batch.observation[rows] = seen

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

    A worker reads commands from a pipe and answers through another (`bullet.worker`). When this process ends, in whatever
    way, the pipe closes and the worker ends too.
    """

    def __init__(self, task: Panda, num_envs: int, workers: int) -> None:
        self.num_envs = num_envs
        dims = num_envs, task.spec.observation_dim, task.spec.action_dim
        self._file, self._stretches = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (no name: nothing stays behind)
        self._file.truncate(Batch.size(*dims))
        self._dims = dims[1:]
        shared = self._file.fileno(), self._stretches.fileno()
        self._batch = Batch(*dims, mmap.mmap(self._file.fileno(), 0))
        self._rows = [list(map(int, rows)) for rows in np.array_split(np.arange(num_envs), workers)]
        about = {"task": [type(task).__module__, type(task).__qualname__], "config": to_dict(task.config),
                 "played_under": to_dict(task.played_under), "dims": dims,
                 "memory": shared[0], "stretches": shared[1]}
        self._workers = [
            subprocess.Popen([sys.executable, "-m", "cail_sim.bullet.worker", json.dumps({**about, "rows": rows})],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=shared,
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

    def begin(self, agenda: Sequence[Sequence[int]]) -> Array:
        """As `RepeatingEnv.begin`."""
        self._all(f"begin {json.dumps([list(seeds) for seeds in agenda])}")
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

    def play(self, network: Network, steps: int, noise: Array | None = None, gain: Array | None = None) -> Played:
        """As `PlayingEnv.play`; the workers meet only at the end."""
        stretch = Stretch.of(network, steps, self.num_envs, self._dims, noisy=noise is not None)
        self._stretches.truncate(stretch.size)
        with contextlib.closing(mmap.mmap(self._stretches.fileno(), 0)) as memory:
            stretch.put(memory, network, noise, gain)
            self._all(f"play {json.dumps(stretch.about)}")
            played = stretch.played(self._batch.observation)
            stretch.arrays.clear()  # they hold the memory
        return played

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
        self._stretches.close()

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
