"""The one owner of pacing: a loop that sleeps to its next deadline and keeps how well it did."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Periods:
    """How long the periods of a loop were, in seconds, and how many deadlines were missed."""

    count: int
    p50: float
    p99: float
    max: float
    overruns: int


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` of an ascending sequence does not exceed; 0 for an empty one."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def summarise(values: Sequence[float], overruns: int = 0) -> Periods:
    ordered = sorted(values)
    return Periods(len(ordered), percentile(ordered, 0.5), percentile(ordered, 0.99), ordered[-1] if ordered else 0.0, overruns)


class Pace:
    """Sleeps until the next multiple of `period`; after a late round it goes on from now instead of hurrying."""

    def __init__(self, period: float) -> None:
        self.period = period
        self._deadline = time.monotonic()
        self._began: float | None = None
        self._periods: list[float] = []
        self._overruns = 0

    def wait(self) -> None:
        """End this round: sleep what is left of it."""
        self._deadline += self.period
        left = self._deadline - time.monotonic()
        if left > 0:
            time.sleep(left)
        else:
            self._overruns += 1
            self._deadline -= left
        now = time.monotonic()
        if self._began is not None:
            self._periods.append(now - self._began)
        self._began = now

    def take(self) -> Periods:
        """The periods since the last call; the loop's thread or another may ask."""
        periods, self._periods = self._periods, []
        overruns, self._overruns = self._overruns, 0
        return summarise(periods, overruns)
