"""The states of an arm and what each lets through, on an arm that moves exactly as told."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinematic_arm import KinematicArm

from cail_core.errors import ConfigError
from cail_robot.arm import STILL, ArmMode, Twist
from cail_robot.control.state_machine import LINK_TIMEOUT_S, PUBLISHERS_QUIET_S, ArmControl, State, Status
from cail_robot.safety.filter import Verdict
from cail_robot.safety.limits import Limits

FORWARD: Twist = (0.1, 0.0, 0.0, 0.0, 0.0, 0.0)


class Bench:
    """A control whose periods the test makes; commands carry the right frame and a fresh stamp unless said otherwise."""

    def __init__(self) -> None:
        self.said: list[Status] = []
        self.arm = KinematicArm()
        self.control = ArmControl(self.arm, Limits(), on_status=self.said.append)

    def cycles(self, n: int = 1) -> None:
        for _ in range(n):
            self.control.cycle()

    def command(self, twist: Twist, frame: str = "base", age: float = 0.0, sequence: int | None = None) -> None:
        self.control.command(twist, frame, time.time() - age, sequence)

    def moving(self) -> None:
        """Enabled, started from zero, at speed."""
        self.cycles()
        assert self.control.enable(True)[0]
        self.command(STILL)
        for _ in range(30):
            self.command(FORWARD)
            self.cycles()
        assert self.arm.twist == pytest.approx(FORWARD)

    def speed_after(self, cycles: int) -> float:
        self.cycles(cycles)
        return math.hypot(*self.arm.twist[:3])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_each_state_comes_with_the_twist_that_led_to_it(bench: Bench) -> None:
    bench.moving()
    before = bench.control.cycle()
    for _ in range(5):
        bench.command(STILL)
        now = bench.control.cycle()
        assert now is not None
        assert before is not None
        assert now.executed == before.outcome.twist == now.state.twist, "this arm moves exactly as told"
        assert now.executed != now.outcome.twist
        before = now


def test_it_connects_to_idle_and_moves_only_when_enabled_and_after_a_zero_command(bench: Bench) -> None:
    bench.cycles()
    assert bench.control.state is State.IDLE
    bench.command(FORWARD)
    assert bench.speed_after(5) == 0
    assert bench.control.enable(True)[0]
    bench.command(FORWARD)
    assert bench.speed_after(5) == 0
    bench.command(STILL)
    bench.command(FORWARD)
    assert bench.speed_after(5) > 0
    assert [status.state for status in bench.said] == [State.IDLE, State.ENABLED, State.ENABLED]
    assert all(status.reason for status in bench.said)


def test_stale_commands_ramp_to_rest_and_hold_until_a_zero_command(bench: Bench) -> None:
    bench.moving()
    time.sleep(0.09)
    assert bench.speed_after(2) == 0  # 0.1 m/s at 12.5 m/s² and 10 ms: one period
    assert bench.control.state is State.HOLDING
    assert "no command for 0.08 s" in bench.control.status.reason
    bench.command(FORWARD)
    assert bench.speed_after(5) == 0
    bench.command(STILL)
    bench.command(FORWARD)
    assert bench.speed_after(5) > 0


def test_a_commander_that_ends_with_zero_is_not_missed(bench: Bench) -> None:
    bench.moving()
    bench.command(STILL)
    bench.cycles(30)
    time.sleep(0.09)
    bench.cycles()
    assert bench.control.state is State.ENABLED


@pytest.mark.parametrize(
    ("twist", "frame", "age", "verdict"),
    [
        ((math.nan, 0.0, 0.0, 0.0, 0.0, 0.0), "base", 0.0, Verdict.NOT_FINITE),
        (FORWARD, "tool0", 0.0, Verdict.WRONG_FRAME),
        (FORWARD, "base", 0.2, Verdict.TOO_OLD),
        (FORWARD, "base", -0.2, Verdict.FROM_FUTURE),
    ],
)
def test_a_bad_command_stops_is_counted_and_said(bench: Bench, twist: Twist, frame: str, age: float, verdict: Verdict) -> None:
    bench.moving()
    bench.command(twist, frame, age)
    assert bench.speed_after(2) == 0
    assert bench.control.state is State.HOLDING
    assert bench.control.status.verdict is verdict
    assert bench.control.refusals == {verdict: 1}
    bench.command(FORWARD)
    assert bench.speed_after(5) == 0


def test_an_overtaken_command_is_dropped_without_a_stop(bench: Bench) -> None:
    bench.moving()
    bench.command((0.0, 0.1, 0.0, 0.0, 0.0, 0.0), age=0.05)
    bench.cycles(3)
    assert bench.control.state is State.ENABLED
    assert bench.arm.twist == pytest.approx(FORWARD)
    assert bench.control.refusals == {Verdict.OUT_OF_ORDER: 1}


def test_two_publishers_stop_the_arm_until_one_speaks_alone_from_zero(bench: Bench) -> None:
    bench.moving()
    for n in range(5):
        bench.command(FORWARD, sequence=100 + n)
        bench.command(FORWARD, sequence=3 + n)
        bench.cycles()
    assert bench.speed_after(3) == 0
    assert bench.control.state is State.HOLDING
    assert "two publishers" in bench.control.status.reason
    bench.command(STILL, sequence=105)
    assert bench.control.state is State.HOLDING
    time.sleep(PUBLISHERS_QUIET_S)
    bench.command(STILL, sequence=106)
    bench.command(FORWARD, sequence=107)
    assert bench.speed_after(5) > 0


def test_a_new_publisher_after_silence_is_no_fight(bench: Bench) -> None:
    bench.moving()
    bench.command(STILL, sequence=500)
    bench.cycles(30)
    time.sleep(PUBLISHERS_QUIET_S + 0.05)
    bench.command(STILL, sequence=1)
    bench.command(FORWARD, sequence=2)
    assert bench.speed_after(5) > 0


def test_stop_latches_and_only_clear_fault_at_rest_leaves_it(bench: Bench) -> None:
    bench.moving()
    bench.control.stop("stop was called")
    assert bench.control.clear_fault() == (False, "FAULT: the arm still moves; a fault is cleared at rest")
    assert bench.speed_after(3) == 0
    assert not bench.control.enable(True)[0]
    bench.command(STILL)
    bench.command(FORWARD)
    assert bench.speed_after(5) == 0
    bench.cycles()
    assert bench.control.clear_fault()[0]
    assert bench.control.state is State.IDLE
    assert bench.control.enable(True)[0]
    bench.command(FORWARD)
    assert bench.speed_after(5) == 0
    bench.command(STILL)
    bench.command(FORWARD)
    assert bench.speed_after(5) > 0


def test_a_fault_of_the_arm_is_latched_and_recovers_only_when_asked(bench: Bench) -> None:
    bench.moving()
    bench.arm.mode, bench.arm.faults = ArmMode.FAULT, ("protective stop",)
    assert bench.speed_after(3) == 0
    assert (bench.control.state, bench.control.status.reason) == (State.FAULT, "protective stop")
    bench.arm.mode, bench.arm.faults = ArmMode.READY, ()
    bench.cycles(3)
    assert bench.control.state is State.FAULT
    bench.arm.mode = ArmMode.FAULT
    bench.cycles(3)
    assert bench.control.clear_fault()[0]
    bench.cycles(3)
    assert (bench.control.state, bench.arm.calls[-1]) == (State.FAULT, "recover")
    bench.arm.mode = ArmMode.READY
    bench.cycles()
    assert bench.control.state is State.IDLE


def test_a_lost_link_comes_back_without_motion(bench: Bench) -> None:
    bench.moving()
    bench.arm.reachable = False
    bench.cycles(2)
    assert bench.control.state is State.DISCONNECTED
    assert "link" in bench.control.status.reason
    bench.arm.reachable = True
    time.sleep(0.55)
    bench.command(STILL)
    bench.command(FORWARD)
    bench.cycles(3)
    assert bench.control.state is State.IDLE
    assert bench.speed_after(5) == 0


def test_a_stop_survives_a_lost_link(bench: Bench) -> None:
    bench.moving()
    bench.control.stop("stop was called")
    bench.arm.reachable = False
    bench.cycles(2)
    bench.arm.reachable = True
    time.sleep(0.55)
    bench.cycles(2)
    assert (bench.control.state, bench.control.status.reason) == (State.FAULT, "stop was called")


def test_a_state_that_does_not_advance_is_a_fault(bench: Bench) -> None:
    bench.moving()
    bench.arm.frozen = True
    bench.cycles()
    time.sleep(LINK_TIMEOUT_S + 0.05)
    bench.cycles()
    assert bench.control.state is State.FAULT
    assert "stands still" in bench.control.status.reason


def test_limits_change_only_while_motion_is_disabled(bench: Bench) -> None:
    bench.moving()
    with pytest.raises(ConfigError, match="disable"):
        bench.control.set_limits(Limits(max_linear_speed=0.1))
    bench.control.enable(False)
    bench.cycles(3)
    bench.control.set_limits(Limits(max_linear_speed=0.1))
    assert bench.control.filter.limits.max_linear_speed == 0.1


def test_the_gripper_moves_only_when_enabled(bench: Bench) -> None:
    bench.cycles()
    bench.control.grip(0.0)
    bench.cycles()
    assert bench.arm.gripper == 1.0
    bench.control.enable(True)
    bench.control.grip(math.nan)
    bench.cycles()
    assert bench.arm.gripper == 1.0
    bench.control.grip(0.25)
    bench.cycles()
    assert bench.arm.gripper == 0.25


def test_what_the_filter_does_is_said(bench: Bench) -> None:
    bench.moving()
    time.sleep(0.11)
    bench.command(STILL)
    for _ in range(5):
        bench.command((0.5, 0.0, 0.0, 0.0, 0.0, 0.0))
        bench.cycles()
    assert bench.control.status.verdict is Verdict.CLAMPED
    assert "0.25" in bench.control.status.text


def test_an_errand_runs_in_the_loop_and_its_error_reaches_who_asked(bench: Bench) -> None:
    import threading

    bench.cycles()
    answers: list[object] = []

    def ask() -> None:
        answers.append(bench.control.in_loop(threading.get_ident))
        try:
            bench.control.in_loop(lambda: 1 / 0)
        except ZeroDivisionError as fault:
            answers.append(fault)

    asker = threading.Thread(target=ask)
    asker.start()
    while asker.is_alive():
        bench.cycles()
        time.sleep(0.001)
    assert answers[0] == threading.get_ident()
    assert isinstance(answers[1], ZeroDivisionError)


numbers = st.one_of(st.floats(-1.0, 1.0), st.sampled_from([0.0, math.nan, math.inf, -1e300]))
inputs = st.one_of(
    st.tuples(
        st.just("command"),
        st.one_of(st.just(STILL), st.just((0.3, -0.3, -0.2, 1.0, 0.0, 0.0)), st.tuples(*[numbers] * 6)),
        st.sampled_from(["base", "base", "base", "tool0", ""]),
        st.one_of(st.just(0.0), st.floats(-0.3, 0.3), st.sampled_from([math.nan, math.inf, -math.inf])),
        st.one_of(st.none(), st.integers(1, 50)),
    ),
    st.tuples(st.sampled_from(["enable", "enable", "disable", "stop", "clear", "cycles", "cycles", "fault", "link"])),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(inputs, min_size=1, max_size=60))
def test_no_sequence_of_inputs_breaks_a_limit_or_moves_the_arm_unasked(sequence: list[tuple]) -> None:
    bench = Bench()
    bench.cycles()
    limits, control, arm = bench.control.filter.limits, bench.control, bench.arm
    for what, *rest in sequence:
        if what == "command":
            twist, frame, age, number = rest
            bench.command(twist, frame, age, number)
        elif what in ("enable", "disable"):
            control.enable(what == "enable")
        elif what == "stop":
            control.stop("stop was called")
        elif what == "clear":
            control.clear_fault()
        elif what == "fault":
            arm.mode = ArmMode.FAULT if arm.mode is ArmMode.READY else ArmMode.READY
        elif what == "link":
            arm.reachable = not arm.reachable
        for _ in range(8 if what == "cycles" else 1):
            before = math.hypot(*arm.twist[:3])
            bench.cycles()
            speed = math.hypot(*arm.twist[:3])
            assert math.isfinite(speed)
            assert speed <= limits.max_linear_speed * (1 + 1e-6)
            assert math.hypot(*arm.twist[3:]) <= limits.max_angular_speed * (1 + 1e-6)
            assert all(lo <= p <= hi for lo, p, hi in zip(limits.workspace_low, arm.position, limits.workspace_high, strict=True))
            if control.state is not State.ENABLED or control.status.needs_zero:
                assert speed <= before  # coming to rest, or at rest


def test_a_stop_right_after_a_fault_was_cleared_is_not_lost(bench: Bench) -> None:
    bench.cycles()
    bench.arm.mode, bench.arm.faults = ArmMode.FAULT, ("protective stop",)
    bench.cycles()
    assert bench.control.clear_fault()[0]
    bench.control.stop("stop was called")  # before the control loop has begun to recover
    bench.arm.mode, bench.arm.faults = ArmMode.READY, ()
    bench.cycles(20)
    assert (bench.control.state, bench.control.status.reason) == (State.FAULT, "stop was called")


@pytest.mark.parametrize("step", [-10.0, 10.0, -0.2])
def test_a_clock_that_is_set_holds_the_arm_says_so_and_does_not_keep_it_waiting(step: float) -> None:
    said: list[Status] = []
    ahead = 0.0
    arm = KinematicArm()
    control = ArmControl(arm, Limits(), now=lambda: time.time() + ahead, on_status=said.append)
    control.cycle()
    control.enable(True)
    for twist in (STILL, FORWARD, FORWARD):
        control.command(twist, "base", time.time() + ahead)
        control.cycle()
    ahead = step
    control.cycle()
    assert control.state is State.HOLDING
    assert control.status.reason.startswith(f"this machine's clock was set by {step:+.3g} s")
    control.command(FORWARD, "base", time.time() + ahead)
    control.cycle()
    assert control.state is State.HOLDING, "not without a zero command"
    control.command(STILL, "base", time.time() + ahead)
    assert control.state is State.ENABLED, "and not until the clock has caught up"
    control.command(FORWARD, "base", time.time() + ahead)
    control.cycle()
    assert control.state is State.ENABLED


def test_an_arm_that_nobody_commands_any_more_does_not_stay_enabled() -> None:
    arm = KinematicArm()
    control = ArmControl(arm, Limits(disable_after_s=0.5))
    control.cycle()
    control.enable(True)
    control.command(STILL, "base", time.time())
    control.cycle()
    assert control.state is State.ENABLED
    until = time.monotonic() + 0.6
    while time.monotonic() < until:
        control.cycle()
    control.cycle()  # on a busy machine the last one may be of long ago
    assert (control.state, control.status.reason) == (State.IDLE, "motion was disabled: no command for 0.5 s")
    control.command(FORWARD, "base", time.time())
    control.cycle()
    assert arm.twist == STILL
