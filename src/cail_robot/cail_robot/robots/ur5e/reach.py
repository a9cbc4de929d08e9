"""How much of a workspace box a UR5e reaches with the tool pointing down: what it does not reach is said when it starts."""

from __future__ import annotations

from itertools import product

from cail_robot.robots.ur5e import kinematics as ur
from cail_robot.safety.limits import Limits

PLACES = 7
"""Along each axis of the box."""


def unreachable(limits: Limits, tool: tuple[float, ...]) -> float:
    """The share of the box's places that no posture reaches with the tool straight down."""
    down = ur.vector_from_rotation(ur.forward(ur.HOME).rotation)
    axes = [[low + (high - low) * (i + 0.5) / PLACES for i in range(PLACES)]
            for low, high in zip(limits.floor, limits.ceiling, strict=True)]  # fmt: skip
    missed = sum(ur.inverse((*place, *down), ur.HOME, tool) is None for place in product(*axes))
    return missed / PLACES**3
