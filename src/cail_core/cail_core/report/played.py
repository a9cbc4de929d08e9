"""Episodes that the policy and its references play for the report, kept in `RUN/evaluation.json` so that they are played once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cail_core import __version__, durable
from cail_core.evaluation import Evaluation, evaluate, references
from cail_core.policy import Network
from cail_core.report.motion import motion_of, thinned
from cail_core.tasks.base import Array, BatchEnv, Flags, PlayingEnv, Policy, Step, Task
from cail_core.tasks.base import Played as PlayedSteps

EVALUATION = "evaluation.json"
PATHS_KEPT = 60


@dataclass(frozen=True)
class Played:
    """One entry per episode; `paths` of the first ones only. Positions in m, speeds in m/s."""

    returns: list[float]
    lengths: list[int]
    success: list[bool]
    top_speed: list[float]
    closest: list[float]
    paths: list[list[list[float]]]

    @property
    def evaluation(self) -> Evaluation:
        return Evaluation(np.array(self.returns), np.array(self.lengths, dtype=np.int64), np.array(self.success, dtype=np.bool_))


class _Recording:
    """A task whose environments keep what they showed, episode by episode."""

    def __init__(self, task: Task) -> None:
        self.spec, self.mixes, self._task = task.spec, task.mixes, task
        self.env: _RecordingEnv

    def make_env(self, num_envs: int) -> BatchEnv:
        env = self._task.make_env(num_envs)
        self.env = _PlayingRecordingEnv(env) if isinstance(env, PlayingEnv) else _RecordingEnv(env)
        return self.env


class _RecordingEnv:
    def __init__(self, env: BatchEnv) -> None:
        self._env = env
        self.num_envs = env.num_envs
        self._shown: list[Array] = []
        self._reached: list[Array] = []
        self._ended: list[Flags] = []

    def reset(self, seed: int) -> Array:
        self._shown.append(self._env.reset(seed))
        return self._shown[0]

    def step(self, action: Array) -> Step:
        step = self._env.step(action)
        self._reached.append(step.next_observation)
        self._ended.append(step.terminated | step.truncated)
        self._shown.append(step.observation)
        return step

    def close(self) -> None:
        self._env.close()

    def episodes(self, count: int) -> list[NDArray[np.float32]]:
        """The states of `count` episodes in the order in which `evaluate` gives them: each environment's first ones."""
        shown, reached, ended = np.stack(self._shown), np.stack(self._reached), np.stack(self._ended)
        made = []
        for env in range(self.num_envs):
            share = count // self.num_envs + (env < count % self.num_envs)
            start = 0
            for end in np.flatnonzero(ended[:, env])[:share]:
                made.append(np.concatenate([shown[start : end + 1, env], reached[end : end + 1, env]]))
                start = end + 1
        return made


class _PlayingRecordingEnv(_RecordingEnv):
    """With environments that act on their own for many steps."""

    _env: PlayingEnv

    def play(self, network: Network, steps: int, noise: Array | None = None, gain: Array | None = None) -> PlayedSteps:
        played = self._env.play(network, steps, noise, gain)
        self._reached += list(played.next_observation)
        self._ended += list(played.terminated | played.truncated)
        self._shown += [*played.observation[1:], played.current]
        return played


def play(task: Task, policy: Policy, episodes: int, seed: int) -> Played:
    """Let a policy play and keep what a report shows of it."""
    recording = _Recording(task)
    result = evaluate(recording, policy, episodes, seed)
    motions = [motion_of(task.spec, states) for states in recording.env.episodes(episodes)]
    moved = [motion for motion in motions if motion is not None]
    return Played(
        result.returns.tolist(), result.lengths.tolist(), result.success.tolist(),
        top_speed=[motion.top_speed for motion in moved],
        closest=[motion.closest for motion in moved if motion.closest is not None],
        paths=[np.round(thinned(motion.path)[0], 4).tolist() for motion in moved[:PATHS_KEPT]],
    )


def play_for(run: Path, task: Task, policy: Policy, episodes: int, seed: int, *, with_references: bool) -> dict[str, Played]:
    """The episodes of the policy in `run` ("policy") and of the references, from its folder where they were played before."""
    weights = hashlib.sha256((run / "policy" / "policy.safetensors").read_bytes()).hexdigest()[:16]
    key = {"policy": weights, "episodes": episodes, "seed": seed, "cail": __version__}
    held = _read(run / EVALUATION, key)
    players: dict[str, tuple[Policy, int]] = {"policy": (policy, episodes)}
    if with_references:
        players |= {name: (one, max(1, episodes // 4)) for name, one in references(task, seed).items()}
    played = {name: held[name] if name in held else play(task, one, n, seed) for name, (one, n) in players.items()}
    if not set(played) <= set(held):
        content = {"key": key, "played": {name: asdict(one) for name, one in {**held, **played}.items()}}
        durable.write_bytes(run / EVALUATION, json.dumps(content).encode())
    return played


def _read(path: Path, key: dict[str, Any]) -> dict[str, Played]:
    """What the file holds of this very policy; an unreadable file is as good as none, since it can be made again."""
    try:
        content = json.loads(path.read_bytes())
        return {name: Played(**one) for name, one in content["played"].items()} if content["key"] == key else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
