"""The fault port: a line of text breaks something on purpose, a line of JSON says what the box knows.

It listens on loopback only, whatever address the box itself has.
"""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

from cail_core.errors import BadInput, CailError

if TYPE_CHECKING:
    from cail_sim.ursim.server import Server

PORT = 30020
LONGEST_LINE = 1024

HELP = {
    "status": "what the box knows",
    "drop [MS]": "close every client's connection; refuse new ones for MS",
    "freeze MS": "the network is silent both ways for MS; the arm goes on",
    "half-open [MS]": "connections stay open and dead for MS (2000), with their registers in use",
    "garbage [BYTES]": "random bytes to every RTDE client",
    "pstop": "protective stop",
    "estop": "emergency stop pressed",
    "release": "emergency stop pulled out again; power stays off",
    "safeguard open|closed": "safeguard stop, and its end (the program resumes by itself)",
    "pause": "program paused at the pendant",
    "resume": "program resumed at the pendant",
    "pendant-stop": "program stopped at the pendant",
    "remote on|off": "remote or local control",
    "slider FRACTION": "speed slider",
    "script refuse|accept": "whether uploaded programs start",
    "gripper silent|answers|inactive": "the gripper's socket: no answers, answers, or not activated as after a loss of its power",
    "version wrong|right": "whether the RTDE protocol version is accepted",
    "restart [MS]": "the controller restarts: gone for MS (500), then powered off",
    "things [SEED]": "where bottle, obstacle and target are; with SEED put to the start of an episode, the arm stays",
    "reset": "arm back at its first posture; nothing broken, powered, no program",
    "trace": "the last speed commands as they arrived, and how long after each other, since the last trace",
}


class BadFault(Exception):
    """The line is no fault that the box knows."""


def apply(server: Server, line: str) -> dict[str, Any]:
    """Do what the line says; the answer for the caller."""
    name, *rest = line.split() or [""]
    box = server.box
    if name == "status":
        return {**box.status(), **server.status(), "gripper_activations": server.gripper.activations}
    if name == "trace":
        found = {"speed_commands": [[at, *target] for at, target in box.speed_commands], "command_gaps": list(box.command_gaps)}
        box.speed_commands.clear()
        box.command_gaps = [0] * len(box.command_gaps)
        return found
    if name == "drop":
        server.drop(_number(rest, 0.0) / 1000.0)
    elif name == "freeze":
        server.freeze(_number(rest) / 1000.0)
    elif name == "half-open":
        server.half_open(_number(rest, 2000.0) / 1000.0)
    elif name == "garbage":
        server.garbage(int(min(_number(rest, 64.0), 4096)))
    elif name == "pstop":
        box.protective_stop("injected")
    elif name == "estop":
        box.emergency_stop()
    elif name == "release":
        box.release_emergency_stop()
    elif name == "safeguard":
        box.safeguard(_choice(rest, "open", "closed"))
    elif name == "pause":
        box.pause("paused at the pendant")
    elif name == "resume":
        box.resume()
    elif name == "pendant-stop":
        box.end_program("stopped at the pendant")
    elif name == "remote":
        box.remote = _choice(rest, "on", "off")
    elif name == "slider":
        box.set_slider(_number(rest))
    elif name == "script":
        box.accept_scripts = _choice(rest, "accept", "refuse")
    elif name == "gripper":
        if rest not in (["silent"], ["answers"], ["inactive"]):
            raise BadFault(f"expected silent, answers or inactive, given '{' '.join(rest)}'")
        server.gripper.silent = rest == ["silent"]
        if rest == ["inactive"]:
            server.gripper.deactivate()
    elif name == "version":
        box.accept_protocol = _choice(rest, "right", "wrong")
    elif name == "restart":
        server.restart(_number(rest, 500.0) / 1000.0)
    elif name == "things":
        if rest:
            box.plant.put_back(int(_number(rest)))
        return {"things": box.plant.things()}
    elif name == "reset":
        server.reset()
    else:
        raise BadFault(f"expected one of: {'; '.join(HELP)}; given '{line[:80]}'")
    return {"done": line}


def _number(rest: list[str], default: float | None = None) -> float:
    try:
        value = float(rest[0]) if rest or default is None else default
    except (ValueError, IndexError):
        raise BadFault(f"expected a number, given '{' '.join(rest)}'") from None
    if not 0.0 <= value <= 3.6e6:
        raise BadFault(f"expected a number from 0 to 3600000, given {value}")
    return value


def _choice(rest: list[str], yes: str, no: str) -> bool:
    if rest not in ([yes], [no]):
        raise BadFault(f"expected {yes} or {no}, given '{' '.join(rest)}'")
    return rest == [yes]


class FaultClient:
    """Talks to the fault port of a running box."""

    def __init__(self, host: str = "127.0.0.1", port: int = PORT) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout=5.0)
        except OSError as fault:
            raise CailError(
                f"no control box answers on {host}:{port} ({fault.strerror or fault}); start one: cail ursim"
            ) from None
        self._file = self._socket.makefile("rb")

    def __call__(self, line: str) -> dict[str, Any]:
        self._socket.sendall(line.encode() + b"\n")
        reply: dict[str, Any] = json.loads(self._file.readline() or b'{"error": "the box closed the connection"}')
        if "error" in reply:
            raise BadInput(reply["error"])
        return reply

    def close(self) -> None:
        self._file.close()
        self._socket.close()
