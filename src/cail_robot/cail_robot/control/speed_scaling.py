"""A policy on a slower arm: the same path, in more time.

A policy learned what an arm does with its commands, its lag included: at half the speed and the same acceleration an arm lags
less and cuts the corner that the policy relied on being wider. So its commands are slowed down in time as a whole: s times the
velocity, with s² times the acceleration and s³ times the jerk that it was trained with (`limits.paced`).
"""

from __future__ import annotations

import math

from cail_core.recording.sync import Vector
from cail_robot.arm import Vector as Velocity
from cail_robot.safety.filter import approach

REST: Velocity = (0.0, 0.0, 0.0)


class Slower:
    """Turns a policy's wish (m/s as trained) into what a slower arm is asked for, decision by decision."""

    def __init__(self, share: float, speed: float, acceleration: float, jerk: float, period_s: float) -> None:
        """`share` of the trained `speed` (m/s), which was reached with this acceleration and jerk."""
        self.share, self._top, self._period = share, share * speed, period_s
        self._acceleration, self._jerk = share**2 * acceleration, share**3 * jerk
        self._shapes = share < 1.0 and acceleration > 0.0 and jerk > 0.0
        self._v, self._a = REST, REST

    def begin(self, velocity: Velocity = REST) -> None:
        """Somebody else commanded until now, and the arm moves like this."""
        self._v, self._a = velocity, REST

    def twist(self, wish: Vector) -> Vector:
        """The next command; what turns is only scaled."""
        x, y, z, *turning = wish
        norm = math.sqrt(x * x + y * y + z * z) * self.share
        k = self.share * (self._top / norm if norm > self._top else 1.0)
        target = (k * x, k * y, k * z)
        if not self._shapes or not math.isfinite(norm):
            return *target, *(self.share * w for w in turning)
        self._v, self._a = approach(target, self._v, self._a, self._acceleration, self._jerk, self._top, self._period)
        return *self._v, *(self.share * w for w in turning)
