"""The script port (TCP 30003): programs arrive as text, from a line `def NAME():` to a line `end` in the first column."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LONGEST = 1 << 18
"""Bytes; ur_rtde's control program has 42,000."""

_DEF = re.compile(r"def\s+(\w+)\s*\(\s*\)\s*:\s*")
_OFFSET = re.compile(r"reg_offset_int\s*=[^\n]*\n\s*(\d+)")
_SIGNAL = re.compile(r"write_output_integer_register\(\s*0\s*\+\s*(\d+)\s*,\s*2\s*\)")
_MOVE = re.compile(r"^[ \t]*(move[jl])\(\s*(p?)\[([^\]]*)\]\s*,\s*a\s*=\s*([^,]+),\s*v\s*=\s*([^,]+),\s*r\s*=\s*([^)]+)\)", re.M)


class TooLong(Exception):
    """A client sends text without end; its connection is closed."""


@dataclass(frozen=True)
class Waypoint:
    """One `movej` or `movel` that ur_rtde wrote into the program for a path."""

    linear: bool
    is_pose: bool
    target: tuple[float, ...]
    acceleration: float
    speed: float


@dataclass(frozen=True)
class Script:
    """What the box understands of a program."""

    name: str
    register_offset: int
    """0 or 24: which registers the program and its client talk through."""
    is_control: bool
    """The program that ur_rtde uploads; any other is a custom one."""
    path: list[Waypoint] = field(default_factory=list)


class ScriptReader:
    """Puts programs together from the pieces in which TCP delivers them."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[str] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Script]:
        found: list[Script] = []
        *lines, self._rest = (self._rest + data).split(b"\n")
        for raw in lines:
            line = raw.decode("utf-8", "replace").rstrip("\r")
            if not self._lines and not _DEF.fullmatch(line):
                continue  # a single statement outside a program: not simulated
            self._lines.append(line)
            self._size += len(raw)
            if line == "end":
                found.append(parse("\n".join(self._lines)))
                self._lines, self._size = [], 0
        if self._size + len(self._rest) > LONGEST:
            raise TooLong
        return found


def parse(text: str) -> Script:
    first = _DEF.match(text)
    name = first.group(1) if first else ""
    control = "process_cmd" in text
    if control:
        offset = _OFFSET.search(text)
        return Script(name, 24 if offset and offset.group(1) == "24" else 0, True, _path(text))
    done = _SIGNAL.search(text)
    return Script(name, 24 if done and done.group(1) == "24" else 0, False)


def _path(text: str) -> list[Waypoint]:
    start = text.find("# inject move path")
    if start < 0:
        return []
    block = text[start : text.find("\n    end", start)]
    found = []
    for kind, pose, numbers, acceleration, speed, _ in _MOVE.findall(block):
        try:
            target = tuple(float(number) for number in numbers.split(","))
            move = Waypoint(kind == "movel", pose == "p", target, float(acceleration), float(speed))
        except ValueError:
            continue  # inside the program itself: a variable, not a waypoint
        if len(target) == 6:
            found.append(move)
    return found
