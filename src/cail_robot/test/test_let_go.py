"""Devices that are let go, unplugged or lose their link, by the kernel's own events: none keeps commanding."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cail_robot.teleop import gamepad
from cail_robot.teleop.command import NOWHERE, STOP, TeleopConfig
from cail_robot.teleop.gamepad import DEADMAN, EV_ABS, EV_KEY, EV_REL, EV_SYN, EVENT, JOY, SYN_DROPPED, JoyTopic, Stick

CONFIG = TeleopConfig()
SYN = (EV_SYN, 0, 0)
Send = Callable[..., None]


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(gamepad, "time", made)
    return made


@pytest.fixture
def device(tmp_path: Path, clock: Clock) -> Iterator[Callable[[str], tuple[Stick, Send]]]:
    """A device file whose kernel events the test writes: a named pipe, which a device that is gone leaves at its end."""
    made: list[tuple[Stick, int]] = []

    def make(name: str, config: TeleopConfig = CONFIG) -> tuple[Stick, Send]:
        path = tmp_path / f"event{len(made)}"
        os.mkfifo(path)
        stick = Stick.open(name, str(path), config, None)
        writer = os.open(path, os.O_WRONLY)
        made.append((stick, writer))
        stick.unplug = lambda: os.close(writer)  # type: ignore[attr-defined]
        return stick, lambda *events: os.write(writer, b"".join(EVENT.pack(0, 0, *event) for event in events))

    yield make
    for stick, writer in made:
        stick.close()
        with contextlib.suppress(OSError):  # unplugged
            os.close(writer)


def test_a_cap_with_relative_axes_stops_when_it_is_let_go(device: Callable[[str], tuple[Stick, Send]], clock: Clock) -> None:
    """Linux passes on no relative axis of value 0, so the last word of a cap that springs back is a deflection."""
    cap, send = device("spacemouse")
    for _ in range(5):
        send((EV_REL, 1, -300), SYN)
        assert cap.read(0.0).axes[0] > 0.8
        clock.now += 0.016
    clock.now += 0.1
    assert cap.read(0.0).axes == NOWHERE
    clock.now += 3.0
    assert cap.read(0.0).axes == NOWHERE


def test_an_axis_that_is_let_go_while_another_is_pushed_rests(device: Callable[[str], tuple[Stick, Send]], clock: Clock) -> None:
    cap, send = device("spacemouse")
    send((EV_REL, 1, -300), (EV_REL, 0, 300), SYN)
    assert [round(v, 2) for v in cap.read(0.0).axes[:2]] == [0.84, -0.84]
    clock.now += 0.016
    send((EV_REL, 1, -300), SYN)
    assert [round(v, 2) for v in cap.read(0.0).axes[:2]] == [0.84, 0.0]


def test_a_cap_turns_the_tool_only_where_that_was_asked_for(device: Callable[..., tuple[Stick, Send]]) -> None:
    for turns in (False, True):
        cap, send = device("spacemouse", TeleopConfig(cap_turns=turns))
        send((EV_REL, 3, 300), SYN)
        assert any(cap.read(0.0).axes) is turns


def test_a_pad_whose_link_is_lost_with_its_button_held_stops(device: Callable[[str], tuple[Stick, Send]], clock: Clock) -> None:
    pad, send = device("gamepad")
    send((EV_KEY, DEADMAN, 1), (EV_ABS, 1, -32768), SYN)
    assert pad.read(0.0).axes[0] > 0.8
    clock.now += 0.9
    assert pad.read(0.0).axes[0] > 0.8
    clock.now += 0.2
    wish = pad.read(0.0)
    assert (wish.axes, wish.held) == (NOWHERE, False)
    assert "has sent nothing for 1 s: it counts as let go; press LB again" in pad.trouble
    send((EV_ABS, 1, -30000), SYN)
    assert pad.read(0.0).axes == NOWHERE, "not by itself when the link comes back"
    send((EV_KEY, DEADMAN, 0), SYN, (EV_KEY, DEADMAN, 1), SYN)
    assert pad.read(0.0).axes[0] > 0.8
    assert pad.trouble == ""


def test_lost_events_count_as_let_go(device: Callable[[str], tuple[Stick, Send]]) -> None:
    pad, send = device("gamepad")
    send((EV_KEY, DEADMAN, 1), (EV_ABS, 1, -32768), SYN)
    assert pad.read(0.0).axes[0] > 0.8
    send((EV_SYN, SYN_DROPPED, 0), (EV_ABS, 1, -32768), (EV_KEY, DEADMAN, 1), SYN)
    wish = pad.read(0.0)
    assert (wish.axes, wish.held) == (NOWHERE, False)


@pytest.mark.parametrize("name", ["gamepad", "spacemouse"])
def test_an_unplugged_device_stops_the_arm_once_is_said_and_is_taken_again(
    device: Callable[[str], tuple[Stick, Send]], clock: Clock, name: str, tmp_path: Path
) -> None:
    stick, send = device(name)
    send((EV_KEY, DEADMAN, 1), (EV_ABS, 1, -300), SYN)
    stick.read(0.0)
    stick.unplug()  # type: ignore[attr-defined]
    wish = stick.read(0.02)
    assert (wish.axes, wish.events, wish.held) == (NOWHERE, (STOP,), False)
    assert stick.trouble == f"the {name} is gone: the arm was stopped; plug it in again"
    before = clock.now
    for _ in range(40):
        assert stick.read(0.02).events == (), "said once"
    assert clock.now - before > 0.7, "it waits between two looks"
    (tmp_path / "event0").unlink()
    os.mkfifo(tmp_path / "event0")
    clock.now += 1.0
    stick.read(0.02)
    assert stick.trouble == f"the {name} is back"


def test_every_device_has_a_stop(device: Callable[[str], tuple[Stick, Send]]) -> None:
    for name, button in (("gamepad", 0x137), ("spacemouse", 0x101)):
        stick, send = device(name)
        send((EV_KEY, button, 1), SYN)
        assert stick.read(0.0).events == (STOP,)


def test_a_driver_that_repeats_what_a_lost_pad_last_said_counts_as_let_go(clock: Clock) -> None:
    joy = JoyTopic(JOY, CONFIG, None)
    pushed, held = [0.0, 1.0], [0, 0, 0, 0, 1]
    for _ in range(19):
        joy.take(pushed, held)
        assert joy.read(0.05).axes[0] > 0.8
    for _ in range(4):
        joy.take(pushed, held)
        wish = joy.read(0.05)
    assert (wish.axes, wish.held) == (NOWHERE, False)
    joy.take([0.0, 0.9], held)
    assert joy.read(0.05).axes == NOWHERE, "not by itself"
    joy.take([0.0, 0.9], [0, 0, 0, 0, 0])
    joy.take([0.0, 0.9], held)
    assert joy.read(0.05).axes[0] > 0.8
