"""Pick-place-avoid as the arm's topics show it: the task of `task`, without a time limit.

A person may take as long as they need; the gripper does what they command.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace

from cail_core.errors import BadInput
from cail_core.geometry import position, up_axis
from cail_core.recording.sync import ArmSample, Vector
from cail_core.recording.topics import POSE
from cail_core.tasks.pick_place_avoid.task import PickPlaceAvoid, PickPlaceAvoidConfig, Scene

NEEDS = dict.fromkeys(("object_pose", "obstacle_pose", "target_pose"), POSE)


class PickPlaceAvoidView:
    """`bottle`, `obstacle` and `target` come from `object_pose`, `obstacle_pose` and `target_pose`."""

    def __init__(self, config: PickPlaceAvoidConfig, rate: int, *, grasped: bool, explicit_gripper: bool) -> None:
        if config.ticks_per_s % rate:
            raise BadInput(f"expected a rate that divides the task's {config.ticks_per_s} ticks a second, given {rate}")
        self._task = PickPlaceAvoid(replace(config, ticks_per_decision=config.ticks_per_s // rate), sys.maxsize)
        self._full_speed, self._grasped, self._explicit = config.max_speed, grasped, explicit_gripper

    def begin(self, moment: ArmSample) -> None:
        self._task.begin(self._scene(moment), closing=self._closing(moment))

    def observe(self, moment: ArmSample) -> Sequence[float]:
        return self._task.observe(self._scene(moment))

    def advance(self, moment: ArmSample, executed: Vector) -> tuple[float, str | None]:
        scene = self._scene(moment)
        self._task.gripper(scene, -1.0 if self._closing(moment) else 1.0)
        reward, outcome = self._task.advance(scene, (executed[0], executed[1], executed[2]))
        return reward, None if outcome is None else outcome.value

    def action(self, twist: Vector, moment: ArmSample) -> Sequence[float]:
        gripper = [-1.0 if self._closing(moment) else 1.0] if self._explicit else []
        return [v / self._full_speed for v in twist[:3]] + gripper

    def twist(self, action: Sequence[float]) -> Vector:
        x, y, z = (min(1.0, max(-1.0, float(a))) * self._full_speed for a in action[:3])
        k = min(1.0, self._full_speed / max(math.sqrt(x * x + y * y + z * z), 1e-9))  # the norm is cut, the direction kept
        return k * x, k * y, k * z, 0.0, 0.0, 0.0

    def gripper(self, moment: ArmSample, action: Sequence[float]) -> float:
        """As the action says, else by the reflex that the policy was trained with."""
        return 0.0 if self._task.gripper(self._scene(moment), float(action[3]) if self._explicit else None) else 1.0

    def _closing(self, moment: ArmSample) -> bool:
        return self._grasped if moment.gripper_cmd is None else moment.gripper_cmd < 0.5

    def _scene(self, moment: ArmSample) -> Scene:
        bottle, obstacle, target = (moment.things[name] for name in NEEDS)
        return Scene(
            position(moment.pose), position(bottle), up_axis(bottle[3:]), position(obstacle), up_axis(obstacle[3:]),
            position(target), moment.gripper,
        )  # fmt: skip
