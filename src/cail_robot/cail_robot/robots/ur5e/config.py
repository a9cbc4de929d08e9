"""Settings of the UR5e: `config/ur5e.yaml`."""

from __future__ import annotations

from dataclasses import dataclass

from cail_core.config import setting
from cail_core.errors import ConfigError, listed
from cail_robot.safety.limits import Limits


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
        25.0, "of speedL, m/s^2 and rad/s^2: above the filter's decelerations, which then decide", low=0.1, high=50.0
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
    limits: Limits = setting(Limits, "of the safety filter in front of the arm")

    def __post_init__(self) -> None:
        faults = []
        if len(self.tool_offset) != 6:
            faults.append(f"tool_offset: expected 6 numbers, given {len(self.tool_offset)}")
        if len(self.payload_cog_m) != 3:
            faults.append(f"payload_cog_m: expected 3 numbers, given {len(self.payload_cog_m)}")
        if faults:
            raise ConfigError(listed("ur5e", faults))

    def text(self, source: str) -> str:
        """What acts, for the start's log and for `status`: the file, the tool, what hangs on it, the gripper."""
        x, y, z, *turn = self.tool_offset
        turned = f" turned by {', '.join(f'{v:g}' for v in turn)} rad" if any(turn) else ""
        return (
            f"settings {source or 'of the program'}: tool {x:g}, {y:g}, {z:g} m from the flange{turned}, {self.payload_kg:g} kg,"
            f" gripper {self.gripper.kind}, box {self.robot_ip}"
        )
