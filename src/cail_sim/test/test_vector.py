"""Worker processes: the same episodes with any number of them, none left behind, a lost one is said in one line."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pybullet")

from cail_core.demos.collect import collect
from cail_core.tasks import BatchEnv
from cail_sim.tasks import Panda
from cail_sim.vector import WorkerEnv, WorkerLost


def with_workers(workers: int) -> Panda:
    return Panda.of(dataclasses.replace(Panda().config, workers=workers))


def played(env: BatchEnv, seed: int, decisions: int) -> np.ndarray:
    """All that was observed and earned by a fixed sequence of actions."""
    rng = np.random.default_rng(1)
    actions = rng.uniform(-1, 1, (decisions, 3, 3)).astype(np.float32)
    rows = [env.reset(seed)]
    for action in actions:
        step = env.step(action[: env.num_envs])
        rows.append(np.c_[step.observation[:, 1:], step.reward])
    return np.stack(rows)


def test_episodes_do_not_depend_on_the_number_of_workers_or_environments() -> None:
    found = []
    for workers, num_envs in ((1, 2), (2, 2), (2, 3)):
        env = with_workers(workers).make_env(num_envs)
        assert isinstance(env, WorkerEnv) == (workers > 1)
        try:
            found.append(played(env, 7, 12)[:, :2])
        finally:
            env.close()
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


def test_workers_do_not_load_torch_and_end_when_closed() -> None:
    env = with_workers(2).make_env(2)
    assert isinstance(env, WorkerEnv)
    assert not any("torch" in Path(f"/proc/{pid}/maps").read_text() for pid in env.pids)
    env.close()
    assert not any(alive(pid) for pid in env.pids)


def test_a_killed_worker_is_said_in_one_line() -> None:
    env = with_workers(2).make_env(2)
    assert isinstance(env, WorkerEnv)
    try:
        env.reset(0)
        os.kill(env.pids[1], signal.SIGKILL)
        with pytest.raises(WorkerLost, match=r"worker 2 of 2 \(process \d+\) is lost: it was killed by SIGKILL") as lost:
            env.step(np.zeros((2, 3), np.float32))
        assert "\n" not in str(lost.value)
    finally:
        env.close()


def test_no_worker_outlives_a_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    try:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(alive, pids))
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    until = time.monotonic() + 60
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, pids))


PARENT = """
import numpy as np
from cail_sim.tasks import Panda
from cail_sim.vector import WorkerEnv
env = WorkerEnv(Panda(), 2, 2)
env.reset(0)
print(*env.pids, flush=True)
while True:
    env.step(np.zeros((2, 3), np.float32))
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_demonstrations_are_the_same_collected_one_by_one_or_many_at_once(tmp_path: Path) -> None:
    returns = []
    for workers, many in ((1, 1), (2, 3)):
        task = with_workers(workers)
        task.spec = dataclasses.replace(task.spec, most_envs=many)
        dataset = collect(task, [(task.demonstrators()["colliding"], 1.0)], 3, 0, tmp_path / str(many))
        assert {row.outcome for row in dataset.rows} == {"collided"}
        returns.append([row.undiscounted_return for row in dataset.rows])
    assert returns[0] == returns[1]
