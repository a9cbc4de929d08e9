"""The main promise: a policy does over the topics, in real time, what it does in process."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pybullet")

import cail_sim
from cail_bench import transfer
from cail_core.cli import main
from cail_core.evaluation import evaluate
from cail_core.over_topics import available, in_process, node_seed, play_over_topics
from cail_core.policy import load_policy
from cail_core.tasks import get_task

SHIPPED = Path(cail_sim.__file__).parent / "data" / "panda" / "policy"
needs_ros = pytest.mark.skipif(bool(available()), reason=available())


@needs_ros
def test_the_shipped_policy_succeeds_over_the_topics_as_in_process() -> None:
    """Five episodes in real time. One may be lost to a machine that stalls; the same starts in process are not."""
    policy = load_policy(SHIPPED)
    here = in_process(get_task("panda"), policy, 5, 3)
    assert here.success.all()
    played = play_over_topics(SHIPPED, "panda_sim", 5, node_seed(3))
    good = [one.total for one in played if one.outcome == "success"]
    assert len(good) >= 4, [one.outcome for one in played]
    assert np.mean(good) == pytest.approx(here.mean, rel=0.1)


def test_the_shipped_policy_leans_on_nothing() -> None:
    card = load_policy(SHIPPED).card
    assert card.gates
    assert not card.stress["leans"]
    assert card.stress["success"] >= 0.95


@needs_ros
def test_eval_over_topics_says_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--policy", str(SHIPPED), "--over", "topics", "--episodes", "1", "--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert "over the topics:" in said
    assert "in process:" in said
    assert "the same end in 1 of 1 episodes" in said


def test_a_task_without_an_arm_is_refused_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import torch

    from cail_core.policy import save_policy
    from cail_core.rl.networks import TanhGaussianActor

    spec = get_task("pointmass").spec
    save_policy(tmp_path / "p", TanhGaussianActor(spec.observation_dim, spec.action_dim, torch.Generator()), spec, "bc", {})
    assert main(["eval", "--policy", str(tmp_path / "p"), "--over", "topics"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_place_is_played_once_and_kept(tmp_path: Path) -> None:
    row = transfer.Row("bc", 1, "", 4, 3, -50.0)
    assert transfer.once(tmp_path / "kept" / "half.json", lambda: row, "half").place == "half"

    def again() -> transfer.Row:
        raise AssertionError("it was played already")

    assert transfer.once(tmp_path / "kept" / "half.json", again, "half").successes == 3
    assert json.loads((tmp_path / "kept" / "half.json").read_text())["place"] == "half"


def test_the_pandas_policy_plays_on_a_ur5e_at_its_speed() -> None:
    task = transfer.pandas_on_ur5e()
    assert task.model.name == "UR5e"
    assert task.played_under.speed == (0.5, 0.5)
    assert evaluate(task, load_policy(SHIPPED), 2, 0).lengths.min() > 100
