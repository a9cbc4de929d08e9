"""The filter's promises on a UR5e's own kinematics: joints at singularities, the way back from outside, the tool's tilt."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cail_core.errors import ConfigError
from cail_robot.arm import STILL, ArmState, Twist, Vector
from cail_robot.robots.ur5e import kinematics as ur
from cail_robot.robots.ur5e.arm import _quaternion
from cail_robot.robots.ur5e.config import UR5eConfig, UR5eLimits
from cail_robot.safety.filter import SafetyFilter, Verdict
from cail_robot.safety.limits import Limits
from cail_robot.safety.tilt import tilt_of

TOOL = (0.0, 0.0, 0.16, 0.0, 0.0, 0.0)
DT = 0.002
FREE = UR5eLimits(workspace_low=(-1.5, -1.5, -1.5), workspace_high=(1.5, 1.5, 1.5), table_height_m=-1.5, keep_out=())
"""No walls: whatever happens, happens at the joints."""


class Exact:
    """A UR5e that moves as a control box makes it: the joints follow the true inverse Jacobian."""

    def __init__(self, limits: Limits, q: tuple[float, ...] = ur.HOME) -> None:
        self.filter, self.q = SafetyFilter(limits, DT), np.array(q)
        self.fastest = 0.0
        self.verdicts: set[Verdict] = set()

    @property
    def state(self) -> ArmState:
        pose = ur.pose_of(ur.forward(self.q, TOOL))
        x, y, z, *turn = pose
        return ArmState(0.0, (x, y, z), _quaternion(*turn), STILL, tuple(self.q.tolist()), (0.0,) * 6, 1.0,
                        jacobian=ur.jacobian(self.q, TOOL))  # fmt: skip

    def drive(self, twist: Twist | None, periods: int) -> None:
        for _ in range(periods):
            state = self.state
            outcome = self.filter.step(twist, state)
            self.verdicts.add(outcome.verdict)
            speeds = np.linalg.lstsq(state.jacobian, np.array(outcome.twist), rcond=None)[0]
            self.fastest = max(self.fastest, float(np.abs(speeds).max()))
            self.q = self.q + speeds * DT


@pytest.mark.parametrize("corner", [(0.8, 0.35, 0.6), (0.8, -0.35, 0.6), (0.2, 0.35, 0.6)])
def test_keys_straight_into_a_singularity_do_not_make_a_joint_fast(corner: Vector) -> None:
    """From the usual posture towards corners of the default workspace that the arm cannot reach: the elbow stretches."""
    arm = Exact(FREE)
    way = np.subtract(corner, arm.state.position)
    way = 0.25 * way / np.linalg.norm(way)
    arm.drive((*way.tolist(), 0.0, 0.0, 0.0), 2500)
    assert arm.fastest <= 2.0 * 1.02
    assert arm.verdicts & {Verdict.JOINTS, Verdict.SINGULARITY}


def test_the_limit_holds_at_the_singularity_itself() -> None:
    """The pendant's own home posture: stretched and singular."""
    arm = Exact(FREE, (0.0, -math.pi / 2, 0.0, -math.pi / 2, 0.0, 0.0))
    for axis in range(6):
        twist = [0.0] * 6
        twist[axis] = 0.25
        arm.drive(tuple(twist), 50)  # type: ignore[arg-type]
        arm.drive(None, 100)
    assert arm.fastest <= 2.0 * 1.02


one_twist = st.tuples(*[st.floats(-0.4, 0.4) for _ in range(3)], *[st.floats(-0.6, 0.6) for _ in range(3)])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.one_of(st.none(), one_twist), st.integers(1, 300)), min_size=1, max_size=12),
       st.tuples(*[st.floats(-2.0, 2.0) for _ in range(6)]))  # fmt: skip
def test_any_sequence_keeps_the_joints_of_a_ur5e(commands: list[tuple[Twist | None, int]], turned: tuple[float, ...]) -> None:
    arm = Exact(FREE, tuple(a + b for a, b in zip(ur.HOME, turned, strict=True)))
    for twist, periods in commands:
        arm.drive(twist, periods)
    assert arm.fastest <= 2.0 * 1.05
    assert np.abs(arm.q).max() <= 6.2 + 0.01


def test_the_tool_leans_no_further_than_its_cone_and_can_be_set_upright() -> None:
    arm = Exact(FREE)
    assert tilt_of(arm.state.orientation) == pytest.approx(0.0, abs=1e-6)
    for turn in ((0.5, 0.0, 0.0), (0.0, 0.5, 0.0), (-0.3, 0.4, 0.0)):
        arm.drive((0.0, 0.0, 0.0, *turn), 2000)
        assert tilt_of(arm.state.orientation) <= 0.35 + 1e-4
        assert tilt_of(arm.state.orientation) > 0.3
    assert Verdict.TILT in arm.verdicts
    arm = Exact(FREE)
    arm.drive((0.0, 0.0, 0.0, 0.5, 0.0, 0.0), 500)
    leant = tilt_of(arm.state.orientation)
    arm.drive((0.0, 0.0, 0.0, -0.2, 0.0, 0.0), 300)
    assert tilt_of(arm.state.orientation) < leant - 0.05
    arm.drive((0.0, 0.0, 0.0, 0.0, 0.0, 0.5), 500)
    assert arm.fastest <= 2.05, "turning about the vertical is free"


def place(position: Vector) -> ArmState:
    return ArmState(0.0, position, (1.0, 0.0, 0.0, 0.0), STILL, (), (), 1.0)


def drive_point(limits: Limits, position: Vector, twist: Twist, periods: int) -> Vector:
    safety, at = SafetyFilter(limits, 0.01), position
    for _ in range(periods):
        v = safety.step(twist, place(at)).twist
        at = (at[0] + v[0] * 0.01, at[1] + v[1] * 0.01, at[2] + v[2] * 0.01)
    return at


@pytest.mark.parametrize("twist", [(0.0, 0.25, 0.0), (0.0, -0.25, 0.0), (0.25, 0.0, 0.0), (0.0, 0.0, -0.25)])
def test_under_the_floor_nothing_but_up_is_open(twist: Vector) -> None:
    start = (0.5, 0.0, -0.02)
    assert drive_point(Limits(), start, (*twist, 0.0, 0.0, 0.0), 300) == pytest.approx(start)


def test_from_outside_the_straight_way_back_is_open_whatever_else_is_asked_for() -> None:
    end = drive_point(Limits(), (0.5, 0.0, -0.02), (0.2, 0.1, 0.1, 0.0, 0.0, 0.0), 60)
    assert end[2] > 0.0
    half = drive_point(Limits(), (0.5, 0.0, -0.02), (0.2, 0.1, 0.1, 0.0, 0.0, 0.0), 15)
    assert half[:2] == pytest.approx((0.5, 0.0), abs=1e-6), "not along, until it is back"


def test_inside_a_keep_out_box_only_the_shortest_way_out_is_open() -> None:
    limits = Limits(keep_out=((0.4, -0.1, 0.0, 0.6, 0.1, 0.4),))
    start = (0.42, 0.0, 0.2)
    assert drive_point(limits, start, (0.0, 0.25, 0.0, 0.0, 0.0, 0.0), 300) == pytest.approx(start)
    assert drive_point(limits, start, (0.25, 0.0, 0.0, 0.0, 0.0, 0.0), 300) == pytest.approx(start)
    assert drive_point(limits, start, (-0.1, 0.0, 0.0, 0.0, 0.0, 0.0), 100)[0] < 0.4


def test_behind_the_base_no_line_leads_through_it() -> None:
    end = drive_point(UR5eLimits(), (-0.5, 0.0, 0.3), (0.25, 0.0, 0.0, 0.0, 0.0, 0.0), 2000)
    assert end[0] < -0.15


def test_contradicting_settings_are_refused_all_together() -> None:
    with pytest.raises(ConfigError) as fault:
        UR5eConfig(acceleration=0.5, tool_offset=(0.0, math.nan, 160.0, 0.0, 0.0, 0.0), payload_cog_m=(0.0, 0.0, 60.0))
    text = str(fault.value)
    assert "5 faults" in text
    for expected in (
        "tool_offset[1]: expected a finite number within ±0.6", "tool_offset[2]: expected a finite number within ±0.6",
        "payload_cog_m[2]: expected a finite number within ±0.6",
        "linear_deceleration: expected at most speedL's acceleration 0.5, given 2.5",
        "angular_deceleration: expected at most speedL's acceleration 0.5, given 5",
    ):  # fmt: skip
        assert expected in text


def test_a_file_that_names_some_limits_keeps_the_others_of_a_ur5e() -> None:
    from cail_core.config import build

    config = build(UR5eConfig, {"limits": {"max_linear_speed": 0.1}}, "my.yaml")
    assert (config.limits.max_linear_speed, config.limits.max_joint_speed, config.limits.max_tilt_rad) == (0.1, (2.0,) * 6, 0.35)


def test_what_of_the_box_cannot_be_reached_is_said_at_the_start() -> None:
    text = UR5eConfig().text("my.yaml")
    assert "of the workspace cannot be reached with the tool down" in text
    near = UR5eConfig(limits=UR5eLimits(workspace_low=(0.3, -0.2, 0.05), workspace_high=(0.6, 0.2, 0.4)))
    assert "cannot be reached" not in near.text("my.yaml")
