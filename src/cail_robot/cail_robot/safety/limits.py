"""What the safety filter keeps an arm within, and whether that makes sense."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from cail_core.config import build, find_config, merged, read_yaml, setting
from cail_core.errors import ConfigError, listed
from cail_robot.arm import Vector

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """`config/limits.yaml`, on which every robot's file is laid. No value is safe by itself: that, the risk assessment says."""

    max_linear_speed: float = setting(
        0.25, "norm of the tool's velocity, m/s", low=0.001, high=3.0
    )
    max_angular_speed: float = setting(0.5, "norm of the tool's angular velocity, rad/s", low=0.001, high=6.3)
    max_linear_acceleration: float = setting(2.5, "of commanded motion, m/s^2", low=0.01, high=100.0)
    max_angular_acceleration: float = setting(5.0, "of commanded motion, rad/s^2", low=0.01, high=200.0)
    max_linear_jerk: float = setting(50.0, "of commanded motion, m/s^3", low=0.1, high=1e5)
    max_angular_jerk: float = setting(100.0, "of commanded motion, rad/s^3", low=0.1, high=1e5)
    linear_deceleration: float = setting(12.5, "of stops, m/s^2; stops are not held up by the jerk limit", low=0.01, high=100.0)
    angular_deceleration: float = setting(25.0, "of stops, rad/s^2", low=0.01, high=200.0)

    stale_after_s: float = setting(
        0.08, "without a new command the arm ramps to rest after this: at 0.25 m/s it rests within 0.12 s", low=0.01, high=0.5
    )
    max_stamp_age_s: float = setting(0.1, "a command whose stamp is older is refused", low=0.005, high=0.5)
    max_future_s: float = setting(0.02, "a command whose stamp is further ahead is refused: clocks disagree", low=0.0, high=0.5)

    disable_after_s: float = setting(
        10.0, "enabled without any command for this long, motion needs a new `enable`: a commander has gone", low=0.5, high=3600.0
    )

    workspace_low: tuple[float, ...] = setting((0.2, -0.35, 0.02), "least x, y, z of the tool point in the base frame, m")
    workspace_high: tuple[float, ...] = setting((0.8, 0.35, 0.6), "greatest x, y, z of the tool point, m")
    workspace_margin_m: float = setting(0.05, "slow-down on the way out begins this far from a side", low=0.001, high=0.5)
    table_height_m: float = setting(0.0, "the tool point never goes below this plane, m", low=-2.0, high=2.0)
    keep_out: tuple[tuple[float, ...], ...] = setting(
        (), "boxes the tool point never enters: least x, y, z, greatest x, y, z, m"
    )

    max_tilt_rad: float = setting(
        0.0, "how far the tool's axis may lean from straight down, rad; 0: not checked", low=0.0, high=3.14
    )

    joint_low: tuple[float, ...] = setting((), "least joint angles, rad; empty: not checked")
    joint_high: tuple[float, ...] = setting((), "greatest joint angles, rad; empty: not checked")
    joint_margin_rad: float = setting(0.1, "slow-down towards a joint limit begins this far from it", low=0.001, high=1.0)
    max_joint_speed: tuple[float, ...] = setting((), "joint speeds through the Jacobian, rad/s; empty: not checked")
    singularity_slow_at: float = setting(
        17.0, "condition number of the Jacobian where slow-down begins (MoveIt Servo's); 0: not checked", low=0.0, high=1e6
    )
    singularity_slowest_at: float = setting(30.0, "condition number where the slow-down is complete", low=0.0, high=1e6)
    singularity_speed: float = setting(0.1, "share of the speed left there, so that one can drive out", low=0.01, high=1.0)

    def __post_init__(self) -> None:
        if faults := self.faults():
            raise ConfigError(listed("limits", faults))

    def faults(self) -> list[str]:
        """Everything that is wrong with these limits."""
        found = []
        for field in fields(self):
            value, low, high = getattr(self, field.name), field.metadata["low"], field.metadata["high"]
            if isinstance(value, tuple):
                numbers = [n for item in value for n in (item if isinstance(item, tuple) else (item,))]
                if not all(isinstance(n, (int, float)) and math.isfinite(n) for n in numbers):
                    found.append(f"{field.name}: expected finite numbers, given {value}")
            elif not (math.isfinite(value) and low <= value <= high):
                found.append(f"{field.name}: expected {low:g} … {high:g}, given {value!r}")
        low, high = self.workspace_low, self.workspace_high
        if len(low) != 3 or len(high) != 3:
            found.append(f"workspace_low, workspace_high: expected x, y, z each, given {len(low)} and {len(high)} numbers")
        return found or self._contradictions()

    def _contradictions(self) -> list[str]:
        found = []
        for axis, least, greatest in zip("xyz", self.floor, self.workspace_high, strict=True):
            if not greatest - least > 2 * self.workspace_margin_m:
                found.append(
                    f"workspace: {axis} from {least:g} to {greatest:g} m is not wider than two margins"
                    f" (workspace_margin_m {self.workspace_margin_m:g}); widen it or lessen the margin"
                )
        room = self.max_linear_speed**2 / (2 * self.linear_deceleration)
        if self.workspace_margin_m < room:
            found.append(
                f"workspace_margin_m: expected at least the braking distance max_linear_speed²/(2 linear_deceleration)"
                f" = {room:.3g} m, given {self.workspace_margin_m:g}"
            )
        for name in ("linear", "angular"):
            ramp, brake = getattr(self, f"max_{name}_acceleration"), getattr(self, f"{name}_deceleration")
            if brake < ramp:
                found.append(f"{name}_deceleration: expected at least max_{name}_acceleration {ramp:g}, given {brake:g}")
        for i, box in enumerate(self.keep_out):
            if len(box) != 6 or not all(box[k] < box[k + 3] for k in range(3)):
                found.append(f"keep_out[{i}]: expected least x, y, z, then greater x, y, z, given {box}")
        joints = {len(limit) for limit in (self.joint_low, self.joint_high, self.max_joint_speed) if limit}
        if len(joints) > 1:
            found.append("joint_low, joint_high, max_joint_speed: expected one number per joint in each that is given")
        if bool(self.joint_low) != bool(self.joint_high):
            found.append("joint_low, joint_high: expected both or neither")
        elif any(not b - a > 2 * self.joint_margin_rad for a, b in zip(self.joint_low, self.joint_high, strict=False)):
            found.append("joint_low, joint_high: expected more than two margins (joint_margin_rad) between them")
        if any(not speed > 0 for speed in self.max_joint_speed):
            found.append(f"max_joint_speed: expected speeds above 0, given {self.max_joint_speed}")
        if self.singularity_slow_at and not self.singularity_slowest_at > self.singularity_slow_at:
            found.append("singularity_slowest_at: expected more than singularity_slow_at")
        return found

    def text(self) -> str:
        """What is in force, for a log: a limit that somebody meant to change shows here that it has not."""
        room = ", ".join(f"{axis} {a:g} … {b:g}" for axis, a, b in zip("xyz", self.floor, self.ceiling, strict=True))
        boxes = f", {len(self.keep_out)} keep-out boxes" if self.keep_out else ""
        return (
            f"limits in force: {self.max_linear_speed:g} m/s, {self.max_angular_speed:g} rad/s,"
            f" {self.max_linear_acceleration:g} m/s², stale after {self.stale_after_s:g} s, tool within {room} m{boxes}"
        )

    @cached_property
    def floor(self) -> Vector:
        """Least x, y, z: the workspace's, and the table's height."""
        x, y, z = self.workspace_low
        return x, y, max(z, self.table_height_m)

    @cached_property
    def ceiling(self) -> Vector:
        """Greatest x, y, z."""
        x, y, z = self.workspace_high
        return x, y, z


def load_limits(file: str | None = None) -> Limits:
    """The installed `limits.yaml`, with what `file` changes in it."""
    paths = [find_config("limits"), *([find_config(file)] if file else [])]
    return build(Limits, _together(paths), ", ".join(map(str, paths)))


def load_with_limits(cls: type[T], path: Path, limits_file: str | None = None, of: str | None = None) -> T:
    """A robot's settings with a section `limits`, in layers: `limits.yaml`, the installed file of the robot (`of`), this file,
    `limits_file`.

    So limits stand once: whoever lowers one in `limits.yaml` lowers it for every robot whose own file does not name it, and a
    lab's file or `limits_file` that names a few keeps all others of the robot.
    """
    values: Any = read_yaml(path) or {}
    if not isinstance(values, dict):
        return build(cls, values, str(path))
    base = find_config("limits")
    layers = read_yaml(base) or {}
    if of is not None and (own := find_config(of)) != path:
        layers = merged(layers, (read_yaml(own) or {}).get("limits") or {})
    layers = merged(layers, values.get("limits") or {})
    over = [find_config(limits_file)] if limits_file else []
    layers = merged(layers, _together([file for file in over if file != base]))
    return build(cls, {**values, "limits": layers}, ", ".join(map(str, [path, base, *over])))


def _together(paths: list[Path]) -> Any:
    values: Any = {}
    for path in paths:
        values = merged(values, read_yaml(path) or {})
    return values


def paced(limits: Limits, speed: float, acceleration: float = 1.0) -> Limits:
    """Limits under which the same commands, times `speed`, lead along the same path, slower.

    What takes 1/s times as long has s times the velocity, s² times the acceleration and s³ times the jerk. Braking stays as
    strong as it is. `acceleration` is a factor of its own, for arms that speed up more or less than others.
    """
    if speed == acceleration == 1.0:
        return limits
    most = acceleration * speed**2 * limits.max_linear_acceleration
    return replace(limits, max_linear_speed=speed * limits.max_linear_speed, max_linear_acceleration=most,
                   max_linear_jerk=acceleration * speed**3 * limits.max_linear_jerk,
                   linear_deceleration=max(limits.linear_deceleration, most))
