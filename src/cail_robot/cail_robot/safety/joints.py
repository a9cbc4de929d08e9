"""What the joints allow of a tool's twist: their speeds, their angles, and the distance to a singularity."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cail_robot.arm import ArmState, Twist
from cail_robot.safety.limits import Limits

LEAST_SIGMA = 1e-9
"""Singular values of the Jacobian count as at least this: in a singularity joint speeds are huge, not infinite."""
ROOM = 1.2
"""How the least singular value s tells the way left to a singularity: to a stretched elbow roughly s² metres, to others more."""
LEAST_SHARE = 1e-3
"""Of a twist so little is nothing: in a singularity no tool velocity is left, a person turns the joints at the pendant."""


class Inverse(NamedTuple):
    """Of a Jacobian."""

    matrix: NDArray[np.float64]
    """Joints x 6."""
    condition: float
    sigma: float
    """The least singular value."""


def inverted(jacobian: NDArray[np.float64]) -> Inverse:
    """The inverse of a Jacobian.

    Not damped: an arm that is told a tool velocity moves its joints by the true inverse, so a damped one would say that all is
    well exactly where they are fastest.
    """
    left, sigma, right = np.linalg.svd(jacobian, full_matrices=False)
    sigma = np.maximum(sigma, LEAST_SIGMA)
    return Inverse(np.asarray((right.T / sigma) @ left.T), float(sigma[0] / sigma[-1]), float(sigma[-1]))


def _room_scale(twist: Twist, sigma: float, limits: Limits) -> float:
    """The share of the twist from which the arm could still brake before the singularity, whichever way it goes."""
    v, w = math.hypot(*twist[:3]), math.hypot(*twist[3:])
    most_v, most_w = (ROOM * sigma * math.sqrt(a) for a in (limits.linear_deceleration, limits.angular_deceleration))
    return min(1.0, most_v / v if v > most_v else 1.0, most_w / w if w > most_w else 1.0)


def joint_scale(
    twist: Twist, state: ArmState, inverse: Inverse, limits: Limits
) -> tuple[float, str, str]:
    """The share of the twist that the joints and the distance to a singularity allow, which verdict that is, and why."""
    scale, verdict, text, condition = 1.0, "passed", "", inverse.condition
    if limits.singularity_slow_at and condition > limits.singularity_slow_at:
        share = (condition - limits.singularity_slow_at) / (limits.singularity_slowest_at - limits.singularity_slow_at)
        scale = 1.0 - (1.0 - limits.singularity_speed) * min(1.0, share)
        verdict, text = "singularity", f"slowed near a singularity (condition number {condition:.0f})"
    if not (limits.max_joint_speed or limits.joint_high):
        return scale, verdict, text
    if (room := _room_scale(twist, inverse.sigma, limits)) < scale:
        scale, verdict = room, "singularity"
        text = f"slowed near a singularity (condition number {condition:.0f})"
    for i, speed in enumerate((inverse.matrix @ twist).tolist()):
        most = _allowed(i, speed, state.q, limits)
        if abs(speed) * scale > most:
            scale = most / abs(speed)
            near = f", near a singularity (condition number {condition:.0f})" if verdict == "singularity" else ""
            verdict, text = "joints", f"joint {i + 1} at its limit of speed or angle{near}"
    if scale < LEAST_SHARE and condition > limits.singularity_slowest_at:
        return 0.0, "singularity", "in a singularity: turn the joints out of it at the pendant"
    return scale, verdict, text


def _allowed(i: int, speed: float, q: tuple[float, ...], limits: Limits) -> float:
    most = limits.max_joint_speed[i] if limits.max_joint_speed else math.inf
    if limits.joint_high:
        left = limits.joint_high[i] - q[i] if speed > 0 else q[i] - limits.joint_low[i]
        if left < limits.joint_margin_rad:
            top = most if most < math.inf else 1.0
            most = top * max(0.0, left) / limits.joint_margin_rad
    return most


def joints_allow(twist: Twist, state: ArmState, inverse: Inverse, limits: Limits) -> bool:
    """Whether the motion that is left after smoothing keeps the joint limits too."""
    if not (limits.max_joint_speed or limits.joint_high):
        return True
    if _room_scale(twist, inverse.sigma, limits) < 0.95:
        return False
    speeds = (inverse.matrix @ twist).tolist()
    return all(abs(s) <= _allowed(i, s, state.q, limits) * (1 + 1e-9) + 1e-9 for i, s in enumerate(speeds))
