"""The terminal as a person's instrument: single keys in, a screen drawn whole; as it was before when it ends.

Needs a terminal of the last forty years and nothing else: it works over ssh, in tmux, on a console without X.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from rich.cells import cell_len, set_cell_size

from cail_core.errors import BadInput

_ENTER = "\x1b[?1049h\x1b[?25l"  # a screen of its own, no cursor
_LEAVE = "\x1b[0m\x1b[2J\x1b[?25h\x1b[?1049l"
_SEQUENCES = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left",
    "\x1bOA": "up", "\x1bOB": "down", "\x1bOC": "right", "\x1bOD": "left",
    "\x1b[5~": "page-up", "\x1b[6~": "page-down", "\x1b[3~": "delete",
}
_SINGLE = {"\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\b": "backspace", "\x1b": "escape", " ": "space"}
_STOPS = (signal.SIGTERM, signal.SIGHUP)
ESCAPE_WAIT_S = 0.05
"""How long the rest of an arrow key's bytes may take over a slow line."""


class Terminal:
    """Single keys and a whole screen, from entering the `with` block to leaving it."""

    def __init__(self, otherwise: str, *, controlling: bool = False) -> None:
        """`otherwise` is what a person can do where there is no terminal.

        `controlling`: take the terminal that the process was started from where its input and output are a launcher's pipes.
        """
        if sys.stdin.isatty() and sys.stdout.isatty():
            # Copies: a library may turn standard output away for a moment while it starts.
            self._in, self._out = os.dup(sys.stdin.fileno()), os.dup(sys.stdout.fileno())
        elif controlling and (found := _controlling_terminal()) is not None:
            self._in, self._out = found, os.dup(found)
        else:
            raise BadInput(f"expected a terminal to draw on and to read keys from, found a pipe or a file; {otherwise}")
        if os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
            raise BadInput(f"expected a terminal that can place text, given TERM={os.environ.get('TERM', '')}; {otherwise}")
        self._encoding = sys.stdout.encoding or "utf-8"
        self.unicode = "utf" in self._encoding.lower()
        self._before: list[Any] = []
        self._handlers: dict[signal.Signals, Any] = {}

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now: a window can be resized."""
        try:
            found = os.get_terminal_size(self._out)
        except OSError:  # the line is gone; `keys` says so
            return 80, 24
        return found.columns or 80, found.lines or 24  # a serial line does not know

    def __enter__(self) -> Terminal:
        self._before = termios.tcgetattr(self._in)
        for stop in _STOPS:
            self._handlers[stop] = signal.signal(stop, _leave_by_signal)
        changed = termios.tcgetattr(self._in)
        changed[0] &= ~(termios.ICRNL | termios.INLCR | termios.IXON)
        changed[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        changed[6][termios.VMIN], changed[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._in, termios.TCSADRAIN, changed)
        self._write(_ENTER)
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):  # the line may be gone
            self._write(_LEAVE)
        with suppress(OSError, termios.error):
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)
        for stop, handler in self._handlers.items():
            signal.signal(stop, handler)
        os.close(self._in)
        os.close(self._out)

    def draw(self, lines: Sequence[str]) -> None:
        """Show `lines` from the top; each has been made to fit the width with `fit`."""
        with suppress(OSError):  # the line may be gone; `keys` says so
            shown = lines[: self.size[1]]
            self._write("\x1b[H" + "\x1b[K\r\n".join(shown) + "\x1b[K\x1b[J")

    def keys(self, timeout_s: float) -> list[str]:
        """The keys pressed, in order: letters as they are, others by name. Waits for the first one at most so long.

        Where the line is gone, the last key is "end".
        """
        if not self._ready(timeout_s):
            return []
        try:
            data = os.read(self._in, 4096)
        except OSError:  # the terminal was closed
            data = b""
        if not data:
            return ["end"]
        text = data.decode("utf-8", "replace")
        if text.endswith(("\x1b", "\x1b[", "\x1bO")) and self._ready(ESCAPE_WAIT_S):
            text += os.read(self._in, 4096).decode("utf-8", "replace")
        return split_keys(text)

    def _ready(self, timeout_s: float) -> bool:
        return bool(select.select([self._in], [], [], timeout_s)[0])

    def _write(self, text: str) -> None:
        rest = text.encode(self._encoding, "replace")
        while rest:
            rest = rest[os.write(self._out, rest) :]


def split_keys(text: str) -> list[str]:
    """What was read from a terminal, as names of keys; unknown sequences are passed over."""
    keys, at = [], 0
    while at < len(text):
        if text.startswith(("\x1b[", "\x1bO"), at):
            end = at + 2
            while end < len(text) and not "@" <= text[end] <= "~":
                end += 1
            keys += [_SEQUENCES[text[at : end + 1]]] if text[at : end + 1] in _SEQUENCES else []
            at = end + 1
            continue
        one = text[at]
        if one in _SINGLE:
            keys.append(_SINGLE[one])
        elif one < " ":
            keys.append(f"ctrl-{chr(ord(one) + 96)}")
        else:
            keys.append(one)
        at += 1
    return keys


def fit(text: str, width: int) -> str:
    """`text` cut or padded to `width` columns; wide characters count as two."""
    if cell_len(text) > width > 1:
        return set_cell_size(text, width - 1) + "…"
    return set_cell_size(text, width)


def bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[22m"


def dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[22m"


def _controlling_terminal() -> int | None:
    try:
        return os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return None


def _leave_by_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
