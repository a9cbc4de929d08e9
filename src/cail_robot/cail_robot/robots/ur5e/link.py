"""Memory shared by the node's process and the RTDE loop's: the newest command one way, the newest state the other.

Each direction has one writer. A counter before the block is odd while it is written, so a reader sees a whole one or tries again.
The memory has no name: it is gone with its two processes.
"""

from __future__ import annotations

import enum
import mmap
import os
import select
import struct
from typing import NamedTuple

_COUNTER = struct.Struct("=q")
_COMMAND = struct.Struct("=d6ddqq?")
_STATE = struct.Struct("=dd6d6d6d6ddiqqqqd?512s192s")
_COMMAND_AT = 8
_STATE_AT = 256
_SIZE = _STATE_AT + _STATE.size
_TRIES = 1000


SAFETY_TEXTS = (
    (1 << 7 | 1 << 6 | 1 << 5, "emergency stop: make the cell safe, release the button, then unlock"),
    (1 << 9, "safety fault: see the pendant"),
    (1 << 8, "safety violation: see the pendant"),
    (1 << 2, "protective stop: look for its cause, then unlock"),
    (1 << 4, "safeguard stop: close the safeguard, then clear_fault"),
    (1 << 3, "recovery mode: move the arm back within its limits at the pendant"),
    (1 << 10, "stopped by the safety system (enabling device, safeguard of automatic mode): see the pendant, then clear_fault"),
)
"""Bits of the box's safety status, and what they say to people."""
SAFETY_STOPS = frozenset(text for _, text in SAFETY_TEXTS)


class Mode(enum.IntEnum):
    """What the RTDE loop is doing."""

    CONNECTING = 0
    RECOVERING = 1
    READY = 2
    BLOCKED = 3
    FAULT = 4


class Command(NamedTuple):
    """From the node."""

    time: float
    """time.monotonic(), which both processes share."""
    twist: tuple[float, ...]
    gripper: float
    """Opening; not a number: none asked for yet."""
    gripper_count: int
    """Of requests to the gripper."""
    recover_count: int
    """Of requests to recover."""
    quit: bool


class State(NamedTuple):
    """From the RTDE loop."""

    time: float
    """time.monotonic() when it was written."""
    robot_time: float
    """The controller's clock."""
    q: tuple[float, ...]
    qd: tuple[float, ...]
    pose: tuple[float, ...]
    twist: tuple[float, ...]
    gripper: float
    mode: Mode
    recovered: int
    """Requests to recover that were taken note of."""
    sent: int
    """speedL calls so far."""
    seen: int
    """States of the box with a new time stamp so far."""
    late: int
    """Periods that began more than half a period late."""
    longest_period_s: float
    realtime: bool
    text: str
    note: str = ""
    """Of the gripper."""


NO_COMMAND = Command(0.0, (0.0,) * 6, float("nan"), 0, 0, False)


class Link:
    def __init__(self, fds: tuple[int, int] | None = None) -> None:
        """A new piece of memory, or the one behind inherited file descriptors."""
        if fds is None:
            fds = os.memfd_create("cail-ur5e"), os.eventfd(0, os.EFD_NONBLOCK)
            os.ftruncate(fds[0], _SIZE)
        self.fds = fds
        """Of the memory, and of the bell that a command rings."""
        self._memory = mmap.mmap(fds[0], _SIZE)

    def send(self, command: Command) -> None:
        self._write(0, _COMMAND_AT, _COMMAND.pack(command.time, *command.twist, *command[2:]))
        os.eventfd_write(self.fds[1], 1)

    def wait(self, timeout_s: float) -> bool:
        """For a new command; whether one came."""
        if not select.select([self.fds[1]], (), (), max(0.0, timeout_s))[0]:
            return False
        os.eventfd_read(self.fds[1])
        return True

    def command(self) -> Command:
        v = _COMMAND.unpack(self._read(0, _COMMAND_AT, _COMMAND.size))
        return Command(v[0], v[1:7], *v[7:])

    def publish(self, state: State) -> None:
        flat = (*state[:2], *state.q, *state.qd, *state.pose, *state.twist, state.gripper, int(state.mode), *state[8:14])
        self._write(_STATE_AT - 8, _STATE_AT, _STATE.pack(*flat, state.text.encode()[:512], state.note.encode()[:192]))

    def state(self) -> State:
        v = _STATE.unpack(self._read(_STATE_AT - 8, _STATE_AT, _STATE.size))
        text, note = (v[i].rstrip(b"\0").decode("utf-8", "replace") for i in (34, 35))
        return State(
            v[0], v[1], v[2:8], v[8:14], v[14:20], v[20:26], v[26], Mode(v[27]), v[28], v[29], v[30], v[31], v[32], v[33], text,
            note,
        )  # fmt: skip

    def _write(self, counter_at: int, at: int, data: bytes) -> None:
        (count,) = _COUNTER.unpack_from(self._memory, counter_at)
        count |= 1  # also if a writer died half-way
        _COUNTER.pack_into(self._memory, counter_at, count)
        self._memory[at : at + len(data)] = data
        _COUNTER.pack_into(self._memory, counter_at, count + 1)

    def _read(self, counter_at: int, at: int, size: int) -> bytes:
        for _ in range(_TRIES):
            (before,) = _COUNTER.unpack_from(self._memory, counter_at)
            data = bytes(self._memory[at : at + size])
            (after,) = _COUNTER.unpack_from(self._memory, counter_at)
            if before == after and before % 2 == 0:
                break
        return data

    def close(self) -> None:
        self._memory.close()
        for fd in self.fds:
            os.close(fd)
