"""A control box for a test, and a process that is scheduled promptly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cail_robot.control.realtime import realtime
from cail_sim.ursim.process import BoxProcess as RunningBox

__all__ = ["RunningBox", "box", "prompt_process", "running_box", "shared"]


def running_box(*options: str) -> RunningBox:
    return RunningBox(*options)


@contextmanager
def prompt_process() -> Iterator[None]:
    """Real-time scheduling for this process where permitted, so that a busy machine does not look like a fault."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    if not realtime(10):
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningBox]:
    with prompt_process(), running_box() as box:
        yield box


@pytest.fixture
def box(shared: RunningBox) -> RunningBox:
    shared.fault("reset")
    return shared
