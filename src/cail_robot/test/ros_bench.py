"""For tests over real DDS: a domain that no other test has, node processes, a commander and a listener."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_held: list[Any] = []


def own_domain() -> str:
    """A ROS_DOMAIN_ID for this process and its children, on this machine nobody else's until the process ends."""
    if not _held:
        for n in range(1, 100):
            handle = open(Path(tempfile.gettempdir(), f"cail-ros-domain-{n}"), "w")  # noqa: SIM115
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.close()
                continue
            _held.append(handle)
            os.environ["ROS_DOMAIN_ID"] = str(n)
            break
    return os.environ["ROS_DOMAIN_ID"]


def environment() -> dict[str, str]:
    """For a process that starts with this project's defaults."""
    own_domain()
    ours = ("ROS_AUTOMATIC_DISCOVERY_RANGE", "FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
    return {name: value for name, value in os.environ.items() if name not in ours} | {
        "OMP_NUM_THREADS": "1",
        "CAIL_REALTIME": "0",
    }


@contextmanager
def process(*command: object) -> Iterator[subprocess.Popen[str]]:
    """A Python process in this environment; killed at the end if it still lives."""
    started = subprocess.Popen(
        [sys.executable, *map(str, command)], env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        yield started
    finally:
        if started.poll() is None:
            started.send_signal(signal.SIGCONT)
            started.kill()
        started.wait()
        assert started.stdout
        started.stdout.close()


@contextmanager
def node_process(*command: object) -> Iterator[subprocess.Popen[str]]:
    """A process whose node has connected to its arm; a busy machine may take its time for that."""
    with process(*command) as started:
        assert started.stdout
        said = []
        for line in started.stdout:
            said.append(line)
            if "IDLE" in line:
                break
        else:
            raise AssertionError("the node ended: " + "".join(said))
        yield started
