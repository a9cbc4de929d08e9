from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cail_bench.demonstrators.oracle import Recipe, Snapshot, choose, recipe_of, save_demonstrators, train_oracle
from cail_core.cli import main
from cail_core.demos.collect import mix_of
from cail_core.errors import BadInput
from cail_core.evaluation import evaluate
from cail_core.policy import load_policy
from cail_core.rl.networks import TanhGaussianActor
from cail_core.tasks.mujoco import Ant
from cail_core.tasks.pointmass import PointMass


def snapshots(*returns: float) -> list[Snapshot]:
    actor = TanhGaussianActor(4, 2, torch.Generator().manual_seed(0))
    return [Snapshot(10 * i, i, value, actor) for i, value in enumerate(returns)]


def test_chosen_are_the_last_and_the_nearest_none_twice():
    chosen = choose(snapshots(-12, -79, -81, -40, -5, -4), {"a": -42, "b": -78, "c": -80})
    assert {name: snapshot.mean_return for name, snapshot in chosen.items()} == {"optimal": -4, "a": -40, "b": -79, "c": -81}
    assert choose(snapshots(-79, -30, -4), {"b": -78, "c": -80})["c"].mean_return == -30  # −79 is taken


def test_the_nearest_few_are_measured_again():
    truth = {-79: -60.0, -81: -78.5, -40: -41.0}
    chosen = choose(snapshots(-79, -81, -40, -4), {"b": -79}, 2, lambda snapshot: truth[int(snapshot.mean_return)])
    assert chosen["b"].mean_return == -81


def test_too_few_snapshots_is_a_clear_error():
    with pytest.raises(BadInput, match="expected more than 2 snapshots"):
        choose(snapshots(-1, -2), {"a": -1, "b": -2})


@pytest.mark.parametrize("method", ["sac", "ppo"])
def test_oracle_run_gives_demonstrators(tmp_path: Path, method: str):
    task, recipe = PointMass(), Recipe(method, 1600 if method == "sac" else 10_000, {"early": -50.0}, look_episodes=4)
    found = list(train_oracle(task, recipe, seed=0))
    assert found[-1].steps == recipe.steps
    assert found[0].actor is not found[-1].actor
    returns = save_demonstrators(choose(found, recipe.wanted), task, recipe, 0, tmp_path)
    assert set(returns) == {"optimal", "early"}
    runner = load_policy(tmp_path / "optimal")
    assert runner.card.provenance["updates"] == found[-1].updates
    np.testing.assert_allclose(evaluate(task, runner, 100, 1).mean, runner.card.provenance["mean_return"], atol=1e-3)


def test_an_oracle_that_was_cut_off_goes_on_as_if_it_had_not_been(tmp_path: Path):
    task, recipe = PointMass(), Recipe("ppo", 150_000, {}, look_episodes=2)  # a checkpoint after 20 of 30 updates
    whole = list(train_oracle(task, recipe, 0, tmp_path / "whole"))
    for snapshot in train_oracle(task, recipe, 0, tmp_path / "cut"):
        if snapshot.updates > 22:
            break
    again = list(train_oracle(task, recipe, 0, tmp_path / "cut"))
    assert [(s.steps, s.mean_return) for s in again] == [(s.steps, s.mean_return) for s in whole]
    for ours, theirs in zip(again[-1].actor.state_dict().values(), whole[-1].actor.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(BadInput, match=r"holds another run \(it differs in seed\)"):
        next(train_oracle(task, recipe, 1, tmp_path / "cut"))


def test_a_task_without_a_recipe_gets_evenly_graded_policies():
    recipe = recipe_of("pointmass")
    assert recipe.method == "ppo"
    chosen = choose(snapshots(-60, -52, -41, -29, -19, -10), recipe.wanted)  # wanted: −50, −40, −30, −20
    returns = {name: snapshot.mean_return for name, snapshot in chosen.items()}
    assert returns == {"optimal": -10, "early-1": -52, "early-2": -41, "early-3": -29, "early-4": -19}


def test_the_command_does_not_write_into_a_folder_that_holds_something(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "letters.txt").write_text("dear")
    assert main(["oracle", "--task", "pointmass", "--out", str(tmp_path)]) == 2
    assert "expected a new or empty folder" in capsys.readouterr().err
    assert main(["oracle", "--task", "chess", "--out", str(tmp_path / "new")]) == 2
    assert "given 'chess'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_a_task_without_demonstrators_says_where_to_get_some(tmp_path: Path):
    (tmp_path / "ant.yaml").write_text("mixes: {}\n")
    with pytest.raises(BadInput, match=r"brings no demonstrators.*cail oracle --task ant"):
        mix_of(Ant(tmp_path / "ant.yaml"), "paper")
