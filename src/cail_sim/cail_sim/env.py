"""One environment of pick-place-avoid: a world, an arm, the task, and the limits that every action passes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cail_core.config import setting
from cail_core.tasks.pick_place_avoid import Outcome, PickPlaceAvoid, PickPlaceAvoidConfig, Scene, Vec
from cail_sim.arm import ArmModel
from cail_sim.world import World, WorldConfig, spread


@dataclass(frozen=True)
class SimLimits:
    """What the arm is allowed."""

    max_acceleration: float = setting(4.0, "of the commanded tool, m/s^2", low=0.1)
    workspace_low: tuple[float, ...] = setting((0.2, -0.35, 0.1), "least x, y, z of the tool, m")
    workspace_high: tuple[float, ...] = setting(
        (0.8, 0.35, 0.255), "greatest x, y, z of the tool, m: too low to lift the bottle over the obstacle"
    )


class PickPlaceAvoidEnv:
    """Steps one world. `start` begins an episode drawn from a generator, `decide` executes one action."""

    def __init__(self, model: ArmModel, world: WorldConfig, task: PickPlaceAvoidConfig, limits: SimLimits, max_ticks: int, *,
                 grasped: bool, explicit_gripper: bool, visible: bool = False, window: bool = False) -> None:
        self.world = World(model, world, task, visible=visible, window=window)
        self.task = PickPlaceAvoid(task, max_ticks)
        self._limits, self._grasped, self._explicit = limits, grasped, explicit_gripper
        self._velocity: Vec = (0.0, 0.0, 0.0)
        self.scene: Scene = self.start(np.random.default_rng(0))

    def start(self, rng: np.random.Generator) -> Scene:
        """Begin an episode; what it is like depends on the next seven draws of `rng` alone."""
        self.scene = self.world.begin(spread(self.world.config, rng.random(7).tolist(), grasped=self._grasped))
        self._velocity = (0.0, 0.0, 0.0)
        self.task.begin(self.scene, closing=self._grasped)
        return self.scene

    def observe(self) -> list[float]:
        return self.task.observe(self.scene)

    def decide(self, action: list[float]) -> tuple[float, Outcome | None]:
        """Execute an action in [-1, 1] for one decision: its reward, and how the episode ended, if it did."""
        closing = self.task.gripper(self.scene, action[3] if self._explicit else None)
        self._velocity = self._limited(action)
        self.world.advance(self._velocity, closing)
        self.scene = self.world.scene()
        return self.task.advance(self.scene, self._velocity)

    def close(self) -> None:
        self.world.close()

    def _limited(self, action: list[float]) -> Vec:
        c, limits, dt = self.task.config, self._limits, self.world.decision_s
        v = [min(1.0, max(-1.0, action[i])) * c.max_speed for i in (0, 1, 2)]
        norm = math.hypot(*v)
        if norm > c.max_speed:
            v = [x * c.max_speed / norm for x in v]
        change = [x - before for x, before in zip(v, self._velocity, strict=True)]
        most, size = limits.max_acceleration * dt, math.hypot(*change)
        if size > most:
            v = [before + x * most / size for x, before in zip(change, self._velocity, strict=True)]
        for i, at in enumerate(self.scene.tool):
            v[i] = min(max(v[i], min(0.0, limits.workspace_low[i] - at) / dt), max(0.0, limits.workspace_high[i] - at) / dt)
        return v[0], v[1], v[2]
