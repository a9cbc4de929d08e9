"""How far the tool may lean: a cone about the direction in which it shall point.

The box knows the tool point alone. A tool that leans keeps that point above the table while the gripper beside it does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cail_robot.arm import Quaternion, Vector
from cail_robot.safety.limits import Limits

DOWN: Vector = (0.0, 0.0, -1.0)
"""Where the tool's z axis shall point, in the base frame."""
MARGIN = 0.5
"""Slow-down towards the greatest tilt begins at this share of it."""
GAP_RAD = 1e-6


def tool_axis(orientation: Sequence[float]) -> Vector:
    """The tool's z axis in the base frame."""
    x, y, z, w = orientation
    return 2.0 * (x * z + w * y), 2.0 * (y * z - w * x), 1.0 - 2.0 * (x * x + y * y)


def tilt_of(orientation: Sequence[float]) -> float:
    """The angle between the tool's z axis and straight down, rad."""
    a = tool_axis(orientation)
    return math.atan2(math.hypot(a[0], a[1]), -a[2])


def upright_turn(orientation: Sequence[float]) -> Vector:
    """The unit axis about which the tool turns back towards straight down; nothing where it points there."""
    a = tool_axis(orientation)
    x, y = -a[1], a[0]  # a × DOWN
    size = math.hypot(x, y)
    if size < 1e-9:
        return (0.0, 0.0, 0.0) if a[2] < 0.0 else (1.0, 0.0, 0.0)
    return x / size, y / size, 0.0


def slowed_at_tilt(w: Vector, orientation: Quaternion, limits: Limits) -> Vector:
    """The turning that leans the tool further falls with the angle that is left; turning it back stays as it is."""
    tilt, n = tilt_of(orientation), upright_turn(orientation)
    leans = -(w[0] * n[0] + w[1] * n[1] + w[2] * n[2])
    margin = MARGIN * limits.max_tilt_rad
    left = limits.max_tilt_rad - tilt - GAP_RAD
    most = limits.max_angular_speed / margin * max(0.0, left)
    if left >= margin or leans <= most:
        return w
    k = leans - most
    return w[0] + k * n[0], w[1] + k * n[1], w[2] + k * n[2]


def may_brake_upright(w: Vector, orientation: Quaternion, limits: Limits, dt: float) -> bool:
    """Whether turning with `w` for one period and then braking ends within the cone; from outside it, whether it leads back."""
    speed = math.sqrt(w[0] * w[0] + w[1] * w[1] + w[2] * w[2])
    n = upright_turn(orientation)
    leans = -(w[0] * n[0] + w[1] * n[1] + w[2] * n[2])
    if speed == 0.0 or leans <= 0.0:
        return True
    # A turn of an angle leans the tool by at most that angle.
    reach = dt + 0.5 * speed / limits.angular_deceleration
    return tilt_of(orientation) + leans * reach <= limits.max_tilt_rad
