"""Real-time scheduling where the system permits it."""

from __future__ import annotations

import os


def realtime(priority: int) -> bool:
    """SCHED_FIFO for this process and the threads and processes that it starts; False if not permitted, or for priority 0."""
    if priority <= 0:
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except (OSError, AttributeError):
        return False
    return True
