"""Hands to twists: nothing moves unless something is held, and every key does one thing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cail_core.config import find_config, load_config
from cail_core.errors import BadInput, ConfigError
from cail_robot.recording.session import Desk
from cail_robot.ros.arm_link import ArmReport
from cail_robot.teleop import gamepad as sticks
from cail_robot.teleop.command import (
    FAILURE,
    GRIP,
    NOWHERE,
    QUIT,
    RECOVER,
    START,
    STOP,
    SUCCESS,
    Axes,
    HeldKeys,
    Keyboard,
    Steering,
    TeleopConfig,
    Wish,
)
from cail_robot.teleop.gamepad import DEADMAN, EV_ABS, EV_KEY, EVENT, JOY, SPACENAV, JoyTopic, Stick
from cail_robot.teleop.scripted import Script, read_script

CONFIG = TeleopConfig()


def test_the_installed_settings_are_the_documented_defaults() -> None:
    assert load_config(TeleopConfig, find_config("teleop")) == CONFIG
    with pytest.raises(ConfigError, match="expected 3 presets, given 2"):
        TeleopConfig(linear_speeds=[0.1, 0.2])


def test_a_tap_moves_shortly_and_a_held_key_until_its_repeats_end() -> None:
    held = HeldKeys(CONFIG)
    held.press("up", 10.0)
    assert held.axes(10.0)[0] == held.axes(10.14)[0] == 1.0
    assert held.axes(10.16) == NOWHERE, "the keyboard has not begun to repeat"
    for i in range(20):
        held.press("up", 10.5 + 0.03 * i)
        assert held.axes(10.5 + 0.03 * i)[0] == 1.0
    assert held.axes(11.07 + 0.14)[0] == 1.0
    assert held.axes(11.07 + 0.16) == NOWHERE
    held.press("up", 20.0)
    assert held.axes(20.16) == NOWHERE, "much later: a new press"


def test_another_key_ends_the_one_before() -> None:
    held = HeldKeys(CONFIG)
    held.press("up", 1.0)
    held.press("left", 1.05)
    assert held.axes(1.06) == (0.0, 1.0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("key", "axis", "sign"),
    [("up", 0, 1), ("down", 0, -1), ("left", 1, 1), ("right", 1, -1), ("page-up", 2, 1), ("k", 2, -1), ("j", 5, 1), ("l", 5, -1)],
)
def test_keys_move_along_the_axes_of_the_base(key: str, axis: int, sign: int) -> None:
    keyboard, steering = Keyboard(lambda timeout: [key], CONFIG, clock=lambda: 0.0), Steering(CONFIG)
    twist = steering.twist(keyboard.read(0.0))
    assert twist[axis] == sign * (0.06 if axis < 3 else 0.25)
    assert sum(map(abs, twist)) == abs(twist[axis])


def test_presets_choose_the_speed() -> None:
    keys = iter([["1", "up"], ["3"], []])
    now = 0.0
    keyboard, steering = Keyboard(lambda timeout: next(keys), CONFIG, clock=lambda: now), Steering(CONFIG)
    assert [steering.twist(keyboard.read(0.0))[0] for _ in range(2)] == [0.02, 0.15]
    now = 1.0
    assert steering.twist(keyboard.read(0.0)) == NOWHERE


def test_a_decision_about_the_episode_lets_go_of_the_motion() -> None:
    keyboard = Keyboard(lambda timeout: ["up", "s"], CONFIG, clock=lambda: 0.0)
    assert keyboard.read(0.0) == Wish(NOWHERE, (SUCCESS,))


def test_a_script_plays_and_then_quits(tmp_path: Path) -> None:
    path = tmp_path / "s.txt"
    path.write_text("# a test\nwait 0.1\npress enter\nhold up 0.2   # drive\npress 3\npress s\n")
    now = 0.0

    def clock() -> float:
        return now

    script = Script(path, CONFIG, clock)
    seen: list[Wish] = []
    while not seen or QUIT not in seen[-1].events:
        seen.append(script.read(0.0))
        now += 0.02
    moving = [wish for wish in seen if wish.axes[0] == 1.0]
    assert len(moving) in (10, 11)
    assert [event for wish in seen for event in wish.events] == [START, SUCCESS, QUIT]
    assert seen[5].events in ((START,), ())
    assert all(wish.axes[1:] == NOWHERE[1:] for wish in seen)


def test_a_script_begins_when_the_arm_is_there(tmp_path: Path) -> None:
    class Arm:
        ready = False

    path, arm = tmp_path / "s.txt", Arm()
    path.write_text("press enter\n")
    script = Script(path, CONFIG, lambda: 0.0)
    script.join(arm)
    assert script.read(0.0) == script.read(0.0) == Wish()
    arm.ready = True
    assert script.read(0.0).events == (START,)


def test_a_wrong_script_lists_every_fault(tmp_path: Path) -> None:
    path = tmp_path / "s.txt"
    path.write_text("hold enter 3\nwait -1\npress up\nwait 1\nfly\n")
    with pytest.raises(BadInput) as fault:
        read_script(path)
    assert "4 faults" in str(fault.value)
    assert "line 5" in str(fault.value)
    with pytest.raises(BadInput, match="cannot be read"):
        read_script(tmp_path / "none.txt")


@pytest.fixture
def pad() -> object:
    """A gamepad whose kernel events we write: axes −32768 … 32767."""
    read, write = os.pipe()
    made = Stick("gamepad", read, dict.fromkeys((0, 1, 3, 4), (-32768, 32767)), CONFIG, None)
    yield made, lambda *events: os.write(write, b"".join(EVENT.pack(0, 0, *event) for event in events))
    made.close()
    os.close(write)


def test_a_gamepad_moves_only_while_its_shoulder_button_is_held(pad: tuple[Stick, object]) -> None:
    stick, send = pad
    send((EV_ABS, 1, -32768))  # type: ignore[operator]
    assert stick.read(1.0).axes == NOWHERE
    send((EV_KEY, DEADMAN, 1))  # type: ignore[operator]
    assert stick.read(1.0).axes[0] == pytest.approx(1.0)
    assert stick.read(0.0).axes[0] == pytest.approx(1.0), "held without new events"
    send((EV_ABS, 1, -3000))  # type: ignore[operator]
    assert stick.read(1.0).axes == NOWHERE, "inside the dead zone"
    send((EV_ABS, 0, 18022), (EV_KEY, 0x130, 1), (EV_KEY, 0x13B, 1))  # type: ignore[operator]
    wish = stick.read(1.0)
    assert wish.axes[1] == pytest.approx(-0.5, abs=0.001)  # right; 0.55 of the range, the dead zone of 0.1 taken off
    assert wish.events == (GRIP, START)
    send((EV_KEY, 0x137, 1), (EV_KEY, 0x13C, 1))  # type: ignore[operator]
    assert stick.read(1.0).events == (STOP, RECOVER), "the right shoulder button stops, the middle one permits"
    send((EV_KEY, DEADMAN, 0))  # type: ignore[operator]
    assert stick.read(1.0).axes == NOWHERE


def test_devices_are_found_by_name_or_named_in_the_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticks, "SYSTEM", tmp_path)
    with pytest.raises(BadInput, match="no input devices"):
        sticks.find_device("gamepad")
    names = ("Power Button", "SynPS/2 Synaptics TouchPad", "3Dconnexion SpaceMouse Wireless", "Xbox Wireless Controller")
    for number, name in enumerate(names):
        (tmp_path / f"event{number}" / "device").mkdir(parents=True)
        (tmp_path / f"event{number}" / "device" / "name").write_text(name + "\n")
    assert sticks.find_device("gamepad") == "/dev/input/event3"
    assert sticks.find_device("spacemouse") == "/dev/input/event2"
    with pytest.raises(BadInput, match="No such file"):
        Stick.open("gamepad", str(tmp_path / "event9"), CONFIG, None)


def test_a_silent_joy_driver_counts_as_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5.0
    monkeypatch.setattr(sticks.time, "monotonic", lambda: now)
    joy = JoyTopic(JOY, CONFIG, Keyboard(lambda timeout: [], CONFIG))
    joy.take([0.0, 1.0], [0, 1, 0, 0, 1])
    assert joy.read(0.0) == Wish((1.0, 0.0, 0.0, 0.0, 0.0, 0.0), (SUCCESS,), held=True)
    joy.take([0.0, 1.0], [0, 1, 0, 0, 1])
    assert joy.read(0.0).events == (), "a button held is pressed once"
    joy.take([0.0, 1.0], [0, 0, 0, 0, 1, 1, 0, 0, 1])
    assert joy.read(0.0).events == (STOP, RECOVER)
    now += 0.2
    assert joy.read(0.0).axes == NOWHERE
    joy.take([0.0, 1.0], [0, 0, 0, 0, 0])
    assert joy.read(0.0).axes == NOWHERE, "without the shoulder button"


def test_the_spacenav_driver_moves_by_its_cap_alone_and_falls_silent_when_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5.0
    monkeypatch.setattr(sticks.time, "monotonic", lambda: now)
    cap = JoyTopic(SPACENAV, CONFIG, Keyboard(lambda timeout: [], CONFIG))
    cap.take([0.55, 0.05, -0.55, 0.0, 0.0, 1.3], [1, 0])
    half = 0.5  # the dead zone of 0.1 taken off
    assert cap.read(0.0).axes == pytest.approx((half, 0.0, -half, 0.0, 0.0, 0.0)), "turns are locked unless asked for"
    cap.take_twist([0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    assert cap.read(0.0).axes[:2] == pytest.approx((half, 0.0)), "the twist is the same motion, scaled perhaps: Joy counts"
    now += 0.2
    assert cap.read(0.0).axes == NOWHERE
    cap.take_twist([0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    assert cap.read(0.0) == Wish((0.0, 1.0, 0.0, 0.0, 0.0, 0.0)), "where no Joy comes, the twist counts"
    cap.take_twist([0.0, float("nan"), 0.0, 0.0, 0.0, 0.0])
    assert cap.read(0.0).axes == NOWHERE
    cap.take([0.0] * 6, [1, 1])
    assert cap.read(0.0).events == (STOP,), "the left button was down before"


class Link:
    """Remembers what the desk asked of the arm."""

    def __init__(self) -> None:
        self.report = ArmReport("ENABLED: motion is permitted", "", (0.5, 0.0, 0.2), 1.0)
        self.calls: list[object] = []
        self.answers: list[tuple[str, bool, str]] = []

    def move(self, twist: Axes) -> None:
        self.calls.append(twist)

    def grip(self, opening: float) -> None:
        self.calls.append(("grip", opening))

    def stop(self) -> None:
        self.calls.append("stop")

    simulated = False
    note = ""

    def unlock(self) -> None:
        self.calls.append("unlock")

    def permit(self) -> None:
        self.calls.append("permit")

    def disable(self) -> None:
        self.calls.append("disable")

    def reset(self) -> None:
        self.calls.append("reset")
        self.answers.append(("reset", True, "episode 2 started"))

    def answer(self) -> tuple[str, bool, str] | None:
        return self.answers.pop(0) if self.answers else None


def test_the_desk_does_what_each_key_says(tmp_path: Path) -> None:
    from reach import Messages, Reach, feed

    from cail_robot.recording.recorder import Recorder

    now = 0.0
    recorder = Recorder(tmp_path / "demos", Reach(), robot="stick", demonstrator="anna", clock=lambda: now)
    link, messages = Link(), Messages(0)
    pressed: list[str] = []
    desk = Desk(Keyboard(lambda timeout: [pressed.pop(0)] if pressed else [], CONFIG, clock=lambda: now), link, recorder,
                Steering(CONFIG), "title", clock=lambda: now)  # fmt: skip

    def press(key: str | None, cycles: int = 3) -> str:
        nonlocal now
        pressed.extend([key] if key else [])
        for _ in range(cycles):
            desk.step(0.0)
            feed(recorder, messages.cycle())
            now += 0.02
        return desk.line()

    assert "nothing comes on" in press("enter", 1), "recording is refused until the arm is heard"
    press(None, 15)
    assert "0 RECORDING" in press("enter")
    assert "before the scene is put back" in press("r")
    assert link.calls[-1] == NOWHERE
    assert "saved episode 0 as success" in press("s")
    press("enter")
    assert press("backspace").startswith("ENABLED")
    assert "reset" in link.calls
    assert recorder.discarded == 1
    assert "RECORDING" in press(None, 20), "it begins again by itself once the scene is back"
    assert "saved episode 1 as failure" in press("f")
    assert "no episode is being recorded" in press("f")
    press("space")
    press("space")
    assert [call for call in link.calls if isinstance(call, tuple) and call[0] == "grip"] == [("grip", 0.0), ("grip", 1.0)]
    press("escape")
    press("c")
    assert [call for call in link.calls if isinstance(call, str)] == ["reset", "stop", "permit"]
    press("enter")
    assert "q again leaves without it" in press("q")
    assert not desk.ended
    press("q")
    assert desk.ended
    desk.ended = False
    press("enter")
    press("ctrl-c")
    assert desk.ended, "at once, whatever is open"
    screen = desk.screen(80, 24)
    assert len(screen) == 24
    assert any("saved 2 (1 success, 1 failure), discarded 1, 2 in the dataset" in line for line in screen)
    recorder.close()
    assert sorted(p.name for p in (tmp_path / "demos/bags").iterdir()) == ["episode-00000.mcap", "episode-00001.mcap"]
    assert FAILURE == "failure"
