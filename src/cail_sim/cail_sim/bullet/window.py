"""PyBullet's window: whether one can be opened, and what it shows."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cail_core.errors import BadInput

SIZE = "--width=1280 --height=800"
CAMERA = (1.1, 50.0, -35.0, (0.4, -0.1, 0.15))
"""Distance, yaw, pitch and what it looks at: the table from the arm's left, with the whole arm."""


def need_display() -> None:
    """BadInput where a window cannot be opened: PyBullet would end the process without a word."""
    if not has_display():
        given = os.environ.get("DISPLAY")
        found = f"DISPLAY={given}, where no X server answers" if given else "no DISPLAY"
        raise BadInput(f"expected a display for the simulator's window, found {found}; leave out --window, or log in with ssh -X")


@contextmanager
def ordinary_scheduling() -> Iterator[None]:
    """For the threads that draw: with the real-time priority of the arm's loop they would leave it no processor."""
    try:
        policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except (OSError, AttributeError):
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameter)


def open_window(p: Any) -> int:
    """A client of the engine with a window that looks at the table."""
    with ordinary_scheduling():
        client: int = p.connect(p.GUI, options=SIZE)
    if client >= 0:
        p.resetDebugVisualizerCamera(*CAMERA, physicsClientId=client)
    return client


def has_display() -> bool:
    """Whether an X server answers. PyBullet ends the whole process where none does, so this must be known before."""
    if sys.platform != "linux":
        return True
    host, _, number = os.environ.get("DISPLAY", "").partition(":")
    number = number.partition(".")[0]
    if not number.isdecimal():
        return False
    if host not in ("", "unix"):
        return _answers(socket.AF_INET, (host, 6000 + int(number)))
    path = f"/tmp/.X11-unix/X{number}"
    return _answers(socket.AF_UNIX, path) or _answers(socket.AF_UNIX, "\0" + path)


def _answers(family: socket.AddressFamily, address: Any) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.settimeout(2.0)
        try:
            trial.connect(address)
        except OSError:
            return False
    return True
