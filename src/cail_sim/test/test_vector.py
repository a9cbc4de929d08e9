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
from cail_core.evaluation import evaluate
from cail_core.policy import ACTION_BOUND, Mode, Network
from cail_core.tasks import BatchEnv
from cail_core.tasks.base import PlayingEnv, RepeatingEnv
from cail_sim.bullet.vector import Batch, LocalEnv, WorkerEnv, WorkerLost
from cail_sim.tasks.panda import Panda


def with_workers(workers: int, max_ticks: int = 3000) -> Panda:
    return Panda.of(dataclasses.replace(Panda().config, workers=workers, max_ticks=max_ticks))


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


@pytest.mark.parametrize("workers", [1, 2])
def test_episodes_begin_as_they_are_told_to(workers: int) -> None:
    """Two environments with the same agenda of three, a third with another; after it each goes on by itself."""
    env = with_workers(workers, max_ticks=50).make_env(3)  # five decisions
    assert isinstance(env, RepeatingEnv)
    try:
        begun = [env.begin([[7, 8, 7], [7, 8, 7], [8, 9, 10]])]
        for _ in range(3):
            for _ in range(5):
                step = env.step(np.random.default_rng(0).uniform(-1, 1, (3, 3)).astype(np.float32))
            assert step.truncated.all()
            begun.append(step.observation)
        plain = env.reset(3)
        assert (plain == env.reset(3)).all()
    finally:
        env.close()
    for first, second, _ in begun:
        assert (first == second).all()
    assert (begun[0][0] == begun[2][0]).all()
    assert (begun[0][2] == begun[1][0]).all()
    assert (begun[0][0] != begun[1][0]).any()
    assert (begun[3][0] != begun[2][0]).any()


def small_network(rng: np.random.Generator) -> Network:
    sizes = {"layer0": (8, 15), "layer1": (3, 8)}
    weights = {"observation_mean": np.zeros(15), "observation_scale": np.ones(15)}
    for name, shape in sizes.items():
        weights |= {f"{name}.weight": rng.normal(0, 0.3, shape), f"{name}.bias": rng.normal(0, 0.1, shape[0])}
    return Network({name: value.astype(np.float32) for name, value in weights.items()}, "tanh")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("noisy", [False, True])
def test_playing_on_their_own_is_stepping_with_the_same_actions(workers: int, noisy: bool) -> None:
    """Two stretches, the first over an episode's end, against one step after another in another set of environments."""
    task = with_workers(workers, max_ticks=100)  # ten decisions
    rng = np.random.default_rng(0)
    network, noise = small_network(rng), rng.normal(0, 0.5, (15, 3, 3)).astype(np.float32)
    gain = rng.uniform(0.5, 2.0, (3, 3)).astype(np.float32) if noisy else np.ones((3, 3), np.float32)
    playing, stepped = task.make_env(3), LocalEnv([task.one() for _ in range(3)], Batch(3, 15, 3), range(3))
    assert isinstance(playing, PlayingEnv)
    try:
        playing.reset(5)
        observation = stepped.reset(5)
        for stretch in (noise[:12], noise[12:]):
            played = playing.play(network, len(stretch), *((stretch, gain) if noisy else ()))
            for t in range(len(stretch)):
                assert (played.observation[t] == observation).all()
                wanted = [np.tanh(factor * network(seen) + extra * noisy)
                          for seen, extra, factor in zip(observation, stretch[t], gain, strict=True)]
                assert played.action[t] == pytest.approx(np.clip(wanted, -ACTION_BOUND, ACTION_BOUND), abs=1e-6)
                step = stepped.step(played.action[t])
                assert (played.next_observation[t] == step.next_observation).all()
                assert (played.reward[t] == step.reward).all()
                assert (played.terminated[t] == step.terminated).all()
                assert (played.truncated[t] == step.truncated).all()
                observation = step.observation
            assert (played.current == observation).all()
    finally:
        playing.close()
        stepped.close()


def test_a_rollout_played_by_workers_has_the_policy_s_own_probabilities() -> None:
    torch = pytest.importorskip("torch")
    from cail_core.rl.ppo import PPO, PPOConfig
    from cail_core.rl.rollout import collect as roll_out

    task = with_workers(2)
    ppo = PPO(15, 3, PPOConfig(num_envs=2), torch.Generator().manual_seed(0))
    env = task.make_env(2)
    try:
        rollout = roll_out(env, env.reset(0), ppo, 6)
    finally:
        env.close()
    assert rollout.action.shape == (6, 2, 3)
    assert torch.equal(rollout.log_prob, ppo.actor.log_prob(rollout.observation, rollout.action))
    assert 0.02 < float(rollout.action.std()) < 0.5  # σ = e⁻² around an untrained policy at rest
    assert (rollout.current == rollout.next_observation[-1].numpy()).all()


def test_evaluating_a_policy_is_the_same_on_workers_and_step_by_step() -> None:
    task = with_workers(2, max_ticks=150)
    task.spec = dataclasses.replace(task.spec, most_envs=2)
    policy = Mode(small_network(np.random.default_rng(1)))
    own, asked = evaluate(task, policy, 5, 0), evaluate(task, lambda observation: policy(observation), 5, 0)
    assert own.lengths.tolist() == asked.lengths.tolist()
    assert own.returns == pytest.approx(asked.returns, rel=1e-3)


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
from cail_sim.tasks.panda import Panda
from cail_sim.bullet.vector import WorkerEnv
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
        again = collect(task, [(task.demonstrators()["colliding"], 1.0)], 3, 0, tmp_path / str(many))
        assert [row.undiscounted_return for row in again.rows] == returns[-1]  # all there: nothing is collected anew
    assert returns[0] == returns[1]
