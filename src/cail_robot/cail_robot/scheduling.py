"""Real-time scheduling where the system permits it, so that a busy machine does not hold up an arm's loop or its stop."""

from __future__ import annotations

import os

PRIORITY = 20
"""Of 99; above all normal work, below the kernel's interrupt threads."""
SWITCH = "CAIL_REALTIME"
"""Set to 0 in the environment, nothing asks for it."""


def realtime(priority: int) -> bool:
    """SCHED_FIFO for this thread and the threads and processes that it starts; False if not permitted, or for priority 0."""
    if priority <= 0 or os.environ.get(SWITCH) == "0":
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except (OSError, AttributeError):
        return False
    return True


def ask_for_realtime() -> str:
    """`realtime` at the usual priority, and what came of it in words."""
    if realtime(PRIORITY):
        return f"real-time scheduling, priority {PRIORITY}"
    if os.environ.get(SWITCH) == "0":
        return f"no real-time scheduling: {SWITCH}=0"
    return "no real-time scheduling: not permitted here (give this user rtprio in /etc/security/limits.conf)"
