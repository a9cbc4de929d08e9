"""What is asked of the system for an arm in real time, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cail_robot.control import realtime as scheduling


@pytest.fixture
def unheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "_held", [])
    monkeypatch.delenv(scheduling.SWITCH, raising=False)
    monkeypatch.setattr("os.sched_setscheduler", lambda *_: None)
    monkeypatch.setattr(scheduling, "stay_in_memory", lambda: True)


@pytest.mark.usefixtures("unheld")
def test_a_zero_is_held_open_once_while_the_process_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    latency = tmp_path / "cpu_dma_latency"
    latency.touch()
    monkeypatch.setattr(scheduling, "SLEEP", latency)
    assert scheduling.ask_for_realtime(7) == "real-time scheduling, priority 7; the processors stay awake"
    assert scheduling.realtime(7)
    assert latency.read_bytes() == bytes(4)
    (held,) = scheduling._held
    assert not held.closed


@pytest.mark.usefixtures("unheld")
def test_what_is_not_permitted_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "SLEEP", tmp_path)
    assert "the processors may sleep" in scheduling.ask_for_realtime()
    monkeypatch.setenv(scheduling.SWITCH, "0")
    assert scheduling.ask_for_realtime() == "no real-time scheduling: CAIL_REALTIME=0"
    assert not scheduling.realtime(7)
