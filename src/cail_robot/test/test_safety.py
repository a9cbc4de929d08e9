"""The safety filter: numbers by hand, and properties over any sequence of commands."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cail_core.config import build
from cail_core.errors import ConfigError
from cail_robot.arm import STILL, ArmState, Twist, Vector
from cail_robot.safety.filter import REST, Motion, Outcome, SafetyFilter, Verdict, limit, refuse
from cail_robot.safety.limits import Limits, load_limits, load_with_limits

DT = 0.02
CENTRE: Vector = (0.5, 0.0, 0.3)


def at(position: Vector = CENTRE, q: tuple[float, ...] = (), jacobian: np.ndarray | None = None) -> ArmState:
    return ArmState(0.0, position, (0.0, 0.0, 0.0, 1.0), STILL, q, (), 1.0, jacobian=jacobian)


def norm(v: Vector) -> float:
    return math.sqrt(sum(x * x for x in v))


def drive(requested: Twist | None, limits: Limits, steps: int, position: Vector = CENTRE) -> tuple[list[Outcome], list[Vector]]:
    """An arm that moves exactly as told."""
    safety, outcomes, path = SafetyFilter(limits, DT), [], [position]
    for _ in range(steps):
        outcomes.append(safety.step(requested, at(position)))
        position = tuple(p + v * DT for p, v in zip(position, outcomes[-1].motion.linear, strict=True))  # type: ignore[assignment]
        path.append(position)
    return outcomes, path


def test_a_slow_twist_passes_unchanged_once_it_is_reached() -> None:
    twist = (0.1, -0.05, 0.02, 0.1, 0.0, 0.2)
    outcomes, _ = drive(twist, Limits(), 30)
    assert outcomes[-1].verdict is Verdict.PASSED
    assert outcomes[-1].twist == pytest.approx(twist, abs=1e-9)


def test_the_norm_is_clamped_and_the_direction_kept() -> None:
    outcomes, _ = drive((3.0, 4.0, 0.0, 0.0, 0.0, 9.0), Limits(workspace_high=(5.0, 5.0, 1.0)), 40)
    assert outcomes[-1].verdict is Verdict.CLAMPED
    assert outcomes[-1].twist == pytest.approx((0.15, 0.2, 0.0, 0.0, 0.0, 0.5), abs=1e-9)


def test_huge_values_are_clamped_like_others() -> None:
    outcomes, _ = drive((1e300, -1e300, 0.0, 0.0, 0.0, 0.0), Limits(workspace_high=(5.0, 5.0, 1.0)), 40)
    assert norm(outcomes[-1].motion.linear) == pytest.approx(0.25)


def test_the_first_periods_follow_the_jerk_limit() -> None:
    """Jerk 50 m/s³ for 0.02 s: 1 m/s², then 2 m/s²; velocities 0.02 and 0.06 m/s."""
    outcomes, _ = drive((0.25, 0.0, 0.0, 0.0, 0.0, 0.0), Limits(), 2)
    assert [o.motion.linear[0] for o in outcomes] == pytest.approx([0.02, 0.06])
    assert outcomes[0].verdict is Verdict.SMOOTHED


def test_braking_follows_the_deceleration_limit() -> None:
    """0.25 m/s at 10 m/s²: 0.05, then rest."""
    moving = Motion(linear=(0.0, 0.25, 0.0), angular=(0.5, 0.0, 0.0))
    limits = Limits(linear_deceleration=10.0, angular_deceleration=20.0)
    first = limit(None, at(), moving, limits, DT)
    second = limit(None, at(), first.motion, limits, DT)
    assert first.motion.linear == pytest.approx((0.0, 0.05, 0.0))
    assert first.motion.angular == pytest.approx((0.1, 0.0, 0.0))
    assert second.motion == REST
    assert (first.verdict, second.text) == (Verdict.STOPPED, "at rest")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_request_that_is_not_finite_brakes(bad: float) -> None:
    moving = Motion(linear=(0.25, 0.0, 0.0))
    outcome = limit((0.1, bad, 0.0, 0.0, 0.0, 0.0), at(), moving, Limits(linear_deceleration=10.0), DT)
    assert outcome.verdict is Verdict.NOT_FINITE
    assert outcome.motion.linear == pytest.approx((0.05, 0.0, 0.0))


@pytest.mark.parametrize(("axis", "side"), [(i, s) for i in range(3) for s in (-1.0, 1.0)])
def test_driving_at_a_side_ends_inside_and_one_can_drive_back(axis: int, side: float) -> None:
    limits = Limits()
    out = [0.0] * 6
    out[axis] = side
    outcomes, path = drive(tuple(out), limits, 400)  # type: ignore[arg-type]
    wall = limits.workspace_high[axis] if side > 0 else limits.workspace_low[axis]
    assert (path[-1][axis] - wall) * side <= 0
    assert abs(path[-1][axis] - wall) < 0.002
    assert outcomes[-1].verdict is Verdict.WORKSPACE
    back, _ = drive(tuple(-x for x in out), limits, 20, path[-1])  # type: ignore[arg-type]
    assert back[-1].motion.linear[axis] * side < -0.2


def test_a_wall_takes_only_the_velocity_towards_it() -> None:
    outcomes, path = drive((0.2, 0.1, 0.0, 0.0, 0.0, 0.0), Limits(), 120, (0.79, -0.3, 0.3))
    assert path[-1][0] <= 0.8
    assert outcomes[-1].motion.linear[1] == pytest.approx(0.1)


def test_from_outside_only_the_way_back_is_open() -> None:
    outside = (0.9, 0.0, 0.3)
    further, _ = drive((0.2, 0.0, 0.0, 0.0, 0.0, 0.0), Limits(), 10, outside)
    assert all(o.motion.linear == (0.0, 0.0, 0.0) for o in further)
    _, path = drive((-0.2, 0.0, 0.0, 0.0, 0.0, 0.0), Limits(), 100, outside)
    assert path[-1][0] < 0.8


def test_the_table_is_a_floor_above_the_workspace() -> None:
    _, path = drive((0.0, 0.0, -0.25, 0.0, 0.0, 0.0), Limits(table_height_m=0.1), 300)
    assert path[-1][2] == pytest.approx(0.1, abs=0.002)
    assert min(p[2] for p in path) >= 0.1


def test_a_keep_out_box_is_not_entered_and_can_be_left() -> None:
    box = (0.45, -0.1, 0.0, 0.55, 0.1, 0.4)
    limits = Limits(keep_out=(box,))
    outcomes, path = drive((0.25, 0.0, 0.0, 0.0, 0.0, 0.0), limits, 300, (0.3, 0.0, 0.3))
    assert max(p[0] for p in path) <= 0.45
    assert path[-1][0] == pytest.approx(0.45, abs=0.002)
    assert Verdict.KEEP_OUT in {o.verdict for o in outcomes}
    _, path = drive((-0.25, 0.0, 0.0, 0.0, 0.0, 0.0), limits, 60, (0.46, 0.0, 0.3))
    assert path[-1][0] < 0.4


def test_joint_speed_is_scaled_through_the_jacobian() -> None:
    """Lever of 0.1 m: 0.2 m/s would need 2 rad/s; with 1 rad/s allowed half of it is left."""
    jacobian = np.diag([0.1, 1.0, 1.0, 1.0, 1.0, 1.0])
    limits = Limits(max_joint_speed=(1.0,) * 6, singularity_slow_at=0.0)
    safety = SafetyFilter(limits, DT)
    for _ in range(40):
        outcome = safety.step((0.2, 0.0, 0.0, 0.0, 0.0, 0.0), at(q=(0.0,) * 6, jacobian=jacobian))
    assert outcome.verdict is Verdict.JOINTS
    assert outcome.motion.linear[0] == pytest.approx(0.1, rel=0.02)


def test_a_joint_at_its_limit_moves_only_back() -> None:
    limits = Limits(joint_low=(-1.0,) * 6, joint_high=(1.0,) * 6, singularity_slow_at=0.0)
    state = at(q=(1.0, 0.0, 0.0, 0.0, 0.0, 0.0), jacobian=np.eye(6))
    assert limit((0.1, 0.0, 0.0, 0.0, 0.0, 0.0), state, REST, limits, DT).motion.linear[0] == 0.0
    assert limit((-0.1, 0.0, 0.0, 0.0, 0.0, 0.0), state, REST, limits, DT).motion.linear[0] < 0.0


def test_speed_falls_near_a_singularity_and_does_not_end() -> None:
    """Condition number 23.5 is half-way between 17 and 30: half of the way from 1 to 0.1, so 0.55."""
    half = at(q=(0.0,) * 6, jacobian=np.diag([1.0, 1.0, 1.0, 1.0, 1.0, 1 / 23.5]))
    far = at(q=(0.0,) * 6, jacobian=np.diag([1.0, 1.0, 1.0, 1.0, 1.0, 1e-6]))
    for state, share in ((half, 0.55), (far, 0.1)):
        safety = SafetyFilter(Limits(), DT)
        for _ in range(40):
            outcome = safety.step((0.2, 0.0, 0.0, 0.0, 0.0, 0.0), state)
        assert outcome.verdict is Verdict.SINGULARITY
        assert outcome.motion.linear[0] == pytest.approx(0.2 * share, rel=1e-6)


def test_a_command_is_refused_with_its_reason() -> None:
    def why(twist: Twist = STILL, frame: str = "base", age: float = 0.0) -> Verdict | None:
        refused = refuse(twist, frame, age, Limits(), "base")
        return refused[0] if refused else None

    assert why() is None
    assert why((0.0, 0.0, 0.0, 0.0, math.nan, 0.0)) is Verdict.NOT_FINITE
    assert why(frame="tool0") is Verdict.WRONG_FRAME
    assert why(age=0.099) is None
    assert why(age=0.101) is Verdict.TOO_OLD
    assert why(age=math.nan) is Verdict.TOO_OLD
    assert why(age=-0.019) is None
    assert why(age=-0.021) is Verdict.FROM_FUTURE


def test_limits_list_every_fault_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        build(Limits, {"max_linear_speed": -1.0, "stale_after_s": 9.0, "speed": 1.0}, "limits.yaml")
    assert all(name in str(caught.value) for name in ("max_linear_speed", "stale_after_s", "unknown key 'speed'"))
    with pytest.raises(ConfigError) as caught:
        Limits(
            workspace_low=(0.75, -0.35, 0.02), linear_deceleration=0.1, joint_low=(0.0,), keep_out=((0.0, 0.0, 0.0),),
            max_joint_speed=(1.0, 0.0),
        )
    for name in ("workspace: x", "workspace_margin_m", "linear_deceleration", "joint_low", "keep_out[0]", "max_joint_speed"):
        assert name in str(caught.value)


def test_a_period_longer_than_the_margin_is_refused() -> None:
    with pytest.raises(ConfigError, match="margin"):
        SafetyFilter(Limits(), 0.5)


def test_the_installed_limits_are_the_defaults() -> None:
    assert load_limits() == Limits()


@dataclass(frozen=True)
class Robot:
    """Settings of an arm with limits among them."""

    name: str = "stick"
    limits: Limits = field(default_factory=Limits)


def test_who_lowers_a_limit_in_limits_yaml_lowers_it_for_every_robot_that_does_not_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "limits.yaml").write_text("max_linear_speed: 0.1\nmax_angular_speed: 0.2\n")
    (tmp_path / "stick.yaml").write_text("limits: {max_angular_speed: 0.3}\n")
    (tmp_path / "over.yaml").write_text("table_height_m: 0.05\n")
    monkeypatch.setattr("cail_core.config.config_folders", lambda: [tmp_path])
    found = load_with_limits(Robot, tmp_path / "stick.yaml").limits
    assert (found.max_linear_speed, found.max_angular_speed, found.stale_after_s) == (0.1, 0.3, Limits().stale_after_s)
    over = load_with_limits(Robot, tmp_path / "stick.yaml", str(tmp_path / "over.yaml")).limits
    assert over == replace(found, table_height_m=0.05)
    assert load_with_limits(Robot, tmp_path / "stick.yaml", "limits").limits.max_angular_speed == 0.3, "the robot's own stays"
    assert load_limits(str(tmp_path / "over.yaml")).max_linear_speed == 0.1


def test_a_fault_in_layered_limits_names_the_files(tmp_path: Path) -> None:
    (tmp_path / "stick.yaml").write_text("limits: {max_linear_sped: 0.3}\n")
    with pytest.raises(ConfigError, match=r"stick\.yaml.*unknown key 'limits\.max_linear_sped'.*did you mean"):
        load_with_limits(Robot, tmp_path / "stick.yaml")


any_number = st.one_of(
    st.floats(-2.0, 2.0), st.floats(allow_nan=True, allow_infinity=True), st.sampled_from([0.0, 0.25, -0.25, 1e-13, math.nan])
)
any_twist = st.tuples(*[any_number] * 6)
command = st.one_of(st.none(), any_twist, st.just("again"), st.just("again"))
box_limits = st.builds(
    lambda speed, a, jerk, more, margin, boxes: Limits(
        max_linear_speed=speed, max_linear_acceleration=a, max_linear_jerk=jerk, linear_deceleration=a * more,
        workspace_margin_m=max(margin, speed**2 / (2 * a * more) * 1.01, speed * DT * 1.01),
        workspace_low=(-0.6, -0.5, -0.1), workspace_high=(0.6, 0.5, 0.9), keep_out=boxes,
    ),
    st.floats(0.05, 1.0), st.floats(2.5, 20.0), st.floats(20.0, 2000.0), st.floats(1.0, 4.0), st.floats(0.02, 0.15),
    st.sampled_from([(), ((0.2, -0.3, -0.2, 0.35, 0.3, 0.7),)]),
)
BRAKING = (Verdict.STOPPED, Verdict.BRAKED, Verdict.NOT_FINITE)


@settings(max_examples=150, deadline=None)
@given(box_limits, st.lists(st.tuples(command, st.integers(1, 25)), min_size=1, max_size=12))
def test_any_sequence_of_commands_keeps_every_limit(limits: Limits, commands: list[tuple[Twist | str | None, int]]) -> None:
    safety = SafetyFilter(limits, DT)
    position: Vector = (0.0, 0.0, 0.4)
    twist: Twist | None = STILL
    before, braked = REST, False
    for requested, held in commands:
        if requested != "again":
            twist = requested  # type: ignore[assignment]
        else:
            twist = (0.9, 0.7, -0.6, 2.0, 0.0, 0.0)
        for _ in range(held):
            outcome = safety.step(twist, at(position))
            now = outcome.motion
            assert all(map(math.isfinite, now.twist))
            assert norm(now.linear) <= limits.max_linear_speed * (1 + 1e-6)
            assert norm(now.angular) <= limits.max_angular_speed * (1 + 1e-6)
            braking = outcome.verdict in BRAKING
            a = tuple((u - v) / DT for u, v in zip(now.linear, before.linear, strict=True))
            most = limits.linear_deceleration if braking else limits.max_linear_acceleration
            assert norm(a) <= most * (1 + 1e-6) + 1e-9  # type: ignore[arg-type]
            if not braking and not braked:
                jerk = tuple((u - v) / DT for u, v in zip(a, before.linear_acceleration, strict=True))
                assert norm(jerk) <= limits.max_linear_jerk * (1 + 1e-6) + 1e-6  # type: ignore[arg-type]
            position = tuple(p + v * DT for p, v in zip(position, now.linear, strict=True))  # type: ignore[assignment]
            assert all(
                lo <= p <= hi for lo, p, hi in zip(limits.workspace_low, position, limits.workspace_high, strict=True)
            ), position
            for box in limits.keep_out:
                assert not all(box[i] < position[i] < box[i + 3] for i in range(3)), position
            before, braked = now, braking


@settings(max_examples=60, deadline=None)
@given(st.lists(any_twist, min_size=1, max_size=20), st.integers(0, 2**32 - 1))
def test_any_sequence_keeps_joint_speeds_and_angles(commands: list[Twist], seed: int) -> None:
    """Joints that follow the filter's own inverse of a fixed, well-conditioned Jacobian."""
    rng = np.random.default_rng(seed)
    jacobian = np.eye(6) + 0.2 * rng.uniform(-1, 1, (6, 6))
    limits = Limits(max_joint_speed=(0.3,) * 6, joint_low=(-0.5,) * 6, joint_high=(0.5,) * 6, singularity_slow_at=0.0)
    safety, q = SafetyFilter(limits, DT), np.zeros(6)
    for twist in commands:
        for _ in range(10):
            executed = safety.step(twist, at(q=tuple(q.tolist()), jacobian=jacobian)).twist
            speed = np.linalg.solve(jacobian, executed)
            assert np.abs(speed).max() <= 0.3 * 1.01
            q = q + speed * DT
            assert np.abs(q).max() <= 0.5 + 1e-3


def test_limits_may_be_changed_by_replacement() -> None:
    assert replace(Limits(), max_linear_speed=0.1).max_linear_speed == 0.1
