"""Hostile clients for the control box: malformed, truncated, oversized and merely rude messages on every port.

A bystander reads RTDE states at 500 Hz meanwhile. The box passes if it still answers, the arm never moved, and the bystander got
every cycle's package.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from cail_sim.ursim import rtde
from cail_sim.ursim.faults import FaultClient
from cail_sim.ursim.server import Ports

NAMES = [*rtde.OUTPUTS, *rtde.INPUTS]
KINDS = "VvOISPUM"
WORDS = """play stop pause running robotmode safetymode programState quit shutdown PolyscopeVersion popup load unlock protective
GET SET POS ACT GTO SPE FOR STA OBJ 255 -1 1e999 99999999999999999999 status slider nan inf remote trace version brake release
def end rtde_control(): movej([0,0,0,0,0,0]) reg_offset_int = # process_cmd write_output_integer_register(0 +99,2) power on"""
LINES = WORDS.split()
"""Without the words that break the network on purpose."""


@dataclass
class Outcome:
    cases: int
    seconds: float
    alive: bool
    moved: bool
    bystander_states: int
    cycles: int
    left_out: int
    longest_gap_ms: float

    @property
    def passed(self) -> bool:
        return self.alive and not self.moved and self.bystander_states >= self.cycles - 2


class Bystander(threading.Thread):
    """An ordinary client that reads time stamps at the full rate."""

    def __init__(self, host: str) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_connection((host, Ports().rtde), timeout=10.0)
        self._ask("V", struct.pack(">H", 2))
        self._ask("O", struct.pack(">d", 500.0) + b"timestamp,output_int_register_0,target_qd")
        self._ask("S", b"")
        self.states, self.stamp, self.moved, self.longest_gap_s = 0, 0.0, False, 0.0
        self._ending = False

    def _ask(self, kind: str, payload: bytes) -> None:
        self._socket.sendall(rtde.package(kind, payload))
        self._socket.recv(3 if kind == "S" else 4096)

    def run(self) -> None:
        buffer, last = bytearray(), time.monotonic()
        while not self._ending:
            try:
                data = self._socket.recv(65536)
            except OSError:
                return
            now = time.monotonic()
            self.longest_gap_s, last = max(self.longest_gap_s, now - last), now
            buffer += data
            if not data:
                return
            if self.states == 0 and buffer[:1] == b"\1":
                del buffer[:1]  # the last byte of the answer to S
            while (package := rtde.take(buffer)) is not None:
                self.states += 1
                (self.stamp,) = struct.unpack_from(">d", package[1], 1)
                self.moved |= any(struct.unpack_from(">6d", package[1], 13))

    def end(self) -> None:
        self._ending = True
        self._socket.close()


def fuzz(host: str, cases: int, seed: int, advance: Callable[[int], None] | None = None) -> Outcome:
    """Send `cases` hostile messages, shared among the ports."""
    rng = random.Random(seed)
    ports = Ports()
    makers: list[tuple[int, Callable[[random.Random], bytes]]] = [
        (ports.rtde, rtde_message),
        (ports.rtde, rtde_message),
        (ports.dashboard, line_message),
        (ports.script, line_message),
        (ports.robotiq, line_message),
        (ports.faults, line_message),
    ]
    control = FaultClient(host)
    bystander = Bystander(host)
    first = control("status")
    bystander.start()
    deaf = _deaf_client(host)
    start = time.monotonic()
    for case in range(cases):
        port, make = rng.choice(makers)
        _send(host, port, make(rng), rng)
        if advance is not None and case % 500 == 499:
            advance(case + 1)
    deaf.close()
    try:
        last = control("status")
        until = time.monotonic() + 10.0
        while bystander.stamp < last["time_s"] and time.monotonic() < until:
            time.sleep(0.01)  # on a busy machine it may read late
    finally:
        bystander.end()
        control.close()
    bystander.join(2.0)
    return Outcome(
        cases=cases,
        seconds=time.monotonic() - start,
        alive=True,
        moved=bystander.moved or last["q"] != first["q"],
        bystander_states=bystander.states,
        cycles=last["cycles"] - first["cycles"],
        left_out=last["left_out"] - first["left_out"],
        longest_gap_ms=1000.0 * bystander.longest_gap_s,
    )


def _send(host: str, port: int, message: bytes, rng: random.Random) -> None:
    """A connection for each message, until the box has read it all and let go; some just hang up."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=10.0) as connection:
        if port == Ports().rtde and rng.random() < 0.5:
            connection.sendall(GREETINGS[rng.randrange(len(GREETINGS))])
        connection.sendall(message)
        if rng.random() < 0.05:
            return
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def _deaf_client(host: str) -> socket.socket:
    """Asks for states at 500 Hz and never reads one."""
    connection = socket.create_connection((host, Ports().rtde), timeout=5.0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.sendall(GREETINGS[1])
    return connection


GREETINGS = (
    rtde.package("V", b"\0\2") + rtde.package("I", b"input_int_register_0,input_double_register_0"),
    rtde.package("V", b"\0\2") + rtde.package("O", struct.pack(">d", 500.0) + b"timestamp,actual_q") + rtde.package("S"),
)
"""Well-formed beginnings, so that what follows meets a session that is set up."""


def rtde_message(rng: random.Random) -> bytes:
    kind = rng.choice(KINDS)
    style = rng.randrange(7)
    if style == 0:
        return rng.randbytes(rng.randrange(1, 400))
    if style == 1:
        return struct.pack(">HB", rng.choice([0, 1, 2, 3, 4, 5, 65535]), ord(kind)) + rng.randbytes(rng.randrange(0, 64))
    if style == 2:
        return rtde.package(kind, rng.randbytes(rng.randrange(0, 300)))
    if style == 3:
        names = ",".join(rng.choice(NAMES) for _ in range(rng.randrange(0, 300)))
        frequency = struct.pack(">d", rng.choice([500.0, 125.0, 0.0, -1.0, float("nan"), float("inf"), 1e-300]))
        return rtde.package(kind, (frequency if kind == "O" else b"") + names.encode())[: rng.choice([70000, 40])]
    if style == 4:
        return rtde.package("V", struct.pack(">H", rng.choice([0, 1, 2, 3, 65535])))
    if style == 5:
        values = struct.pack(">d", rng.choice([float("nan"), float("inf"), -1e308, 0.5])) * rng.randrange(0, 20)
        return rtde.package("U", bytes([rng.randrange(256)]) + struct.pack(">i", rng.randrange(-5, 300)) + values)
    whole = rtde.package("I", b"input_int_register_0,input_double_register_0")
    at = rng.randrange(len(whole))
    return whole[:at] + rng.randbytes(1) + whole[at + 1 :]


def line_message(rng: random.Random) -> bytes:
    style = rng.randrange(5)
    if style == 0:
        return rng.randbytes(rng.randrange(1, 300))
    if style == 1:
        return b"A" * rng.choice([10, 5000, 60000])
    if style == 2:
        return b"\n" * rng.randrange(1, 300)
    words = " ".join(rng.choice(LINES) for _ in range(rng.randrange(1, 6)))
    if style == 3:
        return (words + "\n").encode()
    cut = rng.randrange(len(words) + 1)
    return words[:cut].encode() + rng.randbytes(2) + b"\n"
