"""`cail bench ur5e`: what a row says of the episodes of one policy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TextIO

import numpy as np
import pytest

from cail_bench.cells import ROW
from cail_bench.studies import BUDGETS, UR5E, cell
from cail_core.demos.episode import Episode, end_flags
from cail_core.demos.features import ACTION, REWARD, STATE, frame_features
from cail_core.demos.writer import DemoWriter

pytest.importorskip("pybullet")

from cail_bench import graph
from cail_bench.ur5e import BOX, learned_and_played, row


def test_a_row_counts_what_came_of_the_episodes() -> None:
    episodes = [("success", -50.0, 4.0), ("collided", -2040.0, 2.0), ("success", -60.0, 5.0), ("stopped", -9.0, 1.0)]
    made = row("cail-bc", 3, BOX, episodes)
    assert made == {"method": "cail-bc", "seed": 3, "played": "control box", "episodes": 4, "successes": 2, "return": -539.75,
                    "return_of_successes": -55.0, "otherwise": "1 collided, 1 stopped", "interrupted": 0}


def test_without_a_success_there_is_no_return_of_successes() -> None:
    assert row("bc", 0, BOX, [("timeout", -73.0, 12.0)])["return_of_successes"] == ""


def test_a_method_that_diverged_keeps_its_place(tmp_path: Path) -> None:
    wanted = cell(BUDGETS["smoke"], UR5E, "bc", 0, at="ur5e")
    folder = tmp_path / "cells" / wanted.key
    folder.mkdir(parents=True)
    (folder / ROW).write_text(json.dumps({"outcome": "diverged: inner_loss is nan"}))
    rows = learned_and_played("bc", 0, "smoke", tmp_path)
    assert [(made["episodes"], made["return"]) for made in rows] == [(0, ""), (0, "")]
    assert {made["otherwise"] for made in rows} == {"diverged: inner_loss is nan"}


def test_an_interrupted_episode_is_played_again_and_a_failure_says_what_ended_it(tmp_path: Path,
                                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches come to these ends: the machine stalls twice, and what is asked for next is what is missing."""
    ends = iter([["success", "interrupted"], ["interrupted"], ["failure", "collided"]])
    asked: list[tuple[str, str]] = []

    def launch(robot: str, arguments: dict[str, str], seed: str, said: TextIO) -> None:
        asked.append((arguments["episodes"], seed))
        root = Path(arguments["dataset"])
        numbers = np.zeros((2, 1), np.float32)
        features = frame_features(("x",), ("u",), success=False)
        new = partial(DemoWriter.create, task="ur5e", text="", robot_type="arm", fps=50, features=features)
        with (DemoWriter.open if root.exists() else new)(root) as writer:
            for outcome in next(ends):
                frames = {STATE: numbers, ACTION: numbers, REWARD: np.ones(2, np.float32), **end_flags(2, truncated=False)}
                why = {"why": "the guard stopped the policy: 2.5 from what it learned from"}
                writer.save_episode(Episode(frames, numbers[0], "policy", outcome, recording=why))

    monkeypatch.setattr(graph, "launch", launch)
    graph.graph(tmp_path / "played", 3, 40)
    assert asked == [("3", "40"), ("2", "42"), ("2", "43")]
    assert graph.interrupted(tmp_path / "played") == 2
    assert [outcome for outcome, _, _ in graph.deployed(tmp_path / "played")] == [
        "success", "the guard stopped the policy", "collided"]  # fmt: skip


def test_what_a_killed_benchmark_started_ends_too() -> None:
    starts = ("import subprocess, time; from cail_bench.graph import end_with_parent; "
              "print(subprocess.Popen(['sleep', '60'], preexec_fn=end_with_parent).pid, flush=True); time.sleep(60)")
    with subprocess.Popen([sys.executable, "-c", starts], stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        started = int(bench.stdout.readline())
        os.kill(started, 0)
        bench.kill()
    end = time.monotonic() + 20.0
    while _runs(started):
        assert time.monotonic() < end
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    """Neither gone nor waiting to be fetched by whoever adopted it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
