"""`cail bench ur5e`: what a row says of the episodes of one policy."""

from __future__ import annotations

import pytest

pytest.importorskip("pybullet")

from cail_sim.ur5e_bench import BOX, row


def test_a_row_counts_what_came_of_the_episodes() -> None:
    episodes = [("success", -50.0, 4.0), ("collided", -2040.0, 2.0), ("success", -60.0, 5.0), ("stopped", -9.0, 1.0)]
    made = row("cail-bc", 3, BOX, episodes)
    assert made == {"method": "cail-bc", "seed": 3, "played": "control box", "episodes": 4, "successes": 2, "return": -539.75,
                    "return_of_successes": -55.0, "otherwise": "1 collided, 1 stopped"}


def test_without_a_success_there_is_no_return_of_successes() -> None:
    assert row("bc", 0, BOX, [("timeout", -73.0, 12.0)])["return_of_successes"] == ""
