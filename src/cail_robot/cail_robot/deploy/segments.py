"""The recording of a deployment, in a thread of its own: saving must not hold up a command.

An episode of the dataset has one commander, who is its demonstrator. Where the command changes hands the recording is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from cail_core.errors import CailError
from cail_robot.recording.recorder import Recorder, RecordingRefused


class Parts:
    """Starts, cuts and discards recordings one after the other; without a recorder it does nothing."""

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="saving")
        self._job: Future[None] | None = None
        self.lost = 0
        """Parts that could not be recorded."""
        self.trouble = ""
        """Why the last one could not be."""

    @property
    def busy(self) -> bool:
        if self._job is not None and self._job.done():
            job, self._job = self._job, None
            job.result()  # an error of this program is not passed over
        return self._job is not None

    @property
    def open(self) -> bool:
        """Whether what happens now is recorded, or need not be."""
        return self._recorder is None or self._recorder.recording

    def has_recorded(self, stamp_ns: int) -> bool:
        """Whether the recorder, which hears of everything a little later, has a frame of what was seen then."""
        return self._recorder is None or not self._recorder.recording or self._recorder.reached_ns >= stamp_ns

    def check(self) -> None:
        """Call in every decision: a recorder that stopped by itself is said."""
        if self._recorder is not None and not self.busy:
            self._recorder.check()
            self.trouble = self._recorder.warning or self.trouble

    def start(self, by: str) -> None:
        self._submit(lambda recorder: self._start(recorder, by))

    def cut(self, outcome: str, by: str, then: str | None = None, why: str = "") -> None:
        """Save what one has commanded, and go on recording what the next one commands."""
        self._submit(lambda recorder: self._cut(recorder, outcome, by, then, why))

    def discard(self) -> None:
        self._submit(_discard)

    def close(self) -> None:
        """What is being saved is completed."""
        self._worker.shutdown(wait=True)

    @property
    def on(self) -> bool:
        """Whether anything is recorded at all."""
        return self._recorder is not None

    def _submit(self, job: Callable[[Recorder], None]) -> None:
        recorder = self._recorder
        if recorder is not None:
            self._job = self._worker.submit(job, recorder)

    def _start(self, recorder: Recorder, by: str) -> None:
        recorder.demonstrator = by
        try:
            recorder.start()
            self.trouble = ""
        except CailError as fault:
            self.trouble = str(fault)

    def _cut(self, recorder: Recorder, outcome: str, by: str, then: str | None, why: str) -> None:
        recorder.demonstrator = by
        try:
            if not recorder.recording:
                raise RecordingRefused(recorder.warning)
            if recorder.frames:
                recorder.save(outcome, why)
            else:
                recorder.discard()
        except (CailError, OSError) as fault:
            self.lost += 1
            self.trouble = f"not recorded: {fault}"
        if then is not None:
            self._start(recorder, then)


def _discard(recorder: Recorder) -> None:
    if recorder.recording:
        recorder.discard()
