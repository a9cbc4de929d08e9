"""The desk of a recording session: input in, twists out, one-key control of episodes, and what the screen shows. No ROS here."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable

from cail_core.errors import BadInput, CailError
from cail_core.terminal import bold, dim, fit
from cail_robot.recording.recorder import Recorder
from cail_robot.ros.arm_link import ArmLink, let_go
from cail_robot.teleop.command import (
    FAILURE,
    GRIP,
    LEAVE,
    QUIT,
    RECOVER,
    REDO,
    RESET,
    START,
    STOP,
    SUCCESS,
    UNLOCK,
    Confirmation,
    Input,
    Steering,
)

SETTLE_S = 0.3
"""After a reset, so long until an episode begins by itself: the scene's first messages are in by then."""


class Desk:
    """One step after another: read the input, move the arm, do what was asked."""

    def __init__(self, source: Input, link: ArmLink, recorder: Recorder, steering: Steering, title: str,
                 clock: Callable[[], float] = time.monotonic, simulated: bool = False) -> None:  # fmt: skip
        """`simulated`: what the person said of the arm; one that says otherwise is not permitted to move."""
        self._input, self._link, self._recorder, self._steering = source, link, recorder, steering
        self._title, self._clock, self._simulated = title, clock, simulated
        self.message = "c permits motion, Enter starts an episode"
        self.ended = False
        self.broken_off = False
        """Whether it ended by Ctrl-C or with the terminal, not by q."""
        self._leave_armed = False
        self._redo = False
        self._start_at: float | None = None
        self._closed: bool | None = None
        self._confirmation = Confirmation()

    def step(self, timeout_s: float) -> None:
        wish = self._input.read(timeout_s)
        self._link.move(self._steering.twist(wish))
        for event in wish.events:
            try:
                self._do(event)
            except CailError as fault:
                self.message = str(fault)
        self._hear()
        self._recorder.check()
        self.message = getattr(self._input, "trouble", "") or self.message

    def _do(self, event: str) -> None:
        if event != QUIT:
            self._leave_armed = False
        if event == START:
            self._begin()
        elif event in (SUCCESS, FAILURE):
            says = self._recorder.task_outcome
            saved = self._recorder.save(event)
            against = f"; the task says {says}" if event == SUCCESS and says not in (None, "success") else ""
            self.message = f"saved episode {saved.episode} as {saved.outcome}: {saved.frames} frames, {saved.bag.name}{against}"
        elif event == REDO:
            self._recorder.discard()
            self._redo = True
            self.message = "discarded; the scene is being put back"
            self._link.reset()
        elif event == RESET:
            if self._recorder.recording:
                self.message = "save or discard the open episode before the scene is put back"
            else:
                self.message = "the scene is being put back"
                self._link.reset()
        elif event == GRIP:
            closed = self._closed if self._closed is not None else (self._link.report.gripper or 0.0) < 0.7
            self._closed = not closed
            self._link.grip(0.0 if self._closed else 1.0)
        elif event == STOP:
            self._link.stop()
            self.message = "stopped; c clears it"
        elif event == RECOVER:
            if self._simulated and self._link.simulated is False:
                self.message = "motion was not permitted: this is a real arm, and a simulated one was asked for (--robot)"
            else:
                self._link.permit()
        elif event == UNLOCK:
            if self._confirmation.given(self._clock()):
                self._link.unlock()
            else:
                self.message = Confirmation.QUESTION
        elif event == QUIT:
            if self._recorder.recording and not self._leave_armed:
                self._leave_armed = True
                self.message = "an episode is open: s or f saves it, q again leaves without it"
            else:
                self.ended = True
        elif event == LEAVE:
            self.ended = self.broken_off = True

    def _begin(self) -> None:
        if self._link.note:
            raise BadInput(f"recording does not start: {self._link.note}")
        number = self._recorder.start()
        self.message = f"recording episode {number}"

    def _hear(self) -> None:
        answer = self._link.answer()
        if answer is not None:
            what, done, words = answer
            self.message = words
            if what == "reset":
                self._closed = None
                self._start_at = self._clock() + SETTLE_S if done and self._redo else None
                self._redo = False
        if self._start_at is not None and self._clock() >= self._start_at:
            self._start_at = None
            try:
                self._begin()
            except CailError as fault:
                self.message = str(fault)

    def leave(self, *, latch: bool) -> None:
        """At the end: no motion, nor a permission to move that nobody uses; the open episode forgotten."""
        let_go(self._link, latch=latch or self.broken_off)
        self._input.close()

    # What is seen.

    def line(self) -> str:
        """All of it in one line, where there is no screen."""
        return f"{self._link.report.state} | {self._episode()} | {self._counts()} | {self._recorder.warning or self.message}"

    def screen(self, width: int, height: int) -> list[str]:
        report, recorder = self._link.report, self._recorder
        at = " ".join(f"{name} {value:+.3f}" for name, value in zip("xyz", report.position, strict=False))
        gripper = "" if report.gripper is None else f"gripper {100 * report.gripper:.0f}% open"
        words = [line for text in (recorder.warning, self.message) if text for line in textwrap.wrap(text, width - 2)[:4]]
        lines = [
            bold(fit(self._title, width)),
            "",
            fit(f"arm       {report.state}", width),
            fit(f"filter    {report.warning or '–'}", width),
            fit(f"tool      {at}   {gripper}", width),
            fit(f"speed     preset {self._steering.preset}: {self._steering.linear_speed:g} m/s", width),
            "",
            (bold if recorder.recording else dim)(fit(f"episode   {self._episode()}", width)),
            fit(f"session   {self._counts()}", width),
            "",
            *(bold(fit(line, width)) if line in words[: 4 if recorder.warning else 0] else fit(line, width) for line in words),
        ]
        keys = [dim(fit(line, width)) for text in self._input.help for line in textwrap.wrap(text, width)]
        room = height - len(keys)
        return [*lines[:room], *[""] * (room - len(lines)), *keys]

    def _episode(self) -> str:
        recorder = self._recorder
        if not recorder.recording:
            return f"{recorder.episodes} is next: Enter starts it"
        said = f", the task says {recorder.task_outcome}" if recorder.task_outcome else ""
        return f"{recorder.episodes} RECORDING {recorder.seconds:6.1f} s, {recorder.frames} frames{said}"

    def _counts(self) -> str:
        recorder = self._recorder
        outcomes = ", ".join(f"{count} {name}" for name, count in recorder.outcomes.items())
        return (
            f"saved {len(recorder.saved)}{f' ({outcomes})' if outcomes else ''}, discarded {recorder.discarded}, "
            f"{recorder.episodes} in the dataset"
        )
