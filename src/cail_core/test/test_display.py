"""What is seen of a training where no bar can be drawn, as under a launcher."""

from __future__ import annotations

import pytest

from cail_core.training import display
from cail_core.training.display import Display


def test_without_a_terminal_the_progress_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(display.time, "monotonic", lambda: now)
    with Display(1000, 0, "bc on panda", show=True) as shown:
        for done in range(100, 1000, 100):
            now += 4.0
            shown.show(done, {"outer_loss": 0.25, "return": float("nan")})
    said = capsys.readouterr().err.splitlines()
    assert said == [f"bc on panda: {done} of 1000 steps  outer loss 0.25" for done in (300, 600, 900)]


def test_nothing_is_said_where_nobody_asked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "PLAIN_EVERY_S", 0.0)
    with Display(10, 0, "bc on panda", show=False) as shown:
        shown.show(5, {})
    assert capsys.readouterr().err == ""
