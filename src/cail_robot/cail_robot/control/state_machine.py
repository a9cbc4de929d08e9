"""Who may move the arm and when: the states of an arm's node and what one control period does. Plain Python, no ROS.

DISCONNECTED → IDLE → ENABLED → (HOLDING) → FAULT. Motion only when ENABLED. Whenever motion has ended by something else than a
zero command (enabling, a stale or refused command, another publisher), the next motion starts only from a zero command.
FAULT is latched: `clear_fault`, at rest, leads to IDLE. So does an enabled arm that nobody has commanded for `disable_after_s`.
"""

from __future__ import annotations

import contextlib
import enum
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from cail_core.errors import ConfigError
from cail_robot.arm import STILL, Arm, ArmError, ArmMode, ArmState, Twist
from cail_robot.safety.filter import CLIPPED, Outcome, SafetyFilter, Verdict, refuse
from cail_robot.safety.limits import Limits

T = TypeVar("T")

RECONNECT_S = (0.5, 1.0, 2.0, 5.0)
"""Waits between attempts to connect; the last one repeats."""
LINK_TIMEOUT_S = 0.2
"""A state whose time does not advance for this long is a dead link."""
PUBLISHERS_QUIET_S = 0.5
"""After two publishers were heard, one must speak alone for this long."""
STATUS_EVERY_S = 0.1
"""What the filter does is said at most this often; changes of state always."""
CLOCK_STEP_S = 0.05
"""From one period to the next the stamps' clock and the monotonic one may part by this; by more, somebody has set the clock."""
REST_SPEED = 0.01
"""m/s or rad/s: a measured tool slower than this is at rest."""


class State(enum.Enum):
    DISCONNECTED = "DISCONNECTED"
    IDLE = "IDLE"
    ENABLED = "ENABLED"
    HOLDING = "HOLDING"
    FAULT = "FAULT"


class StatusCode(enum.IntEnum):
    """The status as a number, for programs; what it says is for people. Numbers are never given a new meaning."""

    UNKNOWN = 0
    """Nothing was heard yet."""
    DISCONNECTED = 1
    IDLE = 2
    AWAITING_ZERO = 3
    """Enabled: the next motion starts from a zero command."""
    ENABLED = 4
    """Motion is permitted."""
    HOLDING = 5
    FAULT = 6
    SAFETY_STOP = 7
    """A fault: the arm's own safety system has stopped it."""

    @classmethod
    def read(cls, values: Mapping[str, str]) -> StatusCode:
        """The code among the values of a status message; a node of an older version has the state's name in its place."""
        if values.get("code", "").isdecimal() and int(values["code"]) in set(cls):
            return cls(int(values["code"]))
        if values.get("state") == "ENABLED" and values.get("zero_command_awaited") != "False":
            return cls.AWAITING_ZERO
        return cls.__members__.get(values.get("state", ""), cls.UNKNOWN)


@dataclass(frozen=True)
class Status:
    """The state with the reason for it, what the filter last did, and whether a zero command is awaited."""

    state: State
    reason: str
    verdict: Verdict = Verdict.STOPPED
    text: str = ""
    needs_zero: bool = True
    safety_stop: bool = False
    """Of a fault: whether the arm's own safety system made it."""
    note: str = ""
    """What a person should know although the arm can move."""

    @property
    def code(self) -> StatusCode:
        if self.state is State.ENABLED and self.needs_zero:
            return StatusCode.AWAITING_ZERO
        if self.state is State.FAULT and self.safety_stop:
            return StatusCode.SAFETY_STOP
        return StatusCode[self.state.value]


class Command(NamedTuple):
    twist: Twist
    arrived: float
    """On the monotonic clock."""


class Cycle(NamedTuple):
    """What one control period saw and sent."""

    state: ArmState
    executed: Twist
    """In the period before: what led to `state`."""
    requested: Twist | None
    outcome: Outcome


class ArmControl:
    """One arm behind its filter. `cycle` belongs to the control thread; everything else may be called from any thread."""

    def __init__(
        self,
        arm: Arm,
        limits: Limits,
        now: Callable[[], float] = time.time,
        on_status: Callable[[Status], None] = lambda status: None,
        command_times_out: bool = True,
    ) -> None:
        """`now`: the clock of the commands' stamps. `command_times_out` is False where time itself waits for commands."""
        self.arm = arm
        self.filter = SafetyFilter(limits, arm.period)
        self.refusals: Counter[Verdict] = Counter()
        self.received = 0
        self.not_moved_for = 0
        self.status = Status(State.DISCONNECTED, "not connected yet")
        self._now = now
        self._on_status = on_status
        self._times_out = command_times_out
        self._lock = threading.RLock()
        self._errands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._command: Command | None = None
        self._gripper: float | None = None
        self._last_stamp = float("-inf")
        self._last_sequence = 0
        self._alone_since = float("-inf")
        self._recovering = False
        self._latched: str | None = None
        self._stops = 0
        self._heard_at = time.monotonic()
        self._clock_ahead: float | None = None
        self._safety_stop = False
        self._shown_at = 0.0
        self._arm_state: ArmState | None = None
        self._advanced = time.monotonic()
        self._attempts, self._next_attempt = 0, 0.0

    @property
    def state(self) -> State:
        return self.status.state

    # What comes in.

    def command(self, twist: Twist, frame: str, stamp: float, sequence: int | None = None) -> None:
        """A new twist; `sequence` is the publisher's count of its messages, by which a second publisher is noticed."""
        arrived = time.monotonic()
        with self._lock:
            self.received += 1
            self._heard_at = arrived
            self._watch_clock(time.monotonic())
            if sequence is not None and self._another_publisher(sequence, arrived):
                return self._drop(Verdict.OUT_OF_ORDER, "two publishers send commands; let one of them speak", stops=True)
            refused = refuse(twist, frame, self._now() - stamp, self.filter.limits, self.arm.base_frame)
            if refused is not None:
                return self._drop(*refused, stops=True)
            if stamp < self._last_stamp:
                return self._drop(Verdict.OUT_OF_ORDER, "a newer command came before it", stops=False)
            self._last_stamp = stamp
            if self.status.needs_zero:
                if twist != STILL:
                    self.not_moved_for += 1
                elif self.state in (State.ENABLED, State.HOLDING) and arrived - self._alone_since >= PUBLISHERS_QUIET_S:
                    self._become(State.ENABLED, "motion is permitted", Verdict.PASSED, needs_zero=False)
            self._command = Command(twist, arrived)
            return None

    def crowded(self, why: str) -> None:
        """More than one may command: hold, and take no zero until one has been alone for a while."""
        with self._lock:
            self._alone_since = time.monotonic()
            self._drop(Verdict.OUT_OF_ORDER, why, stops=True)

    def grip(self, opening: float) -> None:
        """A new opening of the gripper, 0 … 1; only when ENABLED."""
        with self._lock:
            if not 0.0 <= opening <= 1.0:
                self.refusals[Verdict.NOT_FINITE] += 1
            elif self.state is State.ENABLED:
                self._gripper = opening
            else:
                self.refusals[Verdict.STOPPED] += 1

    def enable(self, on: bool) -> tuple[bool, str]:
        with self._lock:
            if not on:
                if self.state in (State.ENABLED, State.HOLDING):
                    self._become(State.IDLE, "motion was disabled")
                return True, f"{self.state.value}: motion is not permitted"
            if self.state in (State.DISCONNECTED, State.FAULT):
                way = "clear_fault first" if self.state is State.FAULT else "wait until the arm is connected"
                return False, f"{self.state.value}: {self.status.reason}; {way}"
            if self.state is State.IDLE:
                self._command, self._heard_at = None, time.monotonic()
                self._become(State.ENABLED, "motion was enabled; waiting for a zero command")
            return True, f"{self.state.value}: {self.status.reason}"

    def stop(self, reason: str) -> None:
        """Latch a stop."""
        with self._lock:
            self._stops += 1
            self._fault(reason)

    def clear_fault(self, *, unlock: bool = False) -> tuple[bool, str]:
        """`unlock`: a person has looked, nobody is clamped, and the arm may be unlocked, powered and its brakes released."""
        with self._lock:
            state = self._arm_state
            if self.state is not State.FAULT:
                return True, f"{self.state.value}: no fault to clear"
            if state is None:
                return False, "FAULT: nothing was read from the arm yet"
            if not self.filter.motion.at_rest() or max(map(abs, state.twist)) > REST_SPEED:
                return False, "FAULT: the arm still moves; a fault is cleared at rest"
            if state.mode is ArmMode.READY:
                self._latched = None
                self._become(State.IDLE, "the fault was cleared")
                return True, "IDLE: the fault was cleared; enable permits motion"
            if state.locked and not unlock:
                return False, f"FAULT: {_texts(state)}. See that nobody is clamped and the cause is gone: `unlock` (key u, twice)"
            stops = self._stops
            self._errands.put(lambda: self._recover(stops))
            return True, f"FAULT: recovering from: {_texts(state)}; status tells when it is over"

    def set_limits(self, limits: Limits) -> None:
        """New limits; ConfigError while motion is enabled or the arm moves."""
        with self._lock:
            if self.state in (State.ENABLED, State.HOLDING) or not self.filter.motion.at_rest():
                raise ConfigError(f"limits change only while motion is disabled, the state is {self.state.value}: disable first")
            renewed = SafetyFilter(limits, self.arm.period)
            renewed.counts = self.filter.counts
            self.filter = renewed

    def start_anew(self) -> None:
        """The arm was put somewhere else, at rest: forget the motion and the command."""
        with self._lock:
            self.filter.reset()
            self._command = None

    def in_loop(self, errand: Callable[[], T], timeout_s: float = 5.0) -> T:
        """Run something between two periods, in the control thread, where the arm may be touched, and give its result."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(errand())
            except Exception as fault:  # whatever it is, it belongs to the caller
                done.set_exception(fault)

        self._errands.put(run)
        return done.result(timeout_s)

    # One period.

    def cycle(self) -> Cycle | None:
        """Read, filter, send; None while there is no arm. ArmError never leaves it: it becomes a state."""
        if self.state is State.DISCONNECTED and not self._connected():
            return None
        try:
            if self._times_out:
                self.run_errands()
            state = self.arm.read()
            with self._lock:
                self._watch(state)
                requested = self._permitted()
                gripper, self._gripper = self._gripper, None
                executed = self.filter.motion.twist
                outcome = self.filter.step(requested, state)
            if gripper is not None:
                self.arm.send_gripper(gripper)
            self.arm.send_twist(outcome.twist)
        except ArmError as fault:
            self._disconnect(str(fault))
            return None
        self._report(outcome)
        return Cycle(state, executed, requested, outcome)

    def run_errands(self) -> None:
        """What other threads asked for by `in_loop`. A loop that waits for commands does it between them, in the order given."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._errands.get_nowait()()

    def close(self) -> None:
        """Zero velocity, then let go of the arm; the control thread has ended."""
        with contextlib.suppress(ArmError):
            if self.state is not State.DISCONNECTED:
                self.arm.stop()
        self.arm.close()

    def brake(self) -> None:
        """Ramp to rest within the deceleration limit, in the control thread, before closing."""
        with self._lock:
            if self.state in (State.ENABLED, State.HOLDING):
                self._become(State.IDLE, "the node ends")

    def _connected(self) -> bool:
        now = time.monotonic()
        if now < self._next_attempt:
            return False
        try:
            self.arm.connect()
            self._arm_state = self.arm.read()
        except ArmError as fault:
            self._next_attempt = time.monotonic() + RECONNECT_S[min(self._attempts, len(RECONNECT_S) - 1)]
            self._attempts += 1
            with self._lock:
                self._become(State.DISCONNECTED, str(fault))
            return False
        with self._lock:
            self._attempts, self._advanced = 0, time.monotonic()
            self.filter.reset()
            if self._latched is not None:
                self._become(State.FAULT, self._latched, safety_stop=self._safety_stop)
            else:
                self._become(State.IDLE, f"connected to {self.arm.name}")
        return True

    def _recover(self, stops: int) -> None:
        """Unless somebody has called a stop since it was asked for."""
        with self._lock:
            if stops != self._stops:
                return
            self._recovering = True
        self.arm.recover()

    def _fault(self, reason: str, safety_stop: bool = False) -> None:
        """Latched: a lost and regained link does not clear it."""
        self._recovering, self._latched, self._safety_stop = False, reason, safety_stop
        if self.state is not State.DISCONNECTED:
            self._become(State.FAULT, reason, safety_stop=safety_stop)

    def _disconnect(self, reason: str) -> None:
        with self._lock:
            self.filter.reset()
            self._arm_state, self._recovering = None, False
            self._next_attempt = time.monotonic() + RECONNECT_S[0]
            self._become(State.DISCONNECTED, reason)

    def _watch(self, state: ArmState) -> None:
        """What the arm says about itself."""
        now = time.monotonic()
        if self._arm_state is None or state.time != self._arm_state.time:
            self._advanced = now
        self._arm_state = state
        self._watch_clock(time.monotonic())
        if self._times_out and now - self._advanced > LINK_TIMEOUT_S:
            return self._fault(f"the arm's clock stands still for {LINK_TIMEOUT_S:g} s: the link is dead")
        if (note := "; ".join(state.notes)) != self.status.note:
            self.status = replace(self.status, note=note)
            self._on_status(self.status)
        if state.mode is ArmMode.READY:
            if self._recovering:
                self._recovering, self._latched = False, None
                self._become(State.IDLE, "the arm has recovered")
        elif state.mode is not ArmMode.RECOVERING:
            self._fault(_texts(state), state.safety_stop)
        return None

    def _watch_clock(self, now: float) -> None:
        """Stamps are compared with a clock that a time service may set; then nothing goes on without a zero command."""
        if not self._times_out:
            return
        ahead = self._now() - now
        if time.monotonic() - now > 0.2 * CLOCK_STEP_S:  # held up between the two clocks: that tells nothing
            return
        before, self._clock_ahead = self._clock_ahead, ahead
        if before is not None and abs(step := self._clock_ahead - before) > CLOCK_STEP_S:
            self._last_stamp = float("-inf")
            text = f"this machine's clock was set by {step:+.3g} s; see to its time service"
            self._drop(Verdict.OUT_OF_ORDER, text, stops=True)

    def _permitted(self) -> Twist | None:
        """The twist to ask the filter for; None brakes."""
        silent_s = time.monotonic() - self._heard_at
        if self._times_out and self.state in (State.ENABLED, State.HOLDING) and silent_s > self.filter.limits.disable_after_s:
            self._become(State.IDLE, f"motion was disabled: no command for {self.filter.limits.disable_after_s:g} s")
        if self.state is not State.ENABLED or self._command is None:
            return None
        age = time.monotonic() - self._command.arrived
        if self._times_out and age > self.filter.limits.stale_after_s and self._command.twist != STILL:
            if not self.status.needs_zero:
                self.refusals[Verdict.STALE] += 1
                self._become(State.HOLDING, f"no command for {self.filter.limits.stale_after_s:g} s", Verdict.STALE)
            return None
        return None if self.status.needs_zero else self._command.twist

    def _another_publisher(self, sequence: int, arrived: float) -> bool:
        """A publisher's counter only rises: a fall is somebody else's. A new one after silence is no fight."""
        fell, self._last_sequence = sequence <= self._last_sequence, sequence
        if not fell or self._command is None or arrived - self._command.arrived > PUBLISHERS_QUIET_S:
            return False
        self._alone_since = arrived
        return True

    def _drop(self, verdict: Verdict, text: str, stops: bool) -> None:
        self.refusals[verdict] += 1
        if stops and (self.state is State.ENABLED or (self.state is State.HOLDING and self.status.verdict is not verdict)):
            self._become(State.HOLDING, text, verdict)

    def _become(self, state: State, reason: str, verdict: Verdict = Verdict.STOPPED, needs_zero: bool = True,
                safety_stop: bool = False) -> None:  # fmt: skip
        if (state, reason, needs_zero) != (self.status.state, self.status.reason, self.status.needs_zero):
            self.status = Status(state, reason, verdict, "", needs_zero, safety_stop, self.status.note)
            self._on_status(self.status)

    def _report(self, outcome: Outcome) -> None:
        """The status follows what the filter does to a command in motion."""
        with self._lock:
            if self.state is not State.ENABLED or self.status.needs_zero:
                return
            shown = outcome.verdict if outcome.verdict in CLIPPED else Verdict.PASSED
            now = time.monotonic()
            if shown is not self.status.verdict and now - self._shown_at > STATUS_EVERY_S:
                self._shown_at = now
                text = outcome.text if shown is not Verdict.PASSED else "as requested"
                self.status = replace(self.status, verdict=shown, text=text)
                self._on_status(self.status)


def _texts(state: ArmState) -> str:
    return "; ".join(state.faults) or f"the arm is {state.mode.value}"
