"""A task smaller than the Panda that can be played under other conditions, and a policy for it made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from cail_core.policy import PolicyCard
from cail_core.tasks.base import Array, BatchEnv, Demonstrator, Sensor, Step, TaskSpec
from cail_core.tasks.variation import NOTHING, Conditions, Variation

GOAL_WITHIN, STEPS = 0.1, 12


class StoppingEnv:
    """Runs along a line towards 0 and must be within 0.1 of it at the end. A decision comes a step later for
    each 0.1 s of delay, a tracker's bias moves what is seen. A second entry, `grip`, means nothing: it is 0."""

    def __init__(self, num_envs: int, variation: Variation) -> None:
        self.num_envs, self._variation = num_envs, variation
        self._rngs: list[np.random.Generator] = []

    def reset(self, seed: int) -> Array:
        self._rngs = [np.random.default_rng((seed, i)) for i in range(self.num_envs)]
        return self._start()

    def _start(self) -> Array:
        self._t = 0
        self._x = np.array([rng.uniform(0.5, 1.0) for rng in self._rngs])
        self._drawn = [self._variation.draw(rng) if self._variation != NOTHING else Conditions() for rng in self._rngs]
        self._waiting: list[Array] = [np.zeros(self.num_envs, np.float32)] * 20
        return self._seen()

    def _seen(self) -> Array:
        bias = [c.bias_m for c in self._drawn]
        return np.stack([self._x + bias, np.zeros(self.num_envs)], axis=1).astype(np.float32)

    def step(self, action: Array) -> Step:
        self._waiting.append(np.clip(action[:, 0], -1, 1))
        late = [round(c.delay_s / 0.1) for c in self._drawn]
        self._x = self._x + 0.2 * np.array([self._waiting[-1 - n][i] for i, n in enumerate(late)])
        self._t += 1
        over = np.full(self.num_envs, self._t == STEPS)
        success = over & (np.abs(self._x) < GOAL_WITHIN)
        reached = self._seen()
        following = self._start() if over[0] else reached
        return Step(following, reached, -np.abs(reached[:, 0]), over, np.zeros_like(over), success)

    def close(self) -> None:
        """Nothing to release."""


class Stopping:
    """A task that is `Varied`: delay of up to 0.2 s, which is two decisions, and a tracker's bias of up to 4 cm."""

    spec = TaskSpec("stopping", "Stop at 0.", "line", 10, STEPS, ("x", "grip"), ("velocity",), has_success=True,
                    sensors=(Sensor("tracker", "m", 0.04, {"x": 1.0}), Sensor("grasp", "m", 0.002, {"grip": 1.0})))
    variation = Variation(delay_s=(0.0, 0.2), bias_m=(0.0, 0.04))

    def __init__(self, played_under: Variation = NOTHING) -> None:
        self.played_under = played_under
        self.made = 0

    def under(self, variation: Variation) -> Stopping:
        self.made += 1
        return Stopping(variation)

    def make_env(self, num_envs: int) -> BatchEnv:
        return StoppingEnv(num_envs, self.played_under)

    def mixes(self) -> dict[str, Sequence[tuple[Demonstrator, float]]]:
        return {}


class Plain(Stopping):
    """The same without ranges."""

    variation = NOTHING


def write_policy(folder: Path, gain: float = 2.0, by_grip: float = 0.0, **changes: Any) -> Path:
    """Steers to 0 by `x`, and by what `grip` says if it is told to."""
    spec = Stopping.spec
    about = PolicyCard("stopping", "hand", list(spec.observation_names), list(spec.action_names), spec.action_scale, spec.fps)
    folder.mkdir(parents=True)
    (folder / "policy.json").write_text(json.dumps({**asdict(about), **changes}))
    (folder / "README.md").write_text("# Policy\n\nStops.\n\n## Where it comes from\n\nBy hand.\n")
    save_file({"observation_mean": np.zeros(2, np.float32), "observation_scale": np.ones(2, np.float32),
               "layer0.weight": np.array([[-gain, by_grip]], np.float32), "layer0.bias": np.zeros(1, np.float32)},
              folder / "policy.safetensors")
    return folder
