"""A control box for a test, and a process that is scheduled promptly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cail_sim.ursim.process import BoxProcess as RunningBox

__all__ = ["RunningBox", "prompt_process", "running_box"]


def running_box(*options: str) -> RunningBox:
    return RunningBox(*options)


@contextmanager
def prompt_process() -> Iterator[None]:
    """Real-time scheduling for this process where permitted, so that a busy machine does not look like a fault."""
    try:
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)
