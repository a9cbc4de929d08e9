"""Teleoperation: what a person's hands say, as a twist. Plain Python; nothing moves unless a key or button is held.

Axes of the base frame: forward is +x, left is +y, up is +z.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from cail_core.config import setting
from cail_core.errors import ConfigError, listed

Axes = tuple[float, float, float, float, float, float]
"""A direction: x, y, z and turns about them, each in [-1, 1]."""
NOWHERE: Axes = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

MOVES: dict[str, tuple[int, int]] = {
    "up": (0, 1), "down": (0, -1), "left": (1, 1), "right": (1, -1), "page-up": (2, 1), "page-down": (2, -1),
    "i": (2, 1), "k": (2, -1), "j": (5, 1), "l": (5, -1),
}  # fmt: skip
"""Key -> axis and sign."""
START, SUCCESS, FAILURE, REDO, RESET, GRIP, STOP, RECOVER, UNLOCK, QUIT, LEAVE = (
    "start", "success", "failure", "redo", "reset", "grip", "stop", "recover", "unlock", "quit", "leave",
)  # fmt: skip
EVENTS = {
    "enter": START, "s": SUCCESS, "f": FAILURE, "backspace": REDO, "r": RESET, "space": GRIP, "escape": STOP, "c": RECOVER,
    "u": UNLOCK,
    "q": QUIT, "ctrl-d": QUIT, "ctrl-c": LEAVE, "end": LEAVE,
}  # fmt: skip
PRESETS = ("1", "2", "3")


@dataclass(frozen=True)
class TeleopConfig:
    """`config/teleop.yaml`."""

    linear_speeds: list[float] = setting([0.02, 0.06, 0.15], "presets 1, 2 and 3, m/s", low=0.001, high=1.0)
    angular_speeds: list[float] = setting([0.1, 0.25, 0.5], "presets 1, 2 and 3, rad/s", low=0.001, high=2.0)
    start_preset: int = setting(2, "which of them at first", low=1, high=3)
    tap_s: float = setting(0.15, "a key pressed once moves for so long", low=0.02, high=1.0)
    repeat_s: float = setting(0.15, "a held key moves until its repeats have been missing for so long", low=0.05, high=1.0)
    repeat_gap_s: float = setting(0.8, "the keyboard's delay before it repeats is at most this", low=0.1, high=2.0)
    deadzone: float = setting(0.1, "of a stick or SpaceMouse, as a share of its range", low=0.0, high=0.9)
    silent_s: float = setting(
        1.0, "a gamepad or SpaceMouse that has sent nothing for so long counts as let go, held or not: its link may be lost",
        low=0.1, high=10.0,
    )  # fmt: skip
    cap_turns: bool = setting(False, "whether a SpaceMouse also turns the tool")
    command_hz: float = setting(50.0, "twists a second; the arm holds without one for 0.1 s", low=20.0, high=500.0)

    def __post_init__(self) -> None:
        faults = [f"{name}: expected 3 presets, given {len(getattr(self, name))}" for name in ("linear_speeds", "angular_speeds")
                  if len(getattr(self, name)) != 3]  # fmt: skip
        if faults:
            raise ConfigError(listed("teleop config", faults))


@dataclass(frozen=True)
class Wish:
    """What the person wants now: where to, and what they asked for since the last time."""

    axes: Axes = NOWHERE
    events: tuple[str, ...] = ()
    preset: int | None = None
    held: bool = False
    """A deadman is held: whoever holds it commands, if only zero."""


class Input(Protocol):
    """A keyboard, a gamepad, a topic, a script."""

    @property
    def help(self) -> tuple[str, ...]:
        """A line or two on how it is used."""
        ...

    def read(self, timeout_s: float) -> Wish:
        """The newest wish; waits at most so long for it."""
        ...

    def close(self) -> None: ...


@dataclass
class HeldKeys:
    """Which motion keys are held. A terminal only repeats a key, so holding is told from the repeats.

    The first press moves for `tap_s`; from the first repeat on, which comes within the keyboard's delay, the key counts as held
    until its repeats have been missing for `repeat_s`.
    """

    config: TeleopConfig
    _last: dict[str, float] = field(default_factory=dict)
    _until: dict[str, float] = field(default_factory=dict)

    def press(self, key: str, now: float) -> None:
        repeats = now - self._last.get(key, float("-inf")) <= self.config.repeat_gap_s
        self._last = {key: now}  # a keyboard repeats the last key alone: another one ends it
        self._until = {key: now + (self.config.repeat_s if repeats else self.config.tap_s)}

    def release(self) -> None:
        self._last.clear()
        self._until.clear()

    def axes(self, now: float) -> Axes:
        found = [0.0] * 6
        for key, until in self._until.items():
            if now < until:
                axis, sign = MOVES[key]
                found[axis] = float(sign)
        return found[0], found[1], found[2], found[3], found[4], found[5]


@runtime_checkable
class NodeInput(Input, Protocol):
    """One that hears topics."""

    def join(self, node: Any) -> None:
        """The node to hear them with, before the first `read`."""
        ...


class Keyboard:
    """Keys of a terminal, wherever they come from."""

    help = (
        "move     hold ↑ ↓ ← → · PgUp PgDn or i k: up, down · j l turn · 1 2 3 speed",
        "arm      space gripper · c permit motion, clear a fault · u unlock · Esc stop",
        "episode  Enter start · s save as success · f save as failure",
        "         Backspace discard and redo · r reset the scene · q quit",
    )

    def __init__(
        self, keys: Callable[[float], Iterable[str]], config: TeleopConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._keys, self._held, self._clock = keys, HeldKeys(config), clock

    def read(self, timeout_s: float) -> Wish:
        events, preset = [], None
        for key in self._keys(timeout_s):
            if key in MOVES:
                self._held.press(key, self._clock())
            elif key in EVENTS:
                self._held.release()  # a decision about the episode is made at rest
                events.append(EVENTS[key])
            elif key in PRESETS:
                preset = int(key)
            elif key.startswith("ctrl-"):  # whoever presses one of these wants out
                self._held.release()
                events.append(LEAVE)
        return Wish(self._held.axes(self._clock()), tuple(events), preset)

    def close(self) -> None:
        """The terminal belongs to the screen."""


CONFIRM_S = 5.0


class Confirmation:
    """A key that does something only when it is pressed a second time, soon."""

    QUESTION = "is nobody clamped, and the cause gone? u again unlocks, powers on and releases the brakes"

    def __init__(self) -> None:
        self._asked = float("-inf")

    def given(self, now: float) -> bool:
        """Whether this press is the second one."""
        confirmed = now - self._asked <= CONFIRM_S
        self._asked = float("-inf") if confirmed else now
        return confirmed


class Steering:
    """From wishes to twists, by the speed preset."""

    def __init__(self, config: TeleopConfig) -> None:
        self._config = config
        self.preset = config.start_preset

    @property
    def linear_speed(self) -> float:
        return self._config.linear_speeds[self.preset - 1]

    def twist(self, wish: Wish) -> Axes:
        if wish.preset is not None:
            self.preset = wish.preset
        linear, angular = self.linear_speed, self._config.angular_speeds[self.preset - 1]
        x, y, z, a, b, c = wish.axes
        return x * linear, y * linear, z * linear, a * angular, b * angular, c * angular
