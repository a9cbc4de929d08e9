"""Settings of the UR5e: `config/ur5e.yaml`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cail_core.config import setting
from cail_core.errors import ConfigError, listed
from cail_robot.robots.ur5e.reach import unreachable
from cail_robot.safety.limits import Limits

LONGEST_TOOL_M = 0.6
"""A tool point or a centre of gravity further from the flange is a number in centimetres or millimetres."""


def _vector(name: str, given: tuple[float, ...], most: tuple[float, ...]) -> list[str]:
    if len(given) != len(most):
        return [f"{name}: expected {len(most)} numbers, given {len(given)}"]
    return [f"{name}[{i}]: expected a finite number within ±{limit:.3g} (m, rad), given {value:g}"
            for i, (value, limit) in enumerate(zip(given, most, strict=True)) if not abs(value) <= limit]  # fmt: skip


@dataclass(frozen=True)
class UR5eLimits(Limits):
    """The filter's limits with a UR5e's own defaults, which a file that names only some limits keeps.

    Joints: data sheet of the UR5e, ±360° and 180 °/s; a little less, so that the filter acts before the box does. Decelerations:
    UR's manuals give measured stops of category 0 from 183 °/s, fully stretched, 5 kg (UR5, manual 3.4.5, A.1; the UR5e's has
    graphs only): base 244 ms, shoulder 530 ms, elbow 164 ms, so 13, 6 and 19 rad/s². In nine of ten places of the default box
    2.5 m/s² at the tool ask for at most 6.2 rad/s² of the shoulder. `kinematics.JOINT_DECELERATION` is the simulated box's.
    """

    linear_deceleration: float = setting(2.5, "of stops, m/s^2: what a UR5e's joints can do", low=0.01, high=100.0)
    angular_deceleration: float = setting(5.0, "of stops, rad/s^2", low=0.01, high=200.0)
    max_tilt_rad: float = setting(0.35, "how far the tool's axis may lean from straight down, rad", low=0.0, high=3.14)
    keep_out: tuple[tuple[float, ...], ...] = setting(
        ((-0.15, -0.15, -0.1, 0.15, 0.15, 0.5),), "boxes the tool point never enters; the first is the arm's own base"
    )
    joint_low: tuple[float, ...] = setting((-6.2,) * 6, "least joint angles, rad")
    joint_high: tuple[float, ...] = setting((6.2,) * 6, "greatest joint angles, rad")
    max_joint_speed: tuple[float, ...] = setting((2.0,) * 6, "joint speeds through the Jacobian, rad/s")


@dataclass(frozen=True)
class GripperConfig:
    """What hangs on the flange."""

    kind: str = setting(
        "robotiq", "robotiq: a 2F with its URCap; digital: a digital output; none", choices=("robotiq", "digital", "none")
    )
    port: int = setting(63352, "robotiq: TCP port of the URCap", low=1, high=65535)
    speed: int = setting(255, "robotiq: 0 … 255, 20 … 150 mm/s", low=0, high=255)
    force: int = setting(100, "robotiq: 0 … 255", low=0, high=255)
    output: int = setting(0, "digital: 0-7 standard, 8-15 configurable, 16-17 tool", low=0, high=17)
    high_closes: bool = setting(True, "digital: whether a high output closes")
    travel_s: float = setting(0.6, "digital: how long opening and closing take, s", low=0.0, high=10.0)


@dataclass(frozen=True)
class UR5eConfig:
    """A UR5e over RTDE."""

    robot_ip: str = setting("192.168.1.10", "address of the control box, or of `cail ursim`")
    tool_offset: tuple[float, ...] = setting(
        (0.0, 0.0, 0.16, 0.0, 0.0, 0.0), "tool point in the flange: x, y, z, rotation vector (m, rad)"
    )
    payload_kg: float = setting(0.95, "mass on the flange, gripper included", low=0.0, high=5.0)
    payload_cog_m: tuple[float, ...] = setting((0.0, 0.0, 0.06), "its centre of gravity in the flange, m")
    acceleration: float = setting(
        5.0, "of speedL, m/s^2 and rad/s^2: at least the filter's decelerations, which then decide", low=0.1, high=50.0
    )
    watchdog_hz: float = setting(20.0, "the box stops the program if no command comes for 1/this", low=5.0, high=100.0)
    command_timeout_s: float = setting(0.08, "the RTDE loop stops if the node is silent for so long", low=0.01, high=0.5)
    link_timeout_s: float = setting(0.1, "states whose time stands still for so long: the link is dead", low=0.02, high=2.0)
    connect_timeout_s: float = setting(10.0, "for everything from the first packet to the running program", low=1.0, high=60.0)
    min_speed_fraction: float = setting(
        1.0,
        "motion only with the pendant's speed slider at this or above: below, speeds are not those commanded",
        low=0.0,
        high=1.0,
    )
    realtime_priority: int = setting(30, "SCHED_FIFO priority of the RTDE loop where permitted; 0: none", low=0, high=90)
    gripper: GripperConfig = setting(GripperConfig, "the gripper")
    limits: UR5eLimits = setting(UR5eLimits, "of the safety filter in front of the arm")

    def __post_init__(self) -> None:
        faults = [
            *_vector("tool_offset", self.tool_offset, (LONGEST_TOOL_M,) * 3 + (2 * math.pi,) * 3),
            *_vector("payload_cog_m", self.payload_cog_m, (LONGEST_TOOL_M,) * 3),
            *self.limit_faults(self.limits),
        ]
        if faults:
            raise ConfigError(listed("ur5e", faults))

    def limit_faults(self, limits: Limits) -> list[str]:
        """Where limits of the filter contradict what the box is told: it would brake later than the filter reckons."""
        return [
            f"{name}: expected at most speedL's acceleration {self.acceleration:g}, given {given:g}: the box would brake later"
            " than the filter reckons, and leave the workspace"
            for name in ("linear_deceleration", "angular_deceleration")
            if (given := getattr(limits, name)) > self.acceleration
        ]

    def text(self, source: str) -> str:
        """What acts, for the start's log and for `status`: the file, the tool, what hangs on it, the gripper."""
        x, y, z, *turn = self.tool_offset
        turned = f" turned by {', '.join(f'{v:g}' for v in turn)} rad" if any(turn) else ""
        missed = unreachable(self.limits, self.tool_offset)
        reach = f"; {missed:.0%} of the workspace cannot be reached with the tool down: the arm stops before it" if missed else ""
        return (
            f"settings {source or 'of the program'}: tool {x:g}, {y:g}, {z:g} m from the flange{turned}, {self.payload_kg:g} kg,"
            f" gripper {self.gripper.kind}, box {self.robot_ip}{reach}"
        )
