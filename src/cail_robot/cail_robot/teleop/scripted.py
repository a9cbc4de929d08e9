"""Scripted input: a text file in place of a person's hands, for tests and for machines without one.

One line a thing to do, one after the other, from when the arm is connected; `#` begins a comment:

    wait 1.0            do nothing for a second
    hold up 2.5         hold a motion key (up down left right page-up page-down i k j l)
    press enter         press a key once, as on the keyboard
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cail_core.errors import BadInput, listed
from cail_robot.teleop.command import EVENTS, MOVES, PRESETS, QUIT, HeldKeys, TeleopConfig, Wish

REPEATS_EVERY_S = 0.03


class Script:
    """Plays a file as a keyboard that repeats held keys, then quits."""

    help = ("a script drives",)

    def __init__(self, path: Path, config: TeleopConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps = read_script(path)
        self._clock = clock
        self._held = HeldKeys(config)
        self._started: float | None = None
        self._repeated = 0.0
        self._ready: Callable[[], bool] = lambda: True

    def join(self, node: Any) -> None:
        """The script begins when the arm is connected and answers, however long its start takes."""
        self._ready = lambda: bool(node.ready)

    def read(self, timeout_s: float) -> Wish:
        time.sleep(timeout_s)
        now = self._clock()
        if self._started is None:
            if not self._ready():
                return Wish()
            self._started = now
        events: list[str] = []
        preset = None
        while self._steps:
            what, key, seconds = self._steps[0]
            if what == "press":
                events += [EVENTS[key]] if key in EVENTS else []
                preset = int(key) if key in PRESETS else preset
            elif now - self._started < seconds:
                if what == "hold" and now - self._repeated >= REPEATS_EVERY_S:
                    self._repeated = now
                    self._held.press(key, now)
                break
            else:
                self._held.release()
            self._steps.pop(0)
            self._started = now
            if events:
                break  # one decision at a time, as a person makes them
        if not self._steps and not events:
            events.append(QUIT)
        return Wish(self._held.axes(now), tuple(events), preset)

    def close(self) -> None:
        """Nothing to release."""


def read_script(path: Path) -> list[tuple[str, str, float]]:
    """What to do, which key, for how long; every fault is listed."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise BadInput(f"{path}: cannot be read ({fault})") from None
    steps, faults = [], []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            steps.append(_step(words))
        except ValueError:
            keys = ", ".join([*EVENTS, *PRESETS])
            faults.append(f"line {number}: expected `wait S`, `hold {'|'.join(MOVES)} S` or `press KEY` ({keys}), given '{line}'")
    if faults:
        raise BadInput(listed(str(path), faults))
    return steps


def _step(words: list[str]) -> tuple[str, str, float]:
    if words[0] == "wait" and len(words) == 2:
        return "wait", "", _seconds(words[1])
    if words[0] == "hold" and len(words) == 3 and words[1] in MOVES:
        return "hold", words[1], _seconds(words[2])
    if words[0] == "press" and len(words) == 2 and words[1] in (*EVENTS, *PRESETS):
        return "press", words[1], 0.0
    raise ValueError


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 3600.0:
        raise ValueError
    return value


