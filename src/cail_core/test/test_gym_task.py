"""Any Gymnasium environment as a task: names, scales, seeds, processes, every method, films; and what does not fit."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cail_core.algorithms import method_names
from cail_core.algorithms.method import method_config, read_part
from cail_core.algorithms.registry import get_method
from cail_core.cli import main
from cail_core.demos.collect import collect, mix_of_function
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.edit import set_ranking
from cail_core.demos.features import ACTION
from cail_core.errors import BadInput
from cail_core.evaluation import evaluate
from cail_core.policy import load_policy
from cail_core.ranking.ranks import provenance, rank_by_return
from cail_core.tasks import RestartableEnv, get_task
from cail_core.tasks.base import RepeatingEnv
from cail_core.tasks.gym_batch import GymBatch, WorkerLost
from cail_core.tasks.gymnasium import GymTask
from cail_core.training import train

torch.set_num_threads(1)
CART = "gym:cart_envs:Cart-v0"


def cart() -> GymTask:
    task = get_task(CART)
    assert isinstance(task, GymTask)
    return task


def test_the_environment_says_what_the_task_is() -> None:
    spec = cart().spec
    assert spec.observation_names == ("cart_0", "cart_1", "goal", "mode_0", "mode_1")
    assert (spec.action_low, spec.action_high, spec.action_scale) == ((-2.0,), (6.0,), "action_0 -2 … 6")
    assert (spec.fps, spec.max_steps, spec.has_success, spec.has_environment) == (20, 30, True, True)


def test_actions_are_rescaled_and_success_is_what_the_environment_says() -> None:
    env = cart().make_env(2)
    try:
        first = env.reset(1)
        step = env.step(np.array([[0.0], [1.0]], np.float32))  # 0 is the middle, 2 N, which holds it; 1 is 6 N
        np.testing.assert_allclose(step.observation[:, 1], [0.0, 0.4], atol=1e-6)
        np.testing.assert_allclose(step.observation[0, [0, 2, 3, 4]], first[0, [0, 2, 3, 4]])
        near = np.abs(step.next_observation[:, 0] - step.next_observation[:, 2]) < 0.15
        assert step.success.tolist() == (near & (np.abs(step.observation[:, 1]) < 0.3)).tolist()
        for _ in range(29):
            step = env.step(np.zeros((2, 1), np.float32))
        assert step.truncated.tolist() == [True, not step.terminated[1]]
        assert not np.array_equal(step.observation[0], step.next_observation[0])  # a new episode has begun
    finally:
        env.close()


def played(env: GymBatch) -> np.ndarray:
    rng = np.random.default_rng(0)
    try:
        seen: list[Any] = [env.reset(7)]
        for _ in range(40):
            seen += env.step(rng.uniform(-1, 1, (env.num_envs, 1)).astype(np.float32))
        seen += [env.restart(3, 5), env.begin([[1, 2]] * env.num_envs)]
        return np.concatenate([np.ravel(np.asarray(part, dtype=np.float64)) for part in seen])
    finally:
        env.close()


def test_the_episodes_do_not_depend_on_the_number_of_processes() -> None:
    task = cart()
    one, two, three = (played(GymBatch(task._opened, 5, 5, 1, 1.0, workers)) for workers in (1, 2, 3))
    assert np.array_equal(one, two)
    assert np.array_equal(one, three)


def test_a_lost_process_is_said() -> None:
    before = set(multiprocessing.active_children())
    env = GymBatch(cart()._opened, 4, 5, 1, 1.0, 2)
    try:
        env.reset(0)
        lost = (set(multiprocessing.active_children()) - before).pop()
        assert lost.pid is not None
        os.kill(lost.pid, signal.SIGKILL)
        lost.join()
        with pytest.raises(WorkerLost, match="ended by itself"):
            env.step(np.zeros((4, 1), np.float32))
    finally:
        env.close()
    assert set(multiprocessing.active_children()) == before


def test_the_same_seed_gives_the_same_start_in_any_environment() -> None:
    env = cart().make_env(3)
    assert isinstance(env, RestartableEnv)
    assert isinstance(env, RepeatingEnv)
    try:
        env.reset(0)
        starts = [env.restart(i, 11) for i in range(3)]
        assert np.array_equal(starts[0], starts[1])
        assert np.array_equal(starts[0], starts[2])
        assert np.array_equal(env.begin([[11, 4], [4], [11]]), np.stack([starts[0], env.restart(1, 4), starts[0]]))
        assert not np.array_equal(env.reset(0), env.reset(1))
    finally:
        env.close()


@pytest.mark.parametrize(("name", "said"), [
    ("cart_envs:Buttons-v0", r"expected continuous actions \(a Box\), given Discrete\(3\)"),
    ("cart_envs:Camera-v0", "its observation 'image' is a picture"),
    ("cart_envs:Boundless-v0", "expected actions with bounds"),
    ("cart_envs:Endless-v0", "register it with max_episode_steps"),
    ("cart_envs:Broken-v0", r"cannot be made \(RuntimeError: the licence server is down\)"),
    ("cart_envs:Absent-v0", "Expected an ID that is registered, or gym:MODULE:ID"),
    ("no_such_module:X-v0", "No module named 'no_such_module'; start from the folder that has it, or install it"),
])
def test_what_does_not_fit_is_one_clear_line(name: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=said):
        get_task(f"gym:{name}")
    out = str(tmp_path / "d")
    assert main(["demos", "collect", "--task", f"gym:{name}", "--demonstrators", "cart_envs:people", "--out", out]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "d").exists()


def test_demonstrators_act_and_are_recorded_in_the_environments_own_units(tmp_path: Path) -> None:
    task = cart()
    dataset = collect(task, mix_of_function(task, "cart_envs:people"), 6, 0, tmp_path / "d")
    actions = dataset.column(ACTION).reshape(-1)
    assert actions.max() > 2.5  # newtons, not shares of a range
    assert actions.min() >= -2.0
    outcomes = {row.demonstrator: row.outcome for row in dataset.rows}
    assert outcomes == {"good": "success", "bad": "timeout"}
    assert task.spec.normalised(actions[:, None]).max() <= 1.0 + 1e-6


def test_a_cut_off_collection_goes_on_with_the_same_episodes(tmp_path: Path) -> None:
    task = cart()
    mix = mix_of_function(task, "cart_envs:people")
    whole = collect(task, mix, 6, 3, tmp_path / "whole")

    class Cut(Exception):
        pass

    def cut(saved: int) -> None:
        if saved == 2:
            raise Cut

    with pytest.raises(Cut):
        collect(task, mix, 6, 3, tmp_path / "parts", progress=cut)
    parts = collect(task, mix, 6, 3, tmp_path / "parts")
    assert parts.demonstrations().digest() == whole.demonstrations().digest()


@pytest.mark.parametrize(("where", "said"), [
    ("cart_envs", "expected --demonstrators MODULE:FUNCTION"),
    ("cart_envs:absent", "has no function 'absent'"),
    ("cart_envs:nobody", "expected a dict of names and functions"),
    ("cart_envs:two_numbers", r"expected 1 finite numbers \(action_0\), given \[1. 2.\]"),
])
def test_demonstrators_that_are_none_are_said(where: str, said: str, tmp_path: Path) -> None:
    task = cart()
    with pytest.raises(BadInput, match=said):
        collect(task, mix_of_function(task, where), 2, 0, tmp_path / "d")


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> DemoDataset:
    task, root = cart(), tmp_path_factory.mktemp("cart") / "demos"
    dataset = collect(task, mix_of_function(task, "cart_envs:people"), 20, 0, root)
    assert dataset.returns is not None
    set_ranking(root, rank_by_return(dataset.returns, 0.5, 0), provenance("return"))
    return DemoDataset(root)


def small(method: str) -> Any:
    changes = {"checkpoint_every": 1, "evaluation_episodes": 4, "bc_warmup_steps": 20, "offline_confidence.steps": 5,
               "offline_confidence.batch_size": 50, "cloning.batch_size": 50, "discriminator.steps": 2,
               "discriminator.batch_size": 50, "classifier.steps": 5, "classifier.batch_size": 50, "reward.steps": 5,
               "reward.nets": 1, "noise.levels": 2, "noise.rollouts": 1, "noise.cloning_steps": 20, "noise.airl_steps": 150,
               "self_imitation.num_envs": 3, "self_imitation.steps_per_env": 50, "self_imitation.cloning_steps": 20,
               "ppo.rollout_steps": 150, "ppo.num_envs": 3, "ppo.epochs": 1, "ppo.minibatch": 75}
    return method_config(method, CART, read_part(method, changes))


def run(demos: DemoDataset, out: Path, method: str, steps: int, **options: Any) -> Path:
    return train(cart(), demos.demonstrations(), method, small(method), seed=0, out=out, steps=steps, demos_name="demos",
                 demos_folder=demos.root, **options)


@pytest.mark.parametrize("method", method_names())
def test_every_method_trains_on_an_outside_environment(method: str, demos: DemoDataset, tmp_path: Path) -> None:
    steps = 50 if get_method(method).offline else 300
    policy = load_policy(run(demos, tmp_path / "run", method, steps) / "policy")
    assert policy.card.task == CART
    assert policy.card.action_low == [-2.0]
    assert -2.0 <= float(policy.act(np.zeros(5, np.float32))[0]) <= 6.0


@pytest.mark.parametrize(("method", "steps"), [("cail", 450), ("cail-hybrid", 450)])
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(method: str, steps: int, demos: DemoDataset, tmp_path: Path) -> None:
    whole = run(demos, tmp_path / "whole", method, steps)
    again = run(demos, tmp_path / "again", method, steps)
    run(demos, tmp_path / "parts", method, steps, stop=lambda: True)
    parts = run(demos, tmp_path / "parts", method, steps)
    for name in ("metrics.csv", "policy/policy.safetensors", "confidence.parquet"):
        assert (again / name).read_bytes() == (whole / name).read_bytes(), name
        assert (parts / name).read_bytes() == (whole / name).read_bytes(), name


def test_cloning_the_trusted_solves_it_and_cloning_all_does_not(demos: DemoDataset, tmp_path: Path) -> None:
    """Default settings: half of the demonstrations pull the cart beside the goal."""
    success = {}
    for method in ("cail-bc", "bc"):
        train(cart(), demos.demonstrations(), method, method_config(method, CART), seed=0, out=tmp_path / method)
        success[method] = evaluate(cart(), load_policy(tmp_path / method / "policy"), 40, 0).success_rate
    assert success["cail-bc"] >= 0.9
    assert success["bc"] <= 0.5


def test_from_a_dataset_to_a_report_film_and_more_demonstrations(
    demos: DemoDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands, with the task read from the dataset and the card."""
    out = tmp_path / "run"
    assert main(["train", "--demos", str(demos.root), "--method", "bc", "--steps", "50", "--report-episodes", "4",
                 "--out", str(out)]) == 0
    assert "episodes succeed" in (out / "report.html").read_text()
    capsys.readouterr()
    assert main(["eval", "--policy", str(out / "policy"), "--episodes", "4", "--video", str(tmp_path / "cart.gif")]) == 0
    said = capsys.readouterr().out
    assert "success:" in said
    assert (tmp_path / "cart.gif").stat().st_size > 100
    more = tmp_path / "more"
    who = ["--policies", str(out / "policy")]
    assert main(["demos", "collect", "--task", CART, *who, "--episodes", "2", "--out", str(more)]) == 0
    assert DemoDataset(more).column(ACTION).min() >= -2.0


def test_fetch_of_gymnasium_robotics_is_there_with_this_mujoco() -> None:
    pytest.importorskip("gymnasium_robotics")
    task = get_task("gym:FetchReach-v4")
    assert task.spec.observation_names[:4] == ("achieved_goal_0", "achieved_goal_1", "achieved_goal_2", "desired_goal_0")
    assert (task.spec.max_steps, task.spec.fps, task.spec.has_success, task.spec.action_low) == (50, 25, True, ())
    env = task.make_env(1)
    try:
        before = env.reset(0)
        for _ in range(5):
            step = env.step(np.array([[1.0, 0.0, 0.0, 0.0]], np.float32))
        assert step.observation[0, 0] > before[0, 0] + 0.02  # the gripper went along x
    finally:
        env.close()
