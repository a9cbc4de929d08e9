"""A control box in a process of its own, on a loopback address of its own, so that tests run side by side."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cail_sim.ursim.faults import FaultClient
from cail_sim.ursim.server import Ports


def free_host() -> str:
    """A loopback address on which none of the box's ports is taken."""
    rng = random.SystemRandom()
    while True:
        host = f"127.{rng.randrange(1, 255)}.{rng.randrange(256)}.{rng.randrange(1, 255)}"
        try:
            for port in vars(Ports()).values():
                with socket.socket() as probe:
                    probe.bind((host, port))
        except OSError:
            continue
        return host


class RunningBox:
    """The process, its address and its fault port."""

    def __init__(self, host: str, process: subprocess.Popen[bytes]) -> None:
        self.host, self.process = host, process
        self.fault = FaultClient(host)

    def status(self) -> dict[str, object]:
        return self.fault("status")

    def wait_for(self, timeout_s: float = 10.0, **wanted: object) -> dict[str, object]:
        """Until the status has these values."""
        end = time.monotonic() + timeout_s
        while True:
            now = self.status()
            if all(now[name] == value for name, value in wanted.items()):
                return now
            assert time.monotonic() < end, f"expected {wanted}, the box says {now}"
            time.sleep(0.005)


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


@contextmanager
def running_box(*options: str) -> Iterator[RunningBox]:
    host = free_host()
    command = [sys.executable, "-m", "cail_core.cli", "ursim", "--host", host, "--quiet", "--realtime", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert b"control box" in first, first + process.stderr.read()
        box = RunningBox(host, process)
        yield box
        box.fault.close()
    finally:
        process.terminate()
        process.wait(10)
        process.stderr.close()
