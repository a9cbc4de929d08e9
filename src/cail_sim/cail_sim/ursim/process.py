"""A control box in a process of its own, on a loopback address of its own, so that several run side by side."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from typing import Any

from cail_core.errors import CailError
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


class BoxProcess:
    """`cail ursim` as a child: it ends with this process. Use as a context."""

    def __init__(self, *options: str, host: str | None = None) -> None:
        self.host = host or free_host()
        command = [
            sys.executable,
            "-m",
            "cail_core.cli",
            "ursim",
            "--host",
            self.host,
            "--quiet",
            "--realtime",
            "--child",
            *options,
        ]
        # A session of its own: Ctrl-C in the terminal is for the parent, which ends the box when the arm is let go.
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
        assert self.process.stderr is not None
        first = self.process.stderr.readline()
        if b"control box" not in first:
            text = (first + self.process.stderr.read()).decode("utf-8", "replace").strip().removeprefix("cail: ")
            self.process.wait()
            self.process.stderr.close()
            raise CailError(text)
        self.fault = FaultClient(self.host)

    def __enter__(self) -> BoxProcess:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def status(self) -> dict[str, Any]:
        return self.fault("status")

    def wait_for(self, timeout_s: float = 10.0, **wanted: object) -> dict[str, Any]:
        """Until the status has these values; CailError if it never has."""
        end = time.monotonic() + timeout_s
        while True:
            now = self.status()
            if all(now[name] == value for name, value in wanted.items()):
                return now
            if time.monotonic() > end:
                raise CailError(f"expected {wanted}, the box says {now}")
            time.sleep(0.005)

    def close(self) -> None:
        self.fault.close()
        self.process.terminate()
        self.process.wait(10)
        if self.process.stderr is not None:
            self.process.stderr.close()
