"""The safety filter in front of every arm: what is left of a requested twist once every limit is kept.

`limit` is a pure function, so that it can be property-tested; `SafetyFilter` remembers the previous command and counts.
The node and the in-process training environments use the same one.

How the box is kept: a twist is executed only if the arm, after moving with it for one period, could still brake to rest
inside the box (and outside every keep-out box) at `linear_deceleration`. Otherwise it brakes, which the check of the period
before has shown to be possible. The slow-down inside the margin makes that last resort rare. Braking is not held up by the
jerk limit; everything else is.

This is software on a normal computer: no safety-rated function. See docs/safety.md.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from typing import Any, NamedTuple

from cail_core.errors import ConfigError
from cail_robot.arm import STILL, ArmState, Twist, Vector
from cail_robot.safety.joints import inverted, joint_scale, joints_allow
from cail_robot.safety.limits import Limits
from cail_robot.safety.tilt import may_brake_upright, slowed_at_tilt

EDGE_M = 1e-9
"""Rounding errors of a whole braking stay below this, so the checks keep this far inside."""
GAP_M = 1e-6
"""The slow-down ends here, before the check: who slides along a side is not braked by it."""
OUTSIDE_M = 0.005
"""So far measuring and lag may put the tool point outside without more ado; further out only the straight way back is open."""


class Verdict(enum.Enum):
    """What the filter did to a command, from nothing to a stop."""

    PASSED = "passed"
    SMOOTHED = "smoothed"
    """Acceleration or jerk limit."""
    CLAMPED = "clamped"
    """Speed limit: the norm is cut, the direction kept."""
    SINGULARITY = "singularity"
    JOINTS = "joints"
    TILT = "tilt"
    WORKSPACE = "workspace"
    KEEP_OUT = "keep-out"
    BRAKED = "braked"
    """The requested motion would have left no room to brake."""
    OUT_OF_ORDER = "out of order"
    STALE = "stale"
    TOO_OLD = "too old"
    FROM_FUTURE = "from the future"
    NOT_FINITE = "not finite"
    WRONG_FRAME = "wrong frame"
    STOPPED = "stopped"
    """Motion is not permitted."""

    __hash__ = object.__hash__  # Enum's is Python code, and every command is counted


CLIPPED = frozenset(
    {Verdict.CLAMPED, Verdict.SINGULARITY, Verdict.JOINTS, Verdict.TILT, Verdict.WORKSPACE, Verdict.KEEP_OUT, Verdict.BRAKED}
)
REFUSED = frozenset({Verdict.OUT_OF_ORDER, Verdict.TOO_OLD, Verdict.FROM_FUTURE, Verdict.NOT_FINITE, Verdict.WRONG_FRAME})


class Motion(NamedTuple):
    """What was executed in the previous period: velocity and acceleration, linear and angular."""

    linear: Vector = (0.0, 0.0, 0.0)
    angular: Vector = (0.0, 0.0, 0.0)
    linear_acceleration: Vector = (0.0, 0.0, 0.0)
    angular_acceleration: Vector = (0.0, 0.0, 0.0)

    @property
    def twist(self) -> Twist:
        return (*self.linear, *self.angular)

    def at_rest(self) -> bool:
        return self.twist == STILL


REST = Motion()
_NOWHERE: Vector = (0.0, 0.0, 0.0)


class Outcome(NamedTuple):
    """What the filter let through, as `twist` and as the motion to remember, and what it did and why."""

    motion: Motion
    verdict: Verdict
    text: str

    @property
    def twist(self) -> Twist:
        return self.motion.twist


UNSTAMPED_S = 1e8
"""A stamp of zero is as old as this clock, some fifty years."""


def refuse(twist: Twist, frame: str, age_s: float, limits: Limits, base_frame: str) -> tuple[Verdict, str] | None:
    """Why a command is no command at all, or None. `age_s`: now − its stamp."""
    if not all(map(math.isfinite, twist)):
        return Verdict.NOT_FINITE, "the commanded twist has a value that is not finite"
    if frame != base_frame:
        return Verdict.WRONG_FRAME, f"the command is in frame '{frame}', expected '{base_frame}'"
    if age_s > UNSTAMPED_S:
        return Verdict.TOO_OLD, "the command has no stamp: header.stamp must be the time at which it is sent"
    if not age_s <= limits.max_stamp_age_s:  # also a NaN
        return Verdict.TOO_OLD, f"the command's stamp is {age_s:.3g} s old, expected at most {limits.max_stamp_age_s:g} s"
    if age_s < -limits.max_future_s:
        return Verdict.FROM_FUTURE, f"the command's stamp is {-age_s:.3g} s ahead of this clock; synchronise the clocks"
    return None


def limit(requested: Twist | None, state: ArmState, previous: Motion, limits: Limits, dt: float) -> Outcome:
    """The twist to execute in the next `dt` seconds; `requested` None brakes to rest.

    Norms of velocity, acceleration and jerk are kept, the integrated position stays in the workspace, joint angles and
    speeds are kept through the Jacobian where the state has one.
    """
    if requested is None:
        braked = _brake(previous, limits, dt)
        return Outcome(braked, Verdict.STOPPED, "at rest" if braked.at_rest() else "braking")
    vx, vy, vz, wx, wy, wz = requested
    if not math.isfinite(vx + vy + vz + wx + wy + wz):
        return Outcome(_brake(previous, limits, dt), Verdict.NOT_FINITE, "the requested twist has a value that is not finite")
    verdict, text = Verdict.PASSED, "as requested"

    linear, cut = _clamped((vx, vy, vz), limits.max_linear_speed)
    angular, turned = _clamped((wx, wy, wz), limits.max_angular_speed)
    if cut or turned:
        verdict = Verdict.CLAMPED
        text = f"{'linear' if cut else 'angular'} speed cut to {limits.max_linear_speed if cut else limits.max_angular_speed:g}"

    inverse = None
    if state.jacobian is not None:
        inverse = inverted(state.jacobian)
        scale, why, reason = joint_scale((*linear, *angular), state, inverse, limits)
        if scale < 1.0:
            linear = (linear[0] * scale, linear[1] * scale, linear[2] * scale)
            angular = (angular[0] * scale, angular[1] * scale, angular[2] * scale)
            verdict, text = Verdict(why), reason

    low, high = limits.floor, limits.ceiling
    if limits.max_tilt_rad:
        slowed = slowed_at_tilt(angular, state.orientation, limits)
        if slowed != angular:
            angular, verdict, text = slowed, Verdict.TILT, "slowed at the tool's greatest tilt"
    back = _way_back(state.position, limits)
    if back is not None:
        along = max(0.0, linear[0] * back[0] + linear[1] * back[1] + linear[2] * back[2])
        straight = (along * back[0], along * back[1], along * back[2])
        if not _alike(straight, linear):
            verdict, text = Verdict.WORKSPACE, "outside: only the straight way back is open"
        linear = straight
    slowed = _slowed_at_walls(linear, state.position, low, high, limits)
    if slowed != linear:
        linear, verdict, text = slowed, Verdict.WORKSPACE, "slowed at a side of the workspace"
    for box in limits.keep_out:
        slowed = _slowed_at_box(linear, state.position, box, limits)
        if slowed != linear:
            linear, verdict, text = slowed, Verdict.KEEP_OUT, "slowed at a keep-out box"

    v, a = approach(linear, previous.linear, previous.linear_acceleration, limits.max_linear_acceleration,
                     limits.max_linear_jerk, limits.max_linear_speed, dt)
    w, b = approach(angular, previous.angular, previous.angular_acceleration, limits.max_angular_acceleration,
                     limits.max_angular_jerk, limits.max_angular_speed, dt)
    if verdict is Verdict.PASSED and not (_alike(v, linear) and _alike(w, angular)):
        verdict, text = Verdict.SMOOTHED, "acceleration or jerk limited"
    motion = Motion(v, w, a, b)
    if (
        _leads_back(v, back)
        and _may_brake_inside(v, state.position, low, high, limits, dt)
        and (not limits.max_tilt_rad or may_brake_upright(w, state.orientation, limits, dt))
        and (inverse is None or joints_allow(motion.twist, state, inverse, limits))
    ):
        return Outcome(motion, verdict, text)
    return Outcome(_brake(previous, limits, dt), Verdict.BRAKED, "no room to brake after the requested motion")


def _norm(v: Vector) -> float:
    return math.sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2])


def _alike(v: Vector, u: Vector) -> bool:
    return abs(v[0] - u[0]) + abs(v[1] - u[1]) + abs(v[2] - u[2]) < 1e-6


def _clamped(v: Vector, most: float) -> tuple[Vector, bool]:
    greatest = max(abs(v[0]), abs(v[1]), abs(v[2]))
    if greatest <= 1e-12:
        return _NOWHERE, False
    n = greatest * _norm((v[0] / greatest, v[1] / greatest, v[2] / greatest))  # 1e300 squared would be infinite
    if n <= most:
        return v, False
    return (v[0] / n * most, v[1] / n * most, v[2] / n * most), True


def _ramped(start: float, step: float) -> float:
    """Σ_{k≥1} max(0, start − k·step): what is still to come of a quantity that falls by `step` each period."""
    n = math.floor(start / step)
    return n * start - step * n * (n + 1) / 2


def _brake(previous: Motion, limits: Limits, dt: float) -> Motion:
    v = _towards_rest(previous.linear, limits.linear_deceleration * dt)
    w = _towards_rest(previous.angular, limits.angular_deceleration * dt)
    return Motion(v, w)


def _towards_rest(v: Vector, by: float) -> Vector:
    n = _norm(v)
    if n <= by:
        return _NOWHERE
    left = 1.0 - by / n
    return v[0] * left, v[1] * left, v[2] * left


def approach(
    target: Vector, v: Vector, a: Vector, most_a: float, most_jerk: float, most_v: float, dt: float
) -> tuple[Vector, Vector]:
    """One period from velocity `v` and acceleration `a` towards `target`, within the limits.

    The acceleration m aimed at is the greatest from which m·dt + m²/(2·jerk) does not overshoot the target. Where the turn
    would still take the speed past its limit, the acceleration is only let go, which the period before has left room for.
    """
    if target == _NOWHERE == v == a:
        return _NOWHERE, _NOWHERE
    ex, ey, ez = target[0] - v[0], target[1] - v[1], target[2] - v[2]
    error = math.sqrt(ex * ex + ey * ey + ez * ez)
    step = most_jerk * dt
    if error > 1e-12:
        m = min(most_a, most_jerk * (math.sqrt(dt * dt + 2.0 * error / most_jerk) - dt)) / error
        jx, jy, jz = ex * m - a[0], ey * m - a[1], ez * m - a[2]
    else:
        jx, jy, jz = -a[0], -a[1], -a[2]
    change = math.sqrt(jx * jx + jy * jy + jz * jz)
    if change > step:
        k = step / change
        jx, jy, jz = jx * k, jy * k, jz * k
    b = (a[0] + jx, a[1] + jy, a[2] + jz)
    u = (v[0] + b[0] * dt, v[1] + b[1] * dt, v[2] + b[2] * dt)
    strength = _norm(b)
    if strength > 1e-12:
        rest = _ramped(strength, step) * dt / strength
        end = (u[0] + b[0] * rest, u[1] + b[1] * rest, u[2] + b[2] * rest)
        top = most_v * (1.0 + 1e-9)
        if _norm(u) > top or _norm(end) > top:
            b = _towards_rest(a, step)
            u = (v[0] + b[0] * dt, v[1] + b[1] * dt, v[2] + b[2] * dt)
    return u, b


def _slowed_at_walls(v: Vector, p: Vector, low: Vector, high: Vector, limits: Limits) -> Vector:
    """Velocity towards a side falls in proportion to the distance left; away from it and along it stays as it is."""
    margin = limits.workspace_margin_m
    rate = limits.max_linear_speed / margin
    return (
        _slowed_axis(v[0], p[0], low[0], high[0], margin, rate),
        _slowed_axis(v[1], p[1], low[1], high[1], margin, rate),
        _slowed_axis(v[2], p[2], low[2], high[2], margin, rate),
    )


def _slowed_axis(v: float, p: float, low: float, high: float, margin: float, rate: float) -> float:
    if v > 0.0:
        left = high - p - GAP_M
        return v if left >= margin else min(v, rate * left if left > 0.0 else 0.0)
    left = p - low - GAP_M
    return v if left >= margin else max(v, -rate * left if left > 0.0 else 0.0)


def _nearest(p: Vector, box: tuple[float, ...]) -> tuple[float, Vector]:
    """Distance to a box and the direction away from it; inside it 0 and the direction of the nearest side."""
    d = [p[i] - min(max(p[i], box[i]), box[i + 3]) for i in (0, 1, 2)]
    distance = _norm((d[0], d[1], d[2]))
    if distance > 0.0:
        return distance, (d[0] / distance, d[1] / distance, d[2] / distance)
    sides = [(p[i] - box[i], i, -1.0) for i in (0, 1, 2)] + [(box[i + 3] - p[i], i, 1.0) for i in (0, 1, 2)]
    _, axis, sign = min(sides)
    return 0.0, (sign * (axis == 0), sign * (axis == 1), sign * (axis == 2))


def _slowed_at_box(v: Vector, p: Vector, box: tuple[float, ...], limits: Limits) -> Vector:
    distance, n = _nearest(p, box)
    if distance >= limits.workspace_margin_m:
        return v
    towards = -(v[0] * n[0] + v[1] * n[1] + v[2] * n[2])
    most = limits.max_linear_speed / limits.workspace_margin_m * max(0.0, distance - GAP_M)
    if towards <= most:
        return v
    k = towards - most
    return v[0] + k * n[0], v[1] + k * n[1], v[2] + k * n[2]


def _way_back(p: Vector, limits: Limits) -> Vector | None:
    """The direction of the shortest way back from clearly outside the workspace or inside a keep-out box; None elsewhere."""
    away, n = _nearest(p, (*limits.floor, *limits.ceiling))
    if away > OUTSIDE_M:
        return -n[0], -n[1], -n[2]
    for box in limits.keep_out:
        inner = tuple(box[i] + OUTSIDE_M for i in (0, 1, 2)) + tuple(box[i] - OUTSIDE_M for i in (3, 4, 5))
        if all(inner[i] < p[i] < inner[i + 3] for i in (0, 1, 2)):
            return _nearest(p, box)[1]
    return None


def _leads_back(v: Vector, back: Vector | None) -> bool:
    """Whether a motion from outside goes straight back; what is left of another one is braked."""
    speed = _norm(v)
    return back is None or speed == 0.0 or v[0] * back[0] + v[1] * back[1] + v[2] * back[2] > 0.99 * speed


def _may_brake_inside(v: Vector, p: Vector, low: Vector, high: Vector, limits: Limits, dt: float) -> bool:
    """Whether `v` for one period and then braking straight on ends inside the workspace and touches no keep-out box."""
    speed = _norm(v)
    if speed == 0.0:
        return True
    reach = dt + _ramped(speed, limits.linear_deceleration * dt) * dt / speed
    for i in (0, 1, 2):
        end = p[i] + v[i] * reach
        if (v[i] > 0.0 and end > high[i] - EDGE_M) or (v[i] < 0.0 and end < low[i] + EDGE_M):
            return False
    return all(_passes(p, v, reach, box) for box in limits.keep_out)


def _passes(p: Vector, v: Vector, reach: float, box: tuple[float, ...]) -> bool:
    """Whether the straight way p … p + v·reach stays out of the box; from inside, whether it goes out."""
    distance, n = _nearest(p, box)
    if distance == 0.0:
        return v[0] * n[0] + v[1] * n[1] + v[2] * n[2] >= 0.0
    enter, leave = 0.0, reach
    for i in (0, 1, 2):
        low, high = box[i] - EDGE_M, box[i + 3] + EDGE_M
        if v[i] == 0.0:
            if not low < p[i] < high:
                return True
        else:
            t0, t1 = (low - p[i]) / v[i], (high - p[i]) / v[i]
            enter, leave = max(enter, min(t0, t1)), min(leave, max(t0, t1))
    return enter > leave


class SafetyFilter:
    """The filter with its memory: the motion of the previous period and how often each verdict was given."""

    def __init__(self, limits: Limits, period: float) -> None:
        if limits.max_linear_speed * period > limits.workspace_margin_m:
            raise ConfigError(
                f"limits: one period of {period:g} s at {limits.max_linear_speed:g} m/s is longer than the margin of the"
                f" workspace ({limits.workspace_margin_m:g} m); widen workspace_margin_m"
            )
        self.limits = limits
        self.period = period
        self.motion = REST
        self.counts: Counter[Verdict] = Counter()

    def reset(self) -> None:
        """The arm is at rest, as after connecting or putting the task back to its start."""
        self.motion = REST

    def step(self, requested: Twist | None, state: ArmState) -> Outcome:
        """What to send to the arm for the next period; None brakes."""
        outcome = limit(requested, state, self.motion, self.limits, self.period)
        self.motion = outcome.motion
        self.counts[outcome.verdict] += 1
        return outcome

    def about(self) -> dict[str, Any]:
        """Counts by verdict, for diagnostics."""
        return {verdict.value: count for verdict, count in self.counts.items()}
