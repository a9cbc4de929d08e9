"""A log of what an arm's states were and why, outside of any recording: for whoever asks afterwards what happened.

One line of JSON for each change, in `$XDG_STATE_HOME/cail/safety-events.jsonl` (`~/.local/state` without it). Each says by which
code, limits and settings the arm went.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import cail_robot


def log_file() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "cail" / "safety-events.jsonl"


def fingerprint(what: Any) -> str:
    """Sixteen hexadecimal digits of any plain values."""
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:16]


def code() -> str:
    """A fingerprint of the package that drives the arm, as it lies on the disk."""
    files = sorted(Path(cail_robot.__file__).parent.rglob("*.py"))
    return fingerprint([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])


class SafetyLog:
    """Appends; a disk that is full or a home that cannot be written stops nothing."""

    def __init__(self, arm: str, settings: str, file: Path | None = None) -> None:
        self._file = file or log_file()
        self._about = {"arm": arm, "settings": settings, "code": code(), "pid": os.getpid()}

    def write(self, state: str, reason: str, limits: dict[str, Any]) -> None:
        line = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "state": state, "reason": reason, **self._about,
                "limits": fingerprint(limits)}  # fmt: skip
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
