"""What a command advises, in the words of `ros2 launch`."""

from __future__ import annotations

import pytest

from cail_core.launch_words import spoken


@pytest.mark.parametrize(
    ("text", "under_launch"),
    [
        ("steer with --input gamepad, joy_topic or scripted", "steer with input:=gamepad, joy_topic or scripted"),
        ("trained on x; --other-robot if that is meant", "trained on x; other_robot:=true if that is meant"),
        ("plug it in, or give --device /dev/input/event…", "plug it in, or give device:=/dev/input/event…"),
        ("choose another --out", "choose another out:="),
        ("expected --script FILE with --input scripted", "expected script:=FILE with input:=scripted"),
        ("choose an --input other than none", "choose an input:= other than none"),
        ("leave out --window, or log in", "leave out viewer:=true, or log in"),
        ("--viewer true is for a simulator", "viewer:=true is for a simulator"),
        ("a - b, 3 -- 4, no option", "a - b, 3 -- 4, no option"),
    ],
)  # fmt: skip
def test_options_are_arguments_under_launch_and_stay_options_elsewhere(
    text: str, under_launch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CAIL_LAUNCH", raising=False)
    assert spoken(text) == text
    monkeypatch.setenv("CAIL_LAUNCH", "1")
    assert spoken(text) == under_launch
