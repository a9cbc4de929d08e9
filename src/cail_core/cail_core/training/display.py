"""The line a person watches during training."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from types import TracebackType

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cail_core.cli import say
from cail_core.progress import console

PLAIN_EVERY_S = 10.0
"""Where no bar can be drawn, such as under a launcher, a line this often."""
SHOWN = {"return": "return", "outer_loss": "outer loss", "confidence_spread": "confidence spread"}


class Display:
    """A progress bar on stderr with return, outer loss, confidence spread, steps/s and the time left."""

    def __init__(self, steps: int, done: int, text: str, show: bool) -> None:
        columns = (TextColumn(text), BarColumn(bar_width=20), TextColumn("{task.completed:.0f}/{task.total:.0f}"),
                   TextColumn("{task.fields[facts]}"), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
        out = console(stderr=True)
        self._plain = show and not out.is_terminal
        self._said_at = time.monotonic()
        self._progress = Progress(*columns, console=out, disable=not show or self._plain, speed_estimate_period=120)
        self._job = self._progress.add_task(text, total=steps, completed=done, facts="", rate="")

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def show(self, done: int, metrics: Mapping[str, float]) -> None:
        facts = "  ".join(f"{text} {metrics[name]:.2f}" for name, text in SHOWN.items()
                          if name in metrics and not math.isnan(metrics[name]))
        if self._plain and time.monotonic() - self._said_at >= PLAIN_EVERY_S:
            self._said_at = time.monotonic()
            job = self._progress.tasks[0]
            say(f"{job.description}: {done} of {job.total:.0f} steps  {facts}".rstrip())
        speed = self._progress.tasks[0].speed
        self._progress.update(self._job, completed=done, facts=facts, rate=f"{speed:.0f} steps/s" if speed else "")

    def ends_here(self) -> None:
        """What is done is all: training may end before its last step."""
        self._progress.update(self._job, total=self._progress.tasks[0].completed)
