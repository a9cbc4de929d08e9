"""Grippers on a UR5e. A thread talks to them, so that the motion never waits."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable

from cail_robot.robots.ur5e.config import GripperConfig

ACTIVE = 3
"""A Robotiq's STA once it is activated."""
ACTIVATE_S = 10.0
FULLY = "which opens and closes its fingers"
EVERY_S = 0.05
RETRY_S = 1.0


class Robotiq:
    """A 2F gripper through the socket of its URCap: positions 0 (open) … 255 (closed)."""

    def __init__(self, host: str, config: GripperConfig) -> None:
        self._socket = socket.create_connection((host, config.port), timeout=1.0)
        self._file = self._socket.makefile("rb")
        self._config = config

    @property
    def note(self) -> str:
        """What keeps it from moving. Activating opens and closes the fingers, so only a command to the gripper does it."""
        if (fault := self._get("FLT")) > 0:
            return f"the gripper is in fault {fault} (its manual): the next gripper command activates it anew, {FULLY}"
        return "" if self._get("STA") == ACTIVE else f"the gripper is not activated: the next gripper command does it, {FULLY}"

    def _activate(self) -> None:
        self._set("ACT 0")  # one in fault takes a new activation only after this
        time.sleep(EVERY_S)
        self._set("ACT 1")
        until = time.monotonic() + ACTIVATE_S
        while self._get("STA") != ACTIVE:
            if time.monotonic() > until:
                raise OSError("the gripper does not activate")
            time.sleep(EVERY_S)

    def move(self, opening: float) -> None:
        if self.note:
            self._activate()
        config = self._config
        self._set(f"SPE {config.speed} FOR {config.force}")
        self._set(f"POS {round(255 * (1.0 - opening))} GTO 1")

    def opening(self) -> float:
        return 1.0 - self._get("POS") / 255.0

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def _get(self, name: str) -> int:
        words = self._ask(f"GET {name}").split()
        if len(words) != 2 or words[0] != name or not words[1].isdecimal():
            raise OSError(f"the gripper answers {words} to GET {name}")
        return int(words[1])

    def _set(self, text: str) -> None:
        if (reply := self._ask(f"SET {text}")) != "ack":
            raise OSError(f"the gripper answers '{reply}' to SET {text}")

    def _ask(self, line: str) -> str:
        self._socket.sendall(line.encode() + b"\n")
        reply = self._file.readline()
        if not reply:
            raise OSError("the gripper closed the connection")
        return reply.decode("ascii", "replace").strip()


class DigitalOutput:
    """A gripper on a digital output: open or closed, and it is believed to be there after its travel time."""

    def __init__(self, host: str, config: GripperConfig, opening: float) -> None:
        import rtde_io

        self._io = rtde_io.RTDEIOInterface(host)
        self._config = config
        self._from, self._to, self._since = opening, opening, -math.inf

    note = ""

    def move(self, opening: float) -> None:
        self._from, self._to, self._since = self.opening(), float(opening >= 0.5), time.monotonic()
        level, pin = (self._to < 0.5) == self._config.high_closes, self._config.output
        if pin < 8:
            done = self._io.setStandardDigitalOut(pin, level)
        elif pin < 16:
            done = self._io.setConfigurableDigitalOut(pin - 8, level)
        else:
            done = self._io.setToolDigitalOut(pin - 16, level)
        if not done:
            raise OSError("the digital output was not set")

    def opening(self) -> float:
        part = (time.monotonic() - self._since) / max(self._config.travel_s, 1e-6)
        return self._from + (self._to - self._from) * min(part, 1.0)

    def close(self) -> None:
        self._io.disconnect()


class GripperThread(threading.Thread):
    """Keeps the gripper at the newest request and knows its opening; reconnects if it must, without moving anything.

    `text` is empty while the gripper does as it is told.
    """

    def __init__(self, host: str, config: GripperConfig, request: Callable[[], tuple[float, int]], opening: float) -> None:
        """`request` gives the opening asked for and the count of requests so far; `opening` is believed until it is read."""
        super().__init__(name="gripper", daemon=True)
        self.opening = opening
        self.heard = threading.Event()
        """Set once the gripper has told its opening, or does not answer."""
        self.text = ""
        self._host, self._config, self._request = host, config, request
        self._done = request()[1]

    def run(self) -> None:
        while True:
            why = ""
            try:
                self._talk()
            except Exception as fault:  # sockets, ur_rtde, a gripper that answers nonsense: it is said, and tried again
                why = str(fault)
            self.text = f"the {self._config.kind} gripper does not answer{f' ({why})' if why else ''}; its opening is not known"
            self.heard.set()
            self._done = self._request()[1]  # what was asked for meanwhile is not done later by surprise
            time.sleep(RETRY_S)

    def _talk(self) -> None:
        robotiq = self._config.kind == "robotiq"
        gripper = Robotiq(self._host, self._config) if robotiq else DigitalOutput(self._host, self._config, self.opening)
        try:
            while True:
                opening, count = self._request()
                if count != self._done:
                    self._done = count
                    gripper.move(min(max(opening, 0.0), 1.0))
                self.opening, self.text = gripper.opening(), gripper.note
                self.heard.set()
                time.sleep(EVERY_S)
        finally:
            gripper.close()
