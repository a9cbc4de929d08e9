"""The way back to the start of an episode, for arms that `reset` leaves where they are: up, across, down, the tool upright."""

from __future__ import annotations

import math
from itertools import pairwise

from cail_core.recording.sync import Vector
from cail_robot.deploy.config import DeployConfig
from cail_robot.safety.filter import OUTSIDE_M
from cail_robot.safety.limits import Limits
from cail_robot.safety.tilt import tilt_of, upright_turn

REACHED_M = 0.01
"""A point on the way counts as reached."""
UPRIGHT_RAD = 0.03
"""A tool that leans by less points straight down."""
TURN_SPEED = 0.2
"""rad/s, of setting the tool upright."""
EVERY_M = 0.01
"""How finely a way is looked over."""


def _points(tool: Vector, home: Vector, limits: Limits, config: DeployConfig) -> list[Vector]:
    top = limits.ceiling[2] - limits.workspace_margin_m
    across = max(tool[2], min(top, home[2] + config.home_rise_m))
    return [(tool[0], tool[1], across), (home[0], home[1], across), home]


def leans(pose: Vector, limits: Limits) -> bool:
    """Whether the tool is to be set upright; where nothing limits its tilt, nobody asks."""
    return bool(limits.max_tilt_rad) and tilt_of(pose[3:7]) > UPRIGHT_RAD


def at_home(pose: Vector, home: Vector, limits: Limits, config: DeployConfig) -> bool:
    return math.dist(pose[:3], home) <= config.home_within_m and not leans(pose, limits)


def no_way_home(pose: Vector, home: Vector, limits: Limits, config: DeployConfig) -> str:
    """Why the arm does not go back by itself: it is outside of where it may be, or something is in between; else nothing."""
    tool = pose[:3]
    outside = [axis for axis, p, low, high in zip("xyz", tool, limits.floor, limits.ceiling, strict=True)
               if p < low - OUTSIDE_M or p > high + OUTSIDE_M]
    if outside:
        return f"the tool is outside its workspace along {', '.join(outside)}"
    if limits.max_tilt_rad and tilt_of(pose[3:7]) > limits.max_tilt_rad + UPRIGHT_RAD:
        leant, most = math.degrees(tilt_of(pose[3:7])), math.degrees(limits.max_tilt_rad)
        return f"the tool leans by {leant:.0f}°, at most {most:.0f}° are allowed"
    for a, b in pairwise([tool, *_points(tool, home, limits, config)]):
        steps = max(1, math.ceil(math.dist(a, b) / EVERY_M))
        for k in range(steps + 1):
            at = tuple(p + (q - p) * k / steps for p, q in zip(a, b, strict=True))
            for box in limits.keep_out:
                if all(box[i] < at[i] < box[i + 3] for i in range(3)):
                    return "a keep-out box is on the way back"
    return ""


class WayHome:
    """Straight lines from where the tool is to `home`."""

    def __init__(self, pose: Vector, home: Vector, limits: Limits, config: DeployConfig) -> None:
        self._points, self._limits = _points(pose[:3], home, limits, config), limits
        self._speed = min(config.home_speed, limits.max_linear_speed)

    def twist(self, pose: Vector) -> Vector | None:
        """What to command at this pose; None at home."""
        tool, turn = pose[:3], self._turn(pose)
        while self._points:
            left = [goal - at for goal, at in zip(self._points[0], tool, strict=True)]
            away = math.hypot(*left)
            if away >= REACHED_M:
                speed = min(self._speed, 2.0 * away)
                return (*(speed * d / away for d in left), *turn)
            self._points.pop(0)
        return (0.0, 0.0, 0.0, *turn) if any(turn) else None

    def _turn(self, pose: Vector) -> Vector:
        if not leans(pose, self._limits):
            return 0.0, 0.0, 0.0
        rate = min(TURN_SPEED, tilt_of(pose[3:7]), self._limits.max_angular_speed)
        return tuple(rate * n for n in upright_turn(pose[3:7]))
