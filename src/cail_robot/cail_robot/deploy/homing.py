"""The way back to the start of an episode, for arms that `reset` leaves where they are: up, across, down."""

from __future__ import annotations

import math

from cail_core.recording.sync import Vector
from cail_robot.deploy.config import DeployConfig
from cail_robot.safety.limits import Limits

REACHED_M = 0.01
"""A point on the way counts as reached."""


class WayHome:
    """Straight lines from where the tool is to `home`."""

    def __init__(self, tool: Vector, home: Vector, limits: Limits, config: DeployConfig) -> None:
        top = limits.ceiling[2] - limits.workspace_margin_m
        across = max(tool[2], min(top, home[2] + config.home_rise_m))
        self._points: list[Vector] = [(tool[0], tool[1], across), (home[0], home[1], across), home]
        self._speed = min(config.home_speed, limits.max_linear_speed)

    def twist(self, tool: Vector) -> Vector | None:
        """What to command at this place; None at home."""
        while self._points:
            left = [goal - at for goal, at in zip(self._points[0], tool, strict=True)]
            away = math.hypot(*left)
            if away >= REACHED_M:
                speed = min(self._speed, 2.0 * away)
                return (*(speed * d / away for d in left), 0.0, 0.0, 0.0)
            self._points.pop(0)
        return None
