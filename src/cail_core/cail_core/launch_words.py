"""What a command advises, in the words of `ros2 launch` where that started it: `--input gamepad` is `input:=gamepad` there."""

from __future__ import annotations

import os
import re

SWITCH = "CAIL_LAUNCH"
"""Set in the environment by the launch files."""
FLAGS = ("other-robot", "without-guard", "dry-run", "record", "trim-idle", "window")
"""Options that stand alone."""
NAMES = {"window": "viewer"}
"""Where a launch argument is not called like its option."""
_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?:[ =](?=[A-Z/a-z0-9])([^\s;,:)`]+))?")


def launched() -> bool:
    return os.environ.get(SWITCH) == "1"


def spoken(text: str) -> str:
    """`text` as the person can use it who reads it."""
    return _OPTION.sub(_argument, text) if launched() else text


def _argument(found: re.Match[str]) -> str:
    option, word = found[1], found[2] or ""
    name = NAMES.get(option, option.replace("-", "_"))
    if option in FLAGS:
        return f"{name}:=true" + (f" {word}" if word else "")
    value = word if re.fullmatch(r"[A-Z]+|\S*[/_.]\S*|\d+|gamepad|scripted|none|keyboard|true|false", word) else ""
    return f"{name}:={value}" + (f" {word}" if word and not value else "")
