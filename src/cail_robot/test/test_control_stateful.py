"""Any order of enable, stop, faults, clears, commands, clock steps and lost links ends in no motion that no person asked for."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kinematic_arm import KinematicArm

from cail_robot.arm import STILL, ArmMode, ArmState, Twist
from cail_robot.control import state_machine
from cail_robot.control.state_machine import ArmControl, State
from cail_robot.safety.limits import Limits

FORWARD: Twist = (0.1, 0.0, 0.0, 0.0, 0.0, 0.0)


class Clock:
    """The machine's monotonic clock, which the test moves; `ahead` is how far the clock of the stamps was set."""

    def __init__(self) -> None:
        self.now, self.ahead = 1000.0, 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1.7e9 + self.now + self.ahead


class Arm(KinematicArm):
    locked = False

    def read(self) -> ArmState:
        return super().read()._replace(locked=self.locked and self.mode is ArmMode.FAULT)


class Operation(RuleBasedStateMachine):
    """What a person has asked for is kept beside the control, by simple rules of its own."""

    @initialize()
    def start(self) -> None:
        self.clock = Clock()
        self.before: Any = state_machine.time
        state_machine.time = self.clock  # type: ignore[assignment]
        self.arm = Arm()
        self.control = ArmControl(self.arm, Limits(), now=self.clock.time)
        self.granted = False
        """A person has permitted motion, and nothing since then has taken that back."""
        self.zeroed = False
        """Since the last hold, a commander has shown that it is at rest."""
        self.called = False
        """A stop was called, and nobody has cleared it."""
        self.last_command = -math.inf
        self.speed = 0.0
        self.periods(3)

    def teardown(self) -> None:
        if hasattr(self, "before"):
            state_machine.time = self.before

    def periods(self, n: int) -> None:
        for _ in range(n):
            self.clock.now += 0.01
            sent = len(self.arm.sent)
            self.control.cycle()
            if len(self.arm.sent) == sent:
                self.speed = 0.0
                continue
            speed = math.hypot(*self.arm.twist[:3])
            if speed > 0.005 and speed >= self.speed - 1e-9:  # not coming to rest
                assert self.granted, f"motion that nobody permitted: {self.control.status}"
                assert self.zeroed, f"motion that did not begin from rest: {self.control.status}"
                assert self.clock.now - self.last_command <= 0.08 + 0.011, "motion by a command of long ago"
            self.speed = speed
            if not self.arm.reachable or self.arm.mode is not ArmMode.READY:
                self.granted = False
            if self.clock.now - self.last_command > 0.08 and speed > 0.0:
                self.zeroed = False

    @rule(on=st.booleans())
    def enable(self, on: bool) -> None:
        done, _ = self.control.enable(on)
        if not on:
            self.granted = False
        elif done and not self.granted:
            self.granted, self.zeroed = True, False

    @rule()
    def stop(self) -> None:
        self.control.stop("stop was called")
        self.granted, self.called = False, True

    @precondition(lambda self: self.control.state is State.FAULT)
    @rule(unlock=st.booleans(), stop_at_once=st.booleans())
    def clear(self, unlock: bool, stop_at_once: bool) -> None:
        done, _ = self.control.clear_fault(unlock=unlock)
        self.called = self.called and not done
        if stop_at_once:  # before the control loop has begun to recover
            self.stop()
        assert not (done and self.arm.locked and self.arm.mode is ArmMode.FAULT and not unlock
                    and self.control.state is State.FAULT), "unlocked by the key that goes on"  # fmt: skip

    @rule(zero=st.booleans(), n=st.integers(1, 20), age=st.sampled_from([0.0, 0.0, 0.0, 0.05, 5.0]),
          frame=st.sampled_from(["base", "base", "base", "tool"]))  # fmt: skip
    def command(self, zero: bool, n: int, age: float, frame: str) -> None:
        for _ in range(n):
            self.control.command(STILL if zero else FORWARD, frame, self.clock.time() - age)
            if age <= 0.1 and frame == "base":
                self.last_command = self.clock.now
                self.zeroed = self.zeroed or zero
            else:
                self.zeroed = False
            self.periods(1)

    @rule(sequence=st.lists(st.integers(1, 5), min_size=2, max_size=6))
    def two_commanders(self, sequence: list[int]) -> None:
        for number in sequence:
            self.control.command(FORWARD, "base", self.clock.time(), number)
            self.last_command = self.clock.now
            self.periods(1)

    @rule(seconds=st.sampled_from([0.05, 0.3, 2.0, 11.0]))
    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.periods(5)
        if seconds > 10.0:
            self.granted = False

    @precondition(lambda self: self.control.state is State.IDLE)
    @rule()
    def drive(self) -> None:
        """A person permits, a commander starts from rest and moves."""
        self.enable(True)
        self.command(True, 1, 0.0, "base")
        self.command(False, 10, 0.0, "base")

    @rule(step=st.sampled_from([-10.0, 10.0, -0.2, 3600.0]), n=st.integers(0, 10))
    def set_the_clock(self, step: float, n: int) -> None:
        """While somebody commands, or nobody does."""
        self.clock.ahead += step
        self.zeroed = False
        for _ in range(n):
            self.control.command(FORWARD, "base", self.clock.time())
            self.last_command = self.clock.now
            self.periods(1)

    @precondition(lambda self: self.arm.mode is ArmMode.READY)
    @rule(locked=st.booleans())
    def fault(self, locked: bool) -> None:
        self.arm.mode, self.arm.faults, self.arm.locked = ArmMode.FAULT, ("protective stop",), locked
        self.periods(2)
        self.granted = False

    @precondition(lambda self: self.arm.mode is ArmMode.RECOVERING)
    @rule()
    def recovered(self) -> None:
        self.arm.mode, self.arm.faults, self.arm.locked = ArmMode.READY, (), False
        self.periods(2)

    @rule(back=st.booleans())
    def link(self, back: bool) -> None:
        self.arm.reachable = back
        if not back:
            self.granted = False
        self.clock.now += 6.0  # a new attempt to connect
        self.periods(3)
        if not back or self.control.state in (State.IDLE, State.FAULT):
            self.granted = False

    @invariant()
    def a_stop_is_kept(self) -> None:
        if hasattr(self, "control") and self.called:
            assert self.control.state in (State.FAULT, State.DISCONNECTED), f"a stop was lost: {self.control.status}"

    @invariant()
    def latched(self) -> None:
        if hasattr(self, "control") and self.control.state in (State.FAULT, State.IDLE, State.DISCONNECTED):
            self.periods(15)
            assert self.speed == 0.0, f"moves in {self.control.state}"


TestOperation = Operation.TestCase
TestOperation.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
