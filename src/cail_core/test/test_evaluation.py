from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
import torch

from cail_core.commands import eval as command
from cail_core.errors import BadInput
from cail_core.evaluation import Evaluation, describe, evaluate, plot
from cail_core.policy import save_policy
from cail_core.rl.networks import TanhGaussianActor
from cail_core.tasks.base import Step, TaskSpec, task_names
from cail_core.tasks.pointmass import PointMass


class Countdown:
    """Environment i's episodes last i + 1 steps, reward 1 each; it succeeds if its number is even."""

    spec = TaskSpec("countdown", "Count.", "none", 10, 100, ("k",), ("a",), has_success=True)

    def make_env(self, num_envs: int) -> Countdown:
        self.num_envs = num_envs
        return self

    def reset(self, seed: int) -> np.ndarray:
        self.seed = seed
        self._k = np.zeros(self.num_envs)
        return self._k[:, None].astype(np.float32)

    def step(self, action: np.ndarray) -> Step:
        self._k += 1
        ended = self._k > np.arange(self.num_envs)
        self._k[ended] = 0
        observation = self._k[:, None].astype(np.float32)
        even = np.arange(self.num_envs) % 2 == 0
        return Step(observation, observation, np.ones(self.num_envs, dtype=np.float32), ended, np.zeros_like(ended), ended & even)

    def close(self) -> None: ...

    def mixes(self) -> dict:
        return {}


def still(observation: np.ndarray) -> np.ndarray:
    return np.zeros((len(observation), 1), dtype=np.float32)


def test_each_environment_gives_its_share_so_short_episodes_are_not_favoured():
    result = evaluate(Countdown(), still, episodes=8, num_envs=4)
    assert sorted(result.lengths) == [1, 1, 2, 2, 3, 3, 4, 4]
    np.testing.assert_array_equal(result.returns, result.lengths)
    assert result.success_rate == 0.5


@pytest.mark.parametrize("episodes", [1, 3, 7, 21])
def test_exactly_the_asked_number_of_episodes_is_played(episodes: int):
    assert len(evaluate(Countdown(), still, episodes=episodes, num_envs=5).returns) == episodes


def test_evaluation_is_deterministic_and_its_episodes_are_not_those_of_training():
    task = PointMass()

    def push(observation: np.ndarray) -> np.ndarray:
        return np.clip(observation[:, :2] - observation[:, 2:], -1, 1)

    first, again, other = (evaluate(task, push, 25, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.returns, again.returns)
    assert not np.array_equal(first.returns, other.returns)
    countdown = Countdown()
    evaluate(countdown, still, 2, seed=4)
    assert countdown.seed != 4


def test_intervals():
    everywhere = Evaluation(np.zeros(100), np.ones(100, dtype=np.int64), np.ones(100, dtype=bool))
    assert everywhere.mean_interval() == (0.0, 0.0)
    # Wilson at 100 of 100: 100 / (100 + 1.96²) = 0.9630
    np.testing.assert_allclose(everywhere.success_interval(), (100 / (100 + 1.96**2), 1.0), atol=1e-12)
    spread = Evaluation(np.random.default_rng(0).normal(5, 2, 400), np.ones(400, dtype=np.int64), np.zeros(400, dtype=bool))
    low, high = spread.mean_interval()
    np.testing.assert_allclose((high - low) / 2, 1.96 * spread.std / 20, rtol=0.1)


def test_printed_lines():
    result = Evaluation(np.array([-4.0, -6.0]), np.array([50, 50]), np.array([True, False]))
    assert describe(result, has_success=False).splitlines()[0] == "return: -5.00 ± 1.00"
    assert "success: 50.0%" in describe(result, has_success=True).splitlines()
    assert "success" not in describe(result, has_success=False)


def test_no_episodes_is_a_clear_error():
    with pytest.raises(BadInput, match="at least 1 episode"):
        evaluate(Countdown(), still, episodes=0)


@pytest.mark.parametrize("success", [[True, False, True], [False] * 3])
def test_plot_is_a_png(tmp_path: Path, success: list[bool]):
    result = Evaluation(np.array([1.0, 2.0, 2.5]), np.array([1, 2, 2]), np.array(success))
    plot(result, "toy", tmp_path / "returns.png")
    assert (tmp_path / "returns.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(BadInput, match="cannot write the plot"):
        plot(result, "toy", tmp_path / "nowhere" / "returns.png")


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.register(parser.add_subparsers())
    return parser.parse_args(["eval", *words])


def test_command_prints_return_and_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    if "pointmass" not in task_names():
        pytest.skip("the package is not installed, so no task is registered under cail.tasks")
    actor = TanhGaussianActor(4, 2, torch.Generator().manual_seed(0))
    save_policy(tmp_path / "policy", actor, PointMass().spec, "untrained", {})
    policy, picture = str(tmp_path / "policy"), str(tmp_path / "p.png")
    args = parse("--policy", policy, "--task", "pointmass", "--episodes", "5", "--plot", picture)
    assert args.run(args) == 0
    first, *_ = lines = capsys.readouterr().out.splitlines()
    assert first.startswith("return: -")
    assert any(line.startswith("success: ") for line in lines)
    assert (tmp_path / "p.png").exists()
