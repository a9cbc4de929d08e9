"""What hangs on the control box: an arm and a gripper. Here the plainest one, which goes exactly where it is told."""

from __future__ import annotations

from typing import Protocol

from cail_robot.robots.ur5e.kinematics import HOME, Vector

STROKE_S = 0.57
"""A 2F-85 gripper's 85 mm at its full 150 mm/s."""


class Plant(Protocol):
    """An arm with a gripper that follows the box's targets, one call per 2 ms cycle."""

    q: Vector
    qd: Vector
    opening: float
    """Of the gripper: 0 closed … 1 open."""
    holding: bool
    """Whether something keeps the fingers from closing."""

    def drive(self, q: Vector, qd: Vector, dt: float) -> None:
        """One cycle towards the target."""

    def move_gripper(self, opening: float, speed: float) -> None:
        """Set out for an opening at a fraction of the full speed."""

    def collision(self) -> str | None:
        """What the arm runs into, if it does: the box stops protectively."""

    def things(self) -> dict[str, list[float]]:
        """What stands on the table: x, y, z and orientation x, y, z, w of each by name."""

    def put_back(self, seed: int) -> None:
        """Put the things to a start of the task; the arm stays."""

    def close(self) -> None: ...


class KinematicArm:
    """Joints that are where the target is. Nothing to grip, nothing to hit."""

    holding = False

    def __init__(self, q: Vector = HOME) -> None:
        self.q = q
        self.qd: Vector = (0.0,) * 6
        self.opening = 1.0
        self._wanted = 1.0
        self._speed = 1.0

    def drive(self, q: Vector, qd: Vector, dt: float) -> None:
        self.q, self.qd = q, qd
        step = dt / STROKE_S * self._speed
        self.opening += min(max(self._wanted - self.opening, -step), step)

    def move_gripper(self, opening: float, speed: float) -> None:
        self._wanted, self._speed = opening, speed

    def collision(self) -> str | None:
        return None

    def things(self) -> dict[str, list[float]]:
        return {}

    def put_back(self, seed: int) -> None:
        pass

    def close(self) -> None:
        pass
