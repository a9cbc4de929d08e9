"""`cail bench ur5e`: what a row says of the episodes of one policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cail_core.benchmarks.cells import ROW
from cail_core.benchmarks.studies import BUDGETS, UR5E, cell

pytest.importorskip("pybullet")

from cail_sim.ur5e_bench import BOX, learned_and_played, row


def test_a_row_counts_what_came_of_the_episodes() -> None:
    episodes = [("success", -50.0, 4.0), ("collided", -2040.0, 2.0), ("success", -60.0, 5.0), ("stopped", -9.0, 1.0)]
    made = row("cail-bc", 3, BOX, episodes)
    assert made == {"method": "cail-bc", "seed": 3, "played": "control box", "episodes": 4, "successes": 2, "return": -539.75,
                    "return_of_successes": -55.0, "otherwise": "1 collided, 1 stopped"}


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
