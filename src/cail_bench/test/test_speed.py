"""`cail bench panda-speed`: what it compares."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pybullet")

from cail_bench import sim_throughput as speed
from cail_sim.tasks.env import CONTROL_TICKS
from cail_sim.tasks.panda import Panda


def test_the_bare_engine_makes_the_recorded_episode_again() -> None:
    """What is timed as bare is the same motion: replayed motor speeds carry the bottle to where it was carried."""
    task = Panda()
    _, [(start, commands)] = speed.record(task, 1, 0)
    env = task.one()
    try:
        rng, best = np.random.default_rng((0, 0)), task.demonstrators()["best"].start(np.random.default_rng(0))
        env.start(rng)
        for _ in range(len(commands) // 2):  # control periods of a decision
            env.decide(best(np.array(env.observe(), dtype=np.float32)).tolist())
        carried = env.world.poses()[0][0]
        env.world.begin(start)
        for speeds in commands:
            env.world.replay(speeds, CONTROL_TICKS)
        assert env.world.poses()[0][0] == pytest.approx(carried, abs=1e-6)
        assert carried != pytest.approx((*start.bottle, 0.0), abs=0.1)
    finally:
        env.close()


def test_the_bench_sets_everything_against_the_bare_engine(tmp_path: Path) -> None:
    made = speed.run("smoke", tmp_path, 0)
    rows = {row["what"]: row for row in csv.DictReader(made.open())}
    assert list(rows) == [speed.BARE, speed.TWO_BARE, "1 worker", "2 workers"]
    assert float(rows[speed.BARE]["ratio_to_bare"]) == 1.0
    assert all(float(row["ticks_per_s"]) > 0 for row in rows.values())
    assert 0 < float(rows["2 workers"]["peak_mb_per_worker"]) <= 250
