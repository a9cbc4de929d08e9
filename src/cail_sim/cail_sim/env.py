"""One environment of pick-place-avoid: a world, an arm, the task, and the safety filter that every action passes.

The filter is the one that stands in front of a real arm, called once for each decision.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cail_core.tasks.pick_place_avoid import Outcome, PickPlaceAvoid, PickPlaceAvoidConfig, Scene, Vec
from cail_robot.arm import STILL, ArmState
from cail_robot.limits import Limits
from cail_robot.safety import SafetyFilter
from cail_sim.arm import ArmModel
from cail_sim.world import Start, World, WorldConfig, advance_all, spread


class PickPlaceAvoidEnv:
    """Steps one world. `start` begins an episode drawn from a generator, `decide` executes one action."""

    def __init__(self, model: ArmModel, world: WorldConfig, task: PickPlaceAvoidConfig, limits: Limits, max_ticks: int, *,
                 grasped: bool, explicit_gripper: bool, visible: bool = False, window: bool = False) -> None:
        self.world = World(model, world, task, visible=visible, window=window)
        self.task = PickPlaceAvoid(task, max_ticks)
        self.filter = SafetyFilter(limits, task.decision_s)
        self._speed, self._grasped, self._explicit = task.max_speed, grasped, explicit_gripper
        self.scene: Scene = self.start(np.random.default_rng(0))

    def start(self, rng: np.random.Generator) -> Scene:
        """Begin an episode; what it is like depends on the next seven draws of `rng` alone."""
        return self.start_at(spread(self.world.config, rng.random(7).tolist(), grasped=self._grasped))

    def start_at(self, start: Start) -> Scene:
        """Begin an episode there."""
        self.scene = self.world.begin(start)
        self.filter.reset()
        self.task.begin(self.scene, closing=self._grasped)
        return self.scene

    def observe(self) -> list[float]:
        return self.task.observe(self.scene)

    def decide(self, action: list[float]) -> tuple[float, Outcome | None]:
        """Execute an action in [-1, 1] for one decision: its reward, and how the episode ended, if it did."""
        return decide_all([self], [action])[0]

    def _permitted(self, action: list[float]) -> tuple[Vec, bool]:
        """What the filter lets through of an action, in m/s, and whether the gripper closes."""
        closing = self.task.gripper(self.scene, action[3] if self._explicit else None)
        speed = self._speed
        twist = (_unit(action[0]) * speed, _unit(action[1]) * speed, _unit(action[2]) * speed, 0.0, 0.0, 0.0)
        return self.filter.step(twist, self._state()).motion.linear, closing

    def close(self) -> None:
        self.world.close()

    def _state(self) -> ArmState:
        """What the filter looks at. The joints' own limits are kept by the arm (`SimArm.drive`), so no Jacobian is given."""
        arm = self.world.arm
        return ArmState(0.0, arm.tool, arm.orientation, STILL, arm.q, (), arm.opening)


def _unit(value: float) -> float:
    """Cut to [-1, 1]; what is not a number stays so, and the filter refuses it."""
    return 1.0 if value > 1.0 else -1.0 if value < -1.0 else value


def decide_all(envs: Sequence[PickPlaceAvoidEnv], actions: Sequence[list[float]]) -> list[tuple[float, Outcome | None]]:
    """`PickPlaceAvoidEnv.decide` in environments of the same settings, with the same result as one by one, and faster."""
    velocities, closing = zip(*(env._permitted(action) for env, action in zip(envs, actions, strict=True)), strict=True)
    advance_all([env.world for env in envs], velocities, closing)
    for env in envs:
        env.scene = env.world.scene()
    return [env.task.advance(env.scene, executed) for env, executed in zip(envs, velocities, strict=True)]
