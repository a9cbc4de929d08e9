"""Poses and twists as plain tuples, as the arm's topics and a control loop of 500 Hz need them. Metres, radians, REP 103."""

from __future__ import annotations

from collections.abc import Sequence

Vector3 = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]
"""x, y, z, w."""
Twist = tuple[float, float, float, float, float, float]
"""vx, vy, vz, wx, wy, wz."""

STILL: Twist = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def position(pose: Sequence[float]) -> Vector3:
    """Of a pose x, y, z and the quaternion x, y, z, w."""
    return pose[0], pose[1], pose[2]


def up_axis(turned: Sequence[float]) -> Vector3:
    """The z axis of a frame that is turned by a quaternion; of a pose: `up_axis(pose[3:])`."""
    x, y, z, w = turned
    return 2.0 * (x * z + w * y), 2.0 * (y * z - w * x), 1.0 - 2.0 * (x * x + y * y)
