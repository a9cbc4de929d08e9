"""What a policy is shown of the scene, and what the reflex makes of it, where that is not just what is there now."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np

from cail_core.tasks.pick_place_avoid import PickPlaceAvoid, PickPlaceAvoidConfig, Scene, Vec
from cail_core.tasks.variation import Conditions


class Eyes:
    """One episode as it is seen: the tool beside its place, the things with a tracker's noise, bias, lean and age.

    What a policy observes and the gripper's reflex go by this, as they would on an arm.
    """

    def __init__(self, config: PickPlaceAvoidConfig, conditions: Conditions, rng: np.random.Generator) -> None:
        self._task = PickPlaceAvoid(config, sys.maxsize)
        self._config, self._conditions, self._rng = config, conditions, rng
        self._offset = _somewhere(conditions.grasp_offset_m, rng)
        self._bias = [_somewhere(conditions.bias_m, rng) for _ in range(3)]
        turn = 2 * math.pi * rng.random()
        self._lean = conditions.lean * math.cos(turn), conditions.lean * math.sin(turn)

    def begin(self, scene: Scene, *, closing: bool) -> None:
        self._age_s = 0.0
        self._tracked = self._track(scene)
        self._scene = self._seen(scene)
        self._task.begin(self._scene, closing=closing)

    def look(self, scene: Scene, ticks: int) -> None:
        """So many ticks later."""
        self._age_s += ticks / self._config.ticks_per_s
        if self._age_s >= self._conditions.tracker_s - 1e-9:
            self._age_s = 0.0
            self._tracked = self._track(scene)
        self._scene = self._seen(scene)
        self._task.advance(self._scene, (0.0, 0.0, 0.0), ticks)

    def observe(self) -> list[float]:
        return self._task.observe(self._scene)

    def gripper(self, wish: float | None) -> bool:
        return self._task.gripper(self._scene, wish)

    def _track(self, scene: Scene) -> Scene:
        """Where the tracker sees the things."""
        noise = self._conditions.noise_m * self._rng.standard_normal((3, 3)) if self._conditions.noise_m else np.zeros((3, 3))
        bottle, obstacle, target = (
            _moved(at, bias, shake) for at, bias, shake in zip((scene.bottle, scene.obstacle, scene.target), self._bias,
                                                               noise.tolist(), strict=True))
        x, y = scene.bottle_up[0] + self._lean[0], scene.bottle_up[1] + self._lean[1]
        up = (x, y, math.sqrt(max(0.0, 1.0 - x * x - y * y)))
        return replace(scene, bottle=bottle, obstacle=obstacle, target=target, bottle_up=up)

    def _seen(self, scene: Scene) -> Scene:
        """The things as last tracked, the arm as it says of itself now."""
        return replace(self._tracked, tool=_moved(scene.tool, self._offset, (0.0, 0.0, 0.0)), opening=scene.opening)


def _somewhere(distance: float, rng: np.random.Generator) -> Vec:
    """A step of this length in a direction that is drawn evenly."""
    x, y, z = rng.standard_normal(3).tolist()
    scale = distance / max(math.sqrt(x * x + y * y + z * z), 1e-9)
    return x * scale, y * scale, z * scale


def _moved(at: Vec, by: Vec, shake: list[float] | Vec) -> Vec:
    return at[0] + by[0] + shake[0], at[1] + by[1] + shake[1], at[2] + by[2] + shake[2]
