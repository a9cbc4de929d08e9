"""Gamepads and the SpaceMouse: through the kernel's input events, or the topics of the ROS drivers `joy` and `spacenav`.

No library, no root where the device may be read (group `input`, or the seat's user).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import select
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cail_core.errors import BadInput
from cail_robot.teleop.command import (
    FAILURE,
    GRIP,
    NOWHERE,
    RECOVER,
    REDO,
    RESET,
    START,
    STOP,
    SUCCESS,
    Axes,
    Keyboard,
    TeleopConfig,
    Wish,
)

EVENT = struct.Struct("llHHi")
"""struct input_event of linux/input.h: seconds, microseconds, type, code, value."""
EV_SYN, EV_KEY, EV_REL, EV_ABS = 0, 1, 2, 3
SYN_DROPPED = 3
RELATIVE_S = 0.1
"""A deflected cap with relative axes reports every 8 to 16 ms; one that is let go does not say so."""
REOPEN_S = 1.0
SYSTEM = Path("/sys/class/input")

# Code -> axis and sign. A stick's y points down and a gamepad's left stick moves in the plane, the right one up and round.
GAMEPAD_AXES = {1: (0, -1.0), 0: (1, -1.0), 4: (2, -1.0), 3: (5, -1.0)}
SPACEMOUSE_AXES = {1: (0, -1.0), 0: (1, -1.0), 2: (2, -1.0), 3: (3, 1.0), 4: (4, 1.0), 5: (5, -1.0)}
SPACEMOUSE_RANGE = 350
DEADMAN = 0x136
"""BTN_TL: a gamepad moves only while its left shoulder button is held. A SpaceMouse springs back and falls silent."""
GAMEPAD_EVENTS = {
    0x130: GRIP, 0x13B: START, 0x131: SUCCESS, 0x134: FAILURE, 0x133: REDO, 0x13A: RESET, 0x137: STOP, 0x13C: RECOVER,
}  # fmt: skip
"""A gripper, START start, B success, Y failure, X discard and redo, SELECT reset, RB stop, the middle button permit."""
SPACEMOUSE_EVENTS = {0x100: GRIP, 0x101: STOP}
GAMEPAD_HELP = (
    "pad   hold LB and move the sticks · RB stop · middle button permit motion · A gripper · START start · B success · "
    "Y failure · X redo · SELECT reset"
)
SPACEMOUSE_HELP = "cap   push it · left button gripper · right button stop"
KEYS_HELP = "keys  c permit motion · Enter start · s success · f failure · Backspace redo · r reset · Esc stop · q quit"


class Stick:
    """A device under /dev/input.

    Nothing it last said is believed for long: the kernel passes on no relative axis that has come to rest, repeats no absolute
    one that stays, and says nothing where a radio link is lost.
    """

    def __init__(
        self, name: str, handle: int, ranges: dict[int, tuple[int, int]], config: TeleopConfig, keys: Keyboard | None,
        device: str | None = None,
    ) -> None:  # fmt: skip
        self.help = (GAMEPAD_HELP if name == "gamepad" else SPACEMOUSE_HELP, KEYS_HELP)
        self.trouble = ""
        """What a person should know of the device."""
        self._name, self._device = name, device
        self._handle: int | None = handle
        self._ranges, self._config, self._keys = ranges, config, keys
        self._gamepad = name == "gamepad"
        self._rest = b""
        self._opened_at = time.monotonic()
        self._let_go()

    @classmethod
    def open(cls, name: str, device: str | None, config: TeleopConfig, keys: Keyboard | None) -> Stick:
        path = device or find_device(name)
        try:
            handle = _opened(path)
        except OSError as fault:
            denied = fault.errno == errno.EACCES
            way = "join the group input (sudo usermod -aG input $USER) and log in again" if denied else "give another --device"
            raise BadInput(f"{path}: {fault.strerror}; {way}") from None
        return cls(name, handle, _ranges(name, handle), config, keys, device)

    def _let_go(self) -> None:
        """Nothing is held any more; a deadman counts only once it is pressed anew."""
        self._axes = [0.0] * 6
        self._relative: dict[int, float] = {}
        self._framed: dict[int, float] = {}
        self._held = self._lost = False
        self._heard_at = float("-inf")

    def read(self, timeout_s: float) -> Wish:
        wish = self._keys.read(0.0) if self._keys else Wish()
        events = list(wish.events)
        if self._handle is None:
            time.sleep(timeout_s)
            self._reopen()
        elif select.select([self._handle], [], [], timeout_s)[0]:
            try:
                data = os.read(self._handle, 64 * EVENT.size)
            except OSError:
                data = b""
            if data:
                data = self._rest + data
                whole = len(data) - len(data) % EVENT.size
                self._rest = data[whole:]
                events += [event for one in EVENT.iter_unpack(data[:whole]) for event in self._take(*one[2:])]
            else:  # unplugged, which nobody does in the middle of a motion that shall go on
                self._gone()
                events.append(STOP)
        axes = self._now()
        return Wish(axes if axes != NOWHERE else wish.axes, tuple(events), wish.preset, self._held)

    def _now(self) -> Axes:
        """What is held at this moment."""
        now = time.monotonic()
        if now - self._heard_at > self._config.silent_s and (self._held or any(self._axes)):
            self._let_go()
            again = "press LB again" if self._gamepad else "move the cap again"
            self.trouble = f"the {self._name} has sent nothing for {self._config.silent_s:g} s: it counts as let go; {again}"
        for axis, at in list(self._relative.items()):
            if now - at > RELATIVE_S:
                self._axes[axis] = 0.0
                del self._relative[axis]
        if self._gamepad and not self._held:
            return NOWHERE
        return _axes(self._axes, self._config.deadzone, turns=self._gamepad or self._config.cap_turns)

    def _gone(self) -> None:
        assert self._handle is not None
        os.close(self._handle)
        self._handle, self._rest = None, b""
        self._let_go()
        self.trouble = f"the {self._name} is gone: the arm was stopped; plug it in again"

    def _reopen(self) -> None:
        now = time.monotonic()
        if now - self._opened_at < REOPEN_S:
            return
        self._opened_at = now
        with contextlib.suppress(OSError, BadInput):
            self._handle = _opened(self._device or find_device(self._name))
            self._ranges = _ranges(self._name, self._handle)
            self.trouble = f"the {self._name} is back"

    def _take(self, kind: int, code: int, value: int) -> Iterable[str]:
        self._heard_at = time.monotonic()
        if kind == EV_SYN:
            self._synchronised(code)
            return []
        if self._lost:
            return []
        if kind == EV_KEY:
            if code == DEADMAN and self._gamepad:
                self._held = value != 0
                self.trouble = ""
            known = GAMEPAD_EVENTS if self._gamepad else SPACEMOUSE_EVENTS
            return [known[code]] if value == 1 and code in known else []
        axes = GAMEPAD_AXES if self._gamepad else SPACEMOUSE_AXES
        if kind in (EV_ABS, EV_REL) and code in axes:
            axis, sign = axes[code]
            low, high = self._ranges[code]
            self._axes[axis] = sign * max(-1.0, min(1.0, (2.0 * value - low - high) / max(high - low, 1)))
            if kind == EV_REL:
                self._framed[axis] = self._heard_at
            elif not self._gamepad:
                self.trouble = ""
        return []

    def _synchronised(self, code: int) -> None:
        """The end of a report; or the kernel's buffer ran over, and what was lost may be the letting go."""
        if code == SYN_DROPPED:
            self._let_go()
            self._lost = True
            return
        self._lost = False
        if self._framed:  # of relative axes a report has those that are not at rest: three shifts, three turns, or all six
            for group in (range(3), range(3, 6)):
                if any(axis in self._framed for axis in group):
                    for axis in group:
                        self._axes[axis] = self._axes[axis] if axis in self._framed else 0.0
            self._relative |= self._framed
            self._framed, self.trouble = {}, ""

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _opened(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)


def _ranges(name: str, handle: int) -> dict[int, tuple[int, int]]:
    return {code: _range(handle, code) for code in (GAMEPAD_AXES if name == "gamepad" else SPACEMOUSE_AXES)}


@dataclass(frozen=True)
class Driver:
    """What a ROS driver publishes: `sensor_msgs/Joy`, and the Spacenav's also as `geometry_msgs/Twist`."""

    topic: str
    axes: dict[int, int]
    """Number in the message -> axis; the drivers' signs are those of the base frame."""
    events: dict[int, str]
    """By button."""
    help: str
    deadman: int | None = None
    """The button without which nothing moves; None for a cap that springs back."""
    twist_topic: str | None = None


JOY = Driver(
    "/joy", {1: 0, 0: 1, 4: 2, 3: 5},
    {0: GRIP, 7: START, 1: SUCCESS, 3: FAILURE, 2: REDO, 6: RESET, 5: STOP, 8: RECOVER}, GAMEPAD_HELP, 4,
)  # fmt: skip
"""The `joy` node; buttons of an Xbox controller as it numbers them."""
SPACENAV = Driver("/spacenav/joy", {i: i for i in range(6)}, {0: GRIP, 1: STOP}, SPACEMOUSE_HELP, twist_topic="/spacenav/twist")
"""The `spacenav` node, with its own scales left at 1."""


class JoyTopic:
    """A ROS driver's topic; a driver that falls silent counts as let go."""

    def __init__(self, driver: Driver, config: TeleopConfig, keys: Keyboard | None) -> None:
        self.help = (driver.help, KEYS_HELP)
        self._driver, self._config, self._keys = driver, config, keys
        self._axes: Axes = NOWHERE
        self._pressed: list[int] = []
        self._events: list[str] = []
        self._heard = self._joy_heard = self._changed = float("-inf")
        self._said: tuple[object, ...] = ()
        self._held = False
        self._let_go = False
        self.trouble = ""

    def join(self, node: Any) -> None:
        from cail_robot.recording.nodes import listen_to_joy, listen_to_twist

        listen_to_joy(node, self._driver.topic, self.take)
        if self._driver.twist_topic is not None:
            listen_to_twist(node, self._driver.twist_topic, self.take_twist)

    def take(self, axes: Sequence[float], buttons: Sequence[int]) -> None:
        self._joy_heard = time.monotonic()
        deadman = self._driver.deadman
        pressed = deadman is not None and len(buttons) > deadman and bool(buttons[deadman])
        self._watch((tuple(axes), tuple(buttons)), fresh=not pressed if deadman is not None else not any(axes))
        held = not self._let_go and (deadman is None or pressed)
        self._held = held and pressed
        found = [0.0] * 6
        for number, axis in self._driver.axes.items():
            if held and number < len(axes):
                found[axis] = axes[number]
        self._move(found)
        before, self._pressed = self._pressed, [i for i, down in enumerate(buttons) if down]
        self._events += [self._driver.events[i] for i in self._pressed if i in self._driver.events and i not in before]

    def _watch(self, said: tuple[object, ...], fresh: bool) -> None:
        """A driver repeats what it last heard, also of a pad whose link is lost: the same for too long counts as let go.

        `fresh`: nothing is held, from where one may begin anew.
        """
        now = time.monotonic()
        if said != self._said:
            self._said, self._changed = said, now
        if fresh:
            self._let_go, self.trouble = False, ""
        elif now - self._changed > self._config.silent_s and not self._let_go:
            self._let_go = True
            self.trouble = f"{self._driver.topic} has said the same for {self._config.silent_s:g} s: it counts as let go; let go"

    def take_twist(self, twist: Sequence[float]) -> None:
        """The same motion as on the other topic: only where nothing comes there."""
        if time.monotonic() - self._joy_heard > self._config.repeat_s:
            self._watch(tuple(twist), fresh=not any(twist))
            self._move(NOWHERE if self._let_go else twist)

    def _move(self, raw: Sequence[float]) -> None:
        self._heard = time.monotonic()
        whole = all(map(math.isfinite, raw))
        turns = self._driver.deadman is not None or self._config.cap_turns
        self._axes = _axes([max(-1.0, min(1.0, v)) for v in raw], self._config.deadzone, turns=turns) if whole else NOWHERE

    def read(self, timeout_s: float) -> Wish:
        wish = self._keys.read(timeout_s) if self._keys else Wish()
        if self._keys is None:
            time.sleep(timeout_s)
        events, self._events = self._events, []
        silent = time.monotonic() - self._heard > self._config.repeat_s
        axes = NOWHERE if silent else self._axes
        return Wish(axes if axes != NOWHERE else wish.axes, (*wish.events, *events), wish.preset, self._held and not silent)

    def close(self) -> None:
        """The node belongs to the session."""


def find_device(name: str) -> str:
    """The first device that looks like what is meant."""
    words = ("spacemouse", "spacenavigator", "3dconnexion") if name == "spacemouse" else ("pad", "controller", "joystick", "xbox")
    seen = []
    for folder in sorted(SYSTEM.glob("event*")):
        try:
            title = (folder / "device" / "name").read_text(encoding="utf-8").strip()
        except OSError:
            continue
        seen.append(title)
        if any(word in title.lower() for word in words) and "touchpad" not in title.lower():
            return f"/dev/input/{folder.name}"
    there = ", ".join(seen) or "no input devices"
    raise BadInput(f"expected a {name}, found {there}; plug it in, or give --device /dev/input/event…")


def _range(handle: int, code: int) -> tuple[int, int]:
    """What the kernel says of an axis (EVIOCGABS); a SpaceMouse that reports relative axes has no range."""
    buffer = bytearray(24)
    try:
        fcntl.ioctl(handle, 0x80184540 + code, buffer)
    except OSError:
        return -SPACEMOUSE_RANGE, SPACEMOUSE_RANGE
    _, low, high = struct.unpack_from("3i", buffer)
    return (low, high) if high > low else (-SPACEMOUSE_RANGE, SPACEMOUSE_RANGE)


def _axes(raw: Sequence[float], deadzone: float, *, turns: bool) -> Axes:
    """Beyond the dead zone from 0 to 1, without a jump."""
    x, y, z, a, b, c = (math.copysign(max(0.0, abs(v) - deadzone) / (1.0 - deadzone), v) for v in raw)
    return (x, y, z, a, b, c) if turns else (x, y, z, 0.0, 0.0, 0.0)
