"""The benchmarks of stops and latency, in their shortest form: what they promise holds, and they leave their tables."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("pybullet")

from cail_bench.command import added


def table(path: Path) -> list[dict[str, str]]:
    assert json.loads(path.with_suffix(".json").read_text())["machine"]
    with path.open() as lines:
        return list(csv.DictReader(lines))


def test_faults_stop_the_arm_and_nothing_resumes(tmp_path: Path) -> None:
    rows = {row["fault"]: row for row in table(added()["arm-faults"].load()("smoke", tmp_path, 0))}
    assert {"commands end", "command not finite", "two publishers", "SIGTERM"} == rows.keys()
    assert all(row["resumed"] == "0" for row in rows.values())
    assert "no command for 0.08 s" in rows["commands end"]["status"]
    assert "not finite" in rows["command not finite"]["status"]
    assert "two publishers" in rows["two publishers"]["status"]
    assert rows["SIGTERM"]["status"] == "exit code 0"
    assert float(rows["commands end"]["stop_max_ms"]) < 500  # 120 on a quiet machine: results/arm-faults.csv


def test_commands_reach_the_arm(tmp_path: Path) -> None:
    (row,) = table(added()["arm-latency"].load()("smoke", tmp_path, 0))
    assert int(row["commands_received"]) > 50
    assert int(row["poses_heard"]) > 50
    assert 0 < float(row["arrived_p50_ms"]) <= float(row["reached_max_ms"])
