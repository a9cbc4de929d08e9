"""A short version of `cail bench ur5e-faults`: real processes, DDS and sockets."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("rtde_control")


def test_the_arm_stops_and_stays_when_processes_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from boxes import prompt_process
    from ros_bench import own_domain

    from cail_bench.ur5e_faults import measure

    monkeypatch.setenv("ROS_DOMAIN_ID", own_domain())
    names = ["policy SIGKILLed", "RTDE loop SIGKILLed", "node SIGKILLed"]
    with prompt_process():
        kept = measure(names, 1, tmp_path, 0, "smoke")
    with open(kept, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["fault"] for row in rows] == names
    for row in rows:
        assert row["resumed"] == "0", row
        assert float(row["stop_max_ms"]) < 500.0, row  # the benchmark measures; a test machine may be busy
