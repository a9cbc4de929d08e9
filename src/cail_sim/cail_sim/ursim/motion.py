"""How the arm gets from one cycle to the next: speed, servo, move and stop, each true to its acceleration.

A motion gives the next joint angles. The box scales its time: 1 at full speed, the speed slider's fraction below, 0 while a
program is paused; the scale itself changes no faster than the joints can brake.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from cail_robot.robots.ur5e import kinematics as ur
from cail_robot.robots.ur5e.kinematics import Vector

CYCLE_S = 0.002
JOINT_ACCELERATION = 40.0
"""rad/s², what servoing may ask of a joint."""
STOP_DECELERATION = min(ur.JOINT_DECELERATION)
"""rad/s² of the fastest joint, when the program ends or the box stops the arm: what the slowest to stop can do."""
TOOL_SPEED_LIMIT = 1.5
"""m/s, as the safety configuration comes from the factory."""
TURN_SPEED_LIMIT = 2.0 * math.pi


class Violation(Exception):
    """The motion asks for what the arm cannot or must not do: a protective stop, with this reason."""


class Motion(Protocol):
    scaled: bool
    """Whether slider and pause act on it. A stop runs to its end whatever they say."""

    def step(self, q: Vector, dt: float) -> Vector:
        """Joint angles dt later."""

    @property
    def done(self) -> bool: ...


class Speed:
    """speedl and speedj: reach the target speed with the acceleration, then keep it until told otherwise.

    As in the control program, a new target is taken when the running call returns: with time 0 when the target speed is reached,
    else after `time`.
    """

    scaled = True
    done = False

    def __init__(self, q: Vector, qd: Vector, tool: Vector, *, linear: bool) -> None:
        self.linear = linear
        self.tool = tool
        self.now: Vector = ur.twist_of(ur.jacobian_columns(q, tool)[1], qd) if linear else qd
        self._next: tuple[Vector, float, float] | None = None
        self._target: Vector = self.now
        self._acceleration = 0.0
        self._left_s = 0.0
        self._timed = False
        self._qd = qd

    def aim(self, target: Vector, acceleration: float, time_s: float) -> None:
        self._next = (target, acceleration, time_s)

    def step(self, q: Vector, dt: float) -> Vector:
        returned = self._left_s <= 0.5 * CYCLE_S if self._timed else self.now == self._target
        if returned and self._next is not None:
            self._target, self._acceleration, self._left_s = self._next
            self._timed = self._left_s > 0.0
        self._left_s -= dt
        self.now = _towards(self.now, self._target, self._acceleration * dt, self.linear)
        if not self.linear:
            return _moved(q, self.now, dt)
        _, columns = ur.jacobian_columns(q, self.tool)
        wanted = ur.joint_speeds(columns, self.now, damping=1e-12)
        for joint, speed in enumerate(wanted, start=1):
            if abs(speed) > ur.JOINT_SPEED_LIMIT:
                raise Violation(f"speedL asks for {speed:.3g} rad/s of joint {joint}: near a singularity, or too fast")
        # Joints have mass: of a change of speed they do what they can, all in proportion, so that the tool keeps its direction.
        changes = [(abs(b - a), most) for a, b, most in zip(self._qd, wanted, ur.JOINT_DECELERATION, strict=True)]
        part = min([1.0, *(most * dt / change for change, most in changes if change > 0.0)])
        self._qd = tuple(a + part * (b - a) for a, b in zip(self._qd, wanted, strict=True))
        return _moved(q, self._qd, dt)


def _towards(now: Vector, target: Vector, step: float, linear: bool) -> Vector:
    """One straight step towards the target. For a tool speed, `step` bounds the translation and the rotation alike."""
    change = tuple(b - a for a, b in zip(now, target, strict=True))
    if linear:
        size = max(math.hypot(*change[:3]), math.hypot(*change[3:]))
    else:
        size = max(map(abs, change))
    if size <= step:
        return target
    return tuple(a + c * step / size for a, c in zip(now, change, strict=True))


class Servo:
    """servoj: follow a joint target, smoothed by the look-ahead time, within the joints' speed and acceleration."""

    scaled = True
    done = False

    def __init__(self, qd: Vector) -> None:
        self._qd = qd
        self._target: Vector | None = None
        self._lookahead_s = 0.1
        self._stiffness = 1.0

    def aim(self, target: Vector, lookahead_s: float, gain: float) -> None:
        self._target = target
        self._lookahead_s = min(max(lookahead_s, 0.03), 0.2)
        self._stiffness = min(max(gain, 100.0), 2000.0) / 300.0

    def step(self, q: Vector, dt: float) -> Vector:
        if self._target is None or dt == 0.0:
            return q
        speeds = []
        for angle, speed, target in zip(q, self._qd, self._target, strict=True):
            error = target - angle
            brake = math.sqrt(2.0 * JOINT_ACCELERATION * abs(error))
            wanted = min(abs(error) * self._stiffness / self._lookahead_s, 0.8 * brake, ur.JOINT_SPEED_LIMIT, abs(error) / dt)
            change = math.copysign(wanted, error) - speed
            limit = JOINT_ACCELERATION * dt
            speeds.append(speed + min(max(change, -limit), limit))
        self._qd = tuple(speeds)
        return _moved(q, self._qd, dt)


class Ramp:
    """Distance along a path of length `length`: up with the acceleration, at the speed, down with the acceleration."""

    def __init__(self, length: float, speed: float, acceleration: float) -> None:
        self.length = length
        self._a = acceleration
        self._v = min(speed, math.sqrt(length * acceleration)) if length > 0 else speed
        self._t_up = self._v / acceleration
        self._t_flat = max(0.0, (length - self._v * self._t_up) / self._v) if length > 0 else 0.0
        self.duration_s = 2.0 * self._t_up + self._t_flat if length > 0 else 0.0

    def at(self, t: float) -> float:
        if t >= self.duration_s:
            return self.length
        if t < self._t_up:
            return 0.5 * self._a * t * t
        if t < self._t_up + self._t_flat:
            return self._v * (t - 0.5 * self._t_up)
        left = self.duration_s - t
        return self.length - 0.5 * self._a * left * left


class MoveJ:
    """A straight line in joint space; speed and acceleration are those of the joint with the longest way."""

    scaled = True

    def __init__(self, q: Vector, target: Vector, speed: float, acceleration: float) -> None:
        _positive(speed, acceleration)
        self._start, self._change = q, tuple(b - a for a, b in zip(q, target, strict=True))
        self._longest = max(map(abs, self._change))
        self._ramp = Ramp(self._longest, min(speed, ur.JOINT_SPEED_LIMIT), min(acceleration, JOINT_ACCELERATION))
        self._t = 0.0

    def step(self, q: Vector, dt: float) -> Vector:
        self._t += dt
        part = self._ramp.at(self._t) / self._longest if self._longest else 1.0
        return tuple(a + part * c for a, c in zip(self._start, self._change, strict=True))

    @property
    def done(self) -> bool:
        return self._t >= self._ramp.duration_s


class MoveL:
    """A straight line of the tool, its rotation about one axis alongside."""

    scaled = True

    def __init__(self, q: Vector, target: Sequence[float], speed: float, acceleration: float, tool: Vector) -> None:
        _positive(speed, acceleration)
        if ur.inverse(target, q, tool) is None:
            raise Violation("moveL to a pose that the arm cannot reach")
        self._start = ur.pose_of(ur.forward(q, tool))
        self._rotation = ur.rotation_from_vector(*self._start[3:6])
        self._change, angle = ur.wrapped_difference(target, self._start)
        self._tool = tool
        # The longer of way and turn leads; a turn of 1 rad counts as 1 m, with the same numbers as speed and acceleration.
        self._length = max(math.hypot(*self._change[:3]), angle)
        self._ramp = Ramp(self._length, min(speed, TOOL_SPEED_LIMIT), acceleration)
        self._t = 0.0

    def step(self, q: Vector, dt: float) -> Vector:
        self._t += dt
        if dt == 0.0:
            return q
        part = self._ramp.at(self._t) / self._length if self._length else 1.0
        x, y, z, rx, ry, rz = (part * c for c in self._change)
        turned = ur.multiply(ur.rotation_from_vector(rx, ry, rz), self._rotation)
        origin = (self._start[0] + x, self._start[1] + y, self._start[2] + z)
        found = ur.inverse((*origin, *ur.vector_from_rotation(turned)), q, self._tool)
        if found is None:
            raise Violation("moveL through a place that the arm cannot reach")
        return found

    @property
    def done(self) -> bool:
        return self._t >= self._ramp.duration_s


class Stop:
    """stopl and stopj: from the present speed to rest along the same direction."""

    scaled = False

    def __init__(self, q: Vector, qd: Vector, deceleration: float, tool: Vector, *, linear: bool) -> None:
        self._linear, self._tool = linear, tool
        self._from = ur.twist_of(ur.jacobian_columns(q, tool)[1], qd) if linear else qd
        size = max(math.hypot(*self._from[:3]), math.hypot(*self._from[3:])) if linear else max(map(abs, qd))
        self._part = 1.0 if size > 0.0 else 0.0
        rate = deceleration if math.isfinite(deceleration) and deceleration > 0.01 else 0.01
        self._loss_per_s = rate / size if size > 0.0 else 0.0

    def step(self, q: Vector, dt: float) -> Vector:
        self._part = max(0.0, self._part - self._loss_per_s * dt)
        now = tuple(self._part * v for v in self._from)
        return _moved(q, ur.joint_speeds(ur.jacobian_columns(q, self._tool)[1], now) if self._linear else now, dt)

    @property
    def done(self) -> bool:
        return self._part == 0.0


def _moved(q: Vector, qd: Sequence[float], dt: float) -> Vector:
    return tuple(a + v * dt for a, v in zip(q, qd, strict=True))


def _positive(speed: float, acceleration: float) -> None:
    if not (speed > 0.0 and acceleration > 0.0):
        raise Violation(f"a move with speed {speed} and acceleration {acceleration}")
