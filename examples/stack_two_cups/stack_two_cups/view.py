"""What the task is, as an arm's topics show it: what a policy sees, what a step costs, how an episode ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cail_core.config import setting
from cail_core.recording.sync import ArmSample, Vector
from cail_core.recording.topics import POSE

NEEDS = {"cup_1": POSE, "cup_2": POSE}
"""Topics beside the arm's own: in a lab a tracker publishes them, here `tracker.py`."""
OBSERVATION_NAMES = (
    "tool_x", "tool_y", "tool_z",
    "cup_1_from_tool_x", "cup_1_from_tool_y", "cup_1_from_tool_z",
    "cup_2_from_cup_1_x", "cup_2_from_cup_1_y", "cup_2_from_cup_1_z",
    "gripper",
)  # fmt: skip
"""Metres; the gripper from 0 closed to 1 open."""
ACTION_NAMES = ("velocity_x", "velocity_y", "velocity_z", "gripper")
STACKED_M = 0.04
"""The first cup's base stands this far above the second's when it sticks in it."""
NEAR_M = 0.02
LIFTED_M = 0.03


@dataclass(frozen=True)
class CupsConfig:
    """`config/stack-two-cups.yaml`."""

    max_speed: float = setting(0.25, "what an action of 1 means, m/s along each axis", low=0.01, high=1.0)
    max_steps: int = setting(300, "decisions until an episode has taken too long", low=1)
    cup_1: list[list[float]] = setting([[0.45, 0.55], [-0.15, -0.05]], "where the first cup starts: ranges of x and y, m")
    cup_2: list[list[float]] = setting([[0.45, 0.55], [0.05, 0.15]], "where the second cup stands: ranges of x and y, m")


class CupsView:
    """One episode after another. Recorder, policy and environments all see the task through this."""

    def __init__(self, config: CupsConfig, rate: int) -> None:
        self._speed, self._rate = config.max_speed, rate
        self._lifted = False

    def begin(self, sample: ArmSample) -> None:
        self._lifted = False

    def observe(self, sample: ArmSample) -> Sequence[float]:
        tool, one, two = sample.pose[:3], sample.things["cup_1"][:3], sample.things["cup_2"][:3]
        return [*tool, *_difference(one, tool), *_difference(two, one), sample.gripper]

    def advance(self, sample: ArmSample, executed: Vector) -> tuple[float, str | None]:
        """A step costs the distance that is left, and how fast it went."""
        one, two = sample.things["cup_1"], sample.things["cup_2"]
        self._lifted = self._lifted or one[2] > LIFTED_M
        above = (two[0], two[1], two[2] + STACKED_M)
        left = math.dist(one[:3], above)
        reward = -(math.dist(sample.pose[:3], one[:3]) + left + 0.1 * math.hypot(*executed[:3])) / self._rate
        if sample.gripper < 0.5 or not self._lifted:
            return reward, None
        if left < NEAR_M:
            return reward, "success"
        return reward, "dropped" if one[2] < 0.005 else None

    def action(self, twist: Vector, sample: ArmSample) -> Sequence[float]:
        """What a person's twist is as an action; `twist` and `gripper` turned around."""
        closing = sample.gripper_cmd is not None and sample.gripper_cmd < 0.5
        return [*(v / self._speed for v in twist[:3]), -1.0 if closing else 1.0]

    def twist(self, action: Sequence[float]) -> Vector:
        x, y, z = (self._speed * min(1.0, max(-1.0, float(a))) for a in action[:3])
        return x, y, z, 0.0, 0.0, 0.0

    def gripper(self, sample: ArmSample, action: Sequence[float]) -> float | None:
        return 0.0 if action[3] < 0.0 else 1.0


def _difference(a: Vector, b: Vector) -> list[float]:
    return [p - q for p, q in zip(a, b, strict=True)]
