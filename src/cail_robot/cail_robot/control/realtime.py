"""Real-time scheduling where the system permits it, so that a busy machine does not hold up an arm's loop or its stop."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import BinaryIO

PRIORITY = 20
"""Of an arm's node, of 99; above all normal work, below the kernel's interrupt threads."""
COMMANDER_PRIORITY = 10
"""Of who commands an arm that another process moves."""
SWITCH = "CAIL_REALTIME"
"""Set to 0 in the environment, nothing asks for it."""
SLEEP = Path("/dev/cpu_dma_latency")
"""While a process holds this file open with a 0 in it, Linux lets no processor sleep: one that does takes up to milliseconds to
wake up, in a virtual machine more."""
_held: list[BinaryIO] = []
LOCK_NOW, LOCK_LATER = 1, 1 | 2 | 4
"""mlockall: everything that is mapped now (MCL_CURRENT); what is mapped later too (MCL_FUTURE), a page from its first use on
(MCL_ONFAULT)."""


def realtime(priority: int) -> bool:
    """SCHED_FIFO for this thread and the threads and processes that it starts; False if not permitted, or for priority 0."""
    if priority <= 0 or os.environ.get(SWITCH) == "0":
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except (OSError, AttributeError):
        return False
    stay_awake()
    stay_in_memory()
    return True


def stay_in_memory() -> bool:
    """Keep this process's pages from being dropped and read from disk again in the middle of a period; False if not permitted."""
    try:
        lock = ctypes.CDLL(None).mlockall
        return bool(lock(LOCK_NOW) == 0 and lock(LOCK_LATER) == 0)
    except (OSError, AttributeError):
        return False


def stay_awake() -> bool:
    """Keep the processors from sleeping until this process ends; False if not permitted."""
    if not _held:
        try:
            held = SLEEP.open("wb", buffering=0)
            held.write((0).to_bytes(4, "little"))
        except OSError:
            return False
        _held.append(held)
    return True


def ask_for_realtime(priority: int = PRIORITY) -> str:
    """`realtime`, and what came of it in words."""
    if realtime(priority):
        sleep = "the processors stay awake" if _held else f"the processors may sleep ({SLEEP} cannot be written)"
        return f"real-time scheduling, priority {priority}; {sleep}"
    if os.environ.get(SWITCH) == "0":
        return f"no real-time scheduling: {SWITCH}=0"
    return "no real-time scheduling: not permitted here (give this user rtprio in /etc/security/limits.conf)"
