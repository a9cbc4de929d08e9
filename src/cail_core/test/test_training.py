"""Run folders: what is in them, that they survive a kill, and that nothing is touched when the input is wrong."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import torch
import yaml

from cail_bench.methods import demonstrate
from cail_core.algorithms.method import method_config, read_part
from cail_core.algorithms.settings import JointConfidenceConfig, TrustConfig
from cail_core.algorithms.trainers import trust
from cail_core.algorithms.trainers.adversarial import AdversarialLearner
from cail_core.algorithms.trainers.base import make_learner
from cail_core.cli import main
from cail_core.demos.demonstrations import Demonstrations
from cail_core.errors import BadInput
from cail_core.evaluation import evaluate
from cail_core.policy import load_policy
from cail_core.tasks.pointmass import PointMass
from cail_core.training import TrainingDiverged, train
from cail_core.training.checkpoint import read_about, read_checkpoint, write_checkpoint
from cail_core.training.run import selection_seed

torch.set_num_threads(1)


SMALL: dict[str, Any] = {
    "checkpoint_every": 2, "offline_confidence.steps": 5, "offline_confidence.batch_size": 100, "discriminator.updates": 2,
    "discriminator.batch_size": 100, "cloning.batch_size": 50, "self_imitation.num_envs": 10, "self_imitation.steps_per_env": 50,
    "self_imitation.cloning_steps": 20, "ppo.rollout_steps": 500, "ppo.num_envs": 10, "ppo.epochs": 2, "ppo.minibatch": 250,
}


def small(method: str, **changes: Any) -> Any:
    """The installed settings with less work per iteration; `changes` are settings of the first level."""
    return replace(method_config(method, "pointmass", read_part(method, SMALL)), **changes)


@pytest.fixture(scope="module")
def demos() -> Demonstrations:
    return demonstrate(PointMass(), "paper", 0)[0]


def run(demos: Demonstrations, out: Path, method: str = "cail", steps: int = 2000, seed: int = 0, **changes: Any) -> Path:
    return train(PointMass(), demos, method, small(method, **changes), seed=seed, out=out, steps=steps, demos_name="mixed")


@pytest.mark.parametrize("method", ["cail", "cail-paper", "cail-gail", "cail-bc", "cail-hybrid", "airl", "gail", "bc"])
def test_every_method_fills_a_run_folder(method: str, demos: Demonstrations, tmp_path: Path) -> None:
    out = run(demos, tmp_path / "run", method, steps=100 if method.endswith("bc") else 1000)
    files = {"config.yaml", "metrics.csv", "confidence.parquet", "ranked.csv", "checkpoint.safetensors"}
    assert files | {"policy", "tensorboard"} == set(os.listdir(out))
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert config["method"] == method
    assert config["settings"]["steps"] == method_config(method).steps
    table = pyarrow.parquet.read_table(out / "confidence.parquet")
    assert table.column_names == ["episode_index", "frame_index", "confidence"]
    assert table["episode_index"].to_numpy().tolist() == demos.episode_of_pair.tolist()
    assert table["frame_index"].to_numpy()[:51].tolist() == [*range(50), 0]
    assert float(table["confidence"].to_numpy().mean()) == pytest.approx(1.0, abs=1e-4)
    ranked = list(csv.DictReader((out / "ranked.csv").open()))
    assert [int(row["episode_index"]) for row in ranked] == demos.ranked.tolist()
    assert len({row["learned_return"] for row in ranked}) > 1
    policy = load_policy(out / "policy")
    assert policy.card.method == method
    assert policy(np.zeros(4, np.float32)).shape == (2,)
    rows = list(csv.DictReader((out / "metrics.csv").open()))
    assert all(math.isfinite(float(row["inner_loss"])) for row in rows)


def test_the_card_names_who_was_trusted_and_goes_another_way(tmp_path: Path) -> None:
    """Six go around the middle on one side, four on the other, all of equal worth."""
    x = np.linspace(0, 1, 30, dtype=np.float32)
    sides = np.array([1.0, 1.1, 0.9, 1.05, 0.95, 1.0, -1.0, -1.1, -0.9, -1.05], np.float32)
    states = np.concatenate([np.c_[x, side * np.sin(np.pi * x), 0 * x, 0 * x] for side in sides]).astype(np.float32)
    demos = Demonstrations(states, np.zeros((len(states), 2), np.float32), states, np.zeros(len(states), bool),
                           30 * np.arange(11), np.zeros(10, np.int64))
    out = run(demos, tmp_path / "run", "bc", steps=50, dominant_mode_distance=2.0)
    assert load_policy(out / "policy").card.provenance["another_way"] == [6, 7, 8, 9]
    assert "they go another way than most: episodes 6, 7, 8, 9." in (out / "policy" / "README.md").read_text()
    without = run(demos, tmp_path / "all", "bc", steps=50)
    assert "another_way" not in load_policy(without / "policy").card.provenance


def test_cloning_methods_never_ask_for_an_environment(demos: Demonstrations, tmp_path: Path) -> None:
    class Recorded(PointMass):
        def make_env(self, num_envs: int) -> Any:
            raise AssertionError("an offline method made an environment")

    train(Recorded(), demos, "cail-bc", small("cail-bc"), seed=0, out=tmp_path / "run", steps=50)


def test_the_same_seed_gives_the_same_run_and_another_seed_another(demos: Demonstrations, tmp_path: Path) -> None:
    curves = [run(demos, tmp_path / name, seed=seed, steps=1000).joinpath("metrics.csv").read_bytes()
              for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    assert curves[0] == curves[1] != curves[2]


CHILD = """
import sys
sys.path.insert(0, {here!r})
from test_training import *
run(demonstrate(PointMass(), "paper", 0)[0], Path(sys.argv[1]), sys.argv[2], steps=int(sys.argv[3]))
"""


@pytest.mark.parametrize(("method", "steps"), [("cail-paper", 3000), ("cail-bc", 400), ("cail-hybrid", 3000)])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(method: str, steps: int, demos: Demonstrations, tmp_path: Path) -> None:
    whole = run(demos, tmp_path / "whole", method, steps=steps)
    cut = tmp_path / "cut"
    child = subprocess.Popen([sys.executable, "-c", CHILD.format(here=str(Path(__file__).parent)), str(cut), method, str(steps)],
                             env={**os.environ, "OMP_NUM_THREADS": "1"})
    while child.poll() is None and not (cut / "checkpoint.safetensors").exists():
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    run(demos, cut, method, steps=steps)
    assert (cut / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    for name in ("confidence.parquet", "checkpoint.safetensors", "policy/policy.safetensors"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name


def test_a_run_asked_to_stop_ends_at_a_checkpoint_and_tells_every_iteration(demos: Demonstrations, tmp_path: Path) -> None:
    whole = run(demos, tmp_path / "whole", "airl", steps=3000)
    told: list[tuple[int, int, bool]] = []

    def go_on(until: int | None) -> Path:
        return train(PointMass(), demos, "airl", small("airl"), seed=0, out=tmp_path / "cut", steps=3000, demos_name="mixed",
                     watch=lambda done, steps, metrics: told.append((done, steps, "inner_loss" in metrics)),
                     stop=lambda: until is not None and told[-1][0] >= until)

    go_on(1500)
    assert told == [(0, 3000, False), (500, 3000, True), (1000, 3000, True), (1500, 3000, True), (2000, 3000, True)]
    told.clear()
    cut = go_on(None)
    assert told == [(2000, 3000, False), (2500, 3000, True), (3000, 3000, True)]
    for name in ("metrics.csv", "checkpoint.safetensors", "policy/policy.safetensors"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name
    told.clear()
    go_on(0)
    assert told == [(3000, 3000, False)]


def test_a_resumed_run_does_not_learn_its_confidence_again(
    demos: Demonstrations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = run(demos, tmp_path / "whole", "cail-bc", steps=400)
    out = run(demos, tmp_path / "cut", "cail-bc", steps=200)

    learn = trust.learn_confidence_offline

    def watched(demos: Demonstrations, config: TrustConfig, *rest: Any, **named: Any) -> Any:
        found = learn(demos, config, *rest, **named)
        assert found.history == [], "the confidence is in the checkpoint"
        return found

    monkeypatch.setattr(trust, "learn_confidence_offline", watched)
    run(demos, out, "cail-bc", steps=400)
    for name in ("confidence.parquet", "metrics.csv", "policy/policy.safetensors"):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name


def test_the_best_checkpoint_is_handed_out_by_episodes_of_its_own(demos: Demonstrations, tmp_path: Path) -> None:
    out = run(demos, tmp_path / "run", "bc", steps=600, checkpoint_selection="best", evaluation_episodes=10)
    rows = [row for row in csv.DictReader((out / "metrics.csv").open()) if row["evaluation_return"]]
    assert [row["steps"] for row in rows] == ["100", "200", "300", "400", "500", "600"]
    best = max(rows, key=lambda row: (float(row["evaluation_success"]), float(row["evaluation_return"]), int(row["steps"])))
    policy = load_policy(out / "policy")
    assert policy.card.provenance["steps"] == int(best["steps"]) != 600
    again = evaluate(PointMass(), policy, 10, selection_seed(0, rows.index(best)))
    assert again.mean == pytest.approx(float(best["evaluation_return"]), abs=1e-3)


def test_of_checkpoints_that_do_not_fail_the_one_is_handed_out_that_does_best_in_the_stricter_task(
        demos: Demonstrations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Narrow(PointMass):
        def stricter(self) -> PointMass:
            return PointMass()

    shares = {True: iter([1.0, 1.0, 1.0, 0.9]), False: iter([0.5, 0.8, 0.7, 0.9])}  # in the task, in the stricter one
    returns = iter([-3.0, -2.0, -1.0, 0.0])

    def evaluated(task: PointMass, *_: object) -> SimpleNamespace:
        itself = isinstance(task, Narrow)
        return SimpleNamespace(mean=next(returns) if itself else 0.0, success_rate=next(shares[itself]))

    monkeypatch.setattr("cail_core.training.run.evaluate", evaluated)
    train(Narrow(), demos, "bc", small("bc", checkpoint_selection="best"), seed=0, out=tmp_path / "run", steps=400)
    assert load_policy(tmp_path / "run/policy").card.provenance["steps"] == 200


def test_training_ends_after_enough_checkpoints_without_a_failure(
        demos: Demonstrations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = iter([0.9, 1.0, 0.8, 1.0, 1.0])
    monkeypatch.setattr("cail_core.training.run.evaluate", lambda *_: SimpleNamespace(mean=-1.0, success_rate=next(shares)))
    told: list[tuple[int, int]] = []

    def go_on(stop: bool = False) -> Path:
        config = small("bc", checkpoint_selection="best", stop_after_perfect_checkpoints=2)
        return train(PointMass(), demos, "bc", config, seed=0, out=tmp_path / "run", steps=900,
                     watch=lambda done, steps, _: told.append((done, steps)), stop=lambda: stop)

    for _ in range(4):
        go_on(stop=True)
    go_on()
    assert told[-1] == (500, 500)
    rows = [row for row in csv.DictReader((tmp_path / "run/metrics.csv").open()) if row["evaluation_success"]]
    assert [row["steps"] for row in rows] == ["100", "200", "300", "400", "500"]
    told.clear()
    go_on()
    assert told == [(500, 500)], "what is over stays over"


def test_a_cloned_policy_waits_for_its_critic(demos: Demonstrations, tmp_path: Path) -> None:
    """With the policy held for all iterations, what comes out is the clone, better than a policy that never learned."""
    config = small("airl", critic_warmup_iterations=100, bc_warmup_steps=400)
    learner = make_learner("airl", PointMass(), demos, config, 0)
    learner.begin_segment(0)
    learner.iterate()
    first = {name: value.clone() for name, value in learner.actor.state_dict().items()}
    critic = learner.ppo.critic.net[0].weight.clone()
    learner.iterate()
    assert all(torch.equal(value, first[name]) for name, value in learner.actor.state_dict().items())
    assert not torch.equal(critic, learner.ppo.critic.net[0].weight)
    demo = learner.data
    untrained = make_learner("airl", PointMass(), demos, config, 0)
    error = [((actor.mode(demo.state) - demo.action) ** 2).mean().item() for actor in (learner.actor, untrained.actor)]
    assert error[0] < 0.9 * error[1]


def test_rows_after_the_last_checkpoint_are_written_anew(demos: Demonstrations, tmp_path: Path) -> None:
    out = run(demos, tmp_path / "run", "bc", steps=100)
    before = (out / "metrics.csv").read_bytes()
    with (out / "metrics.csv").open("ab") as file:
        file.write(b"3,150,half a row")
    run(demos, out, "bc", steps=200)
    assert (out / "metrics.csv").read_bytes().startswith(before)
    steps = [row["steps"] for row in csv.DictReader((out / "metrics.csv").open())]
    assert steps == ["50", "100", "150", "200"]


def test_a_finished_run_stays_as_it_is(demos: Demonstrations, tmp_path: Path) -> None:
    out = run(demos, tmp_path / "run", "bc", steps=100)
    before = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    run(demos, out, "bc", steps=100)
    assert before == {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}


@pytest.mark.parametrize(("change", "named"), [
    ({"method": "airl"}, "method"), ({"seed": 1}, "seed"),
    ({"cloning": replace(method_config("bc").cloning, sigma=0.5)}, "settings.cloning.sigma")])
def test_a_run_of_another_kind_is_refused_untouched(
    change: dict[str, Any], named: str, demos: Demonstrations, tmp_path: Path,
) -> None:
    out = run(demos, tmp_path / "run", "bc", steps=100)
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    settings = small(change.get("method", "bc"))
    if "cloning" in change:
        settings = replace(settings, cloning=change["cloning"])
    with pytest.raises(BadInput, match=named):
        train(PointMass(), demos, change.get("method", "bc"), settings, seed=change.get("seed", 0), out=out, steps=200)
    assert before == {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}


def test_a_checkpoint_of_another_version_is_refused(demos: Demonstrations, tmp_path: Path) -> None:
    out = run(demos, tmp_path / "run", "bc", steps=100)
    path = out / "checkpoint.safetensors"
    write_checkpoint(path, read_checkpoint(path), {**read_about(path), "version": "0.0.1"})
    with pytest.raises(BadInput, match=r"version: it has '0\.0\.1'"):
        run(demos, out, "bc", steps=200)


def test_a_damaged_checkpoint_is_named(demos: Demonstrations, tmp_path: Path) -> None:
    out = run(demos, tmp_path / "run", "bc", steps=100)
    (out / "checkpoint.safetensors").write_bytes(b"not this")
    with pytest.raises(BadInput, match="not a readable checkpoint"):
        run(demos, out, "bc", steps=200)


def test_wrong_demonstrations_are_refused_with_all_faults_and_nothing_written(demos: Demonstrations, tmp_path: Path) -> None:
    wrong = replace(demos, states=demos.states[:, :3], actions=demos.actions * np.float32(np.nan), rank=np.zeros_like(demos.rank))
    with pytest.raises(BadInput) as caught:
        run(wrong, tmp_path / "run")
    for said in ("3 observations per frame", "NaN", "0 ranked episodes", "cail demos rank"):
        assert said in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_one_rank_for_all_is_no_ranking(demos: Demonstrations, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="two of different rank"):
        run(replace(demos, rank=np.minimum(demos.rank, 1)), tmp_path / "run")


def test_methods_without_confidence_need_no_ranking(demos: Demonstrations, tmp_path: Path) -> None:
    run(replace(demos, rank=np.zeros_like(demos.rank)), tmp_path / "run", "bc", steps=50)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(BadInput, match=r"expected a method out of .*cail-hybrid, .* given 'cial'"):
        method_config("cial")


def test_a_folder_of_something_else_is_not_filled(demos: Demonstrations, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(BadInput, match="neither empty nor a run"):
        run(demos, tmp_path)
    assert os.listdir(tmp_path) == ["letters.txt"]


def test_divergence_stops_the_run_and_keeps_the_last_good_checkpoint(demos: Demonstrations, tmp_path: Path) -> None:
    out = run(demos, tmp_path / "run", "bc", steps=100)
    good = (out / "checkpoint.safetensors").read_bytes()
    poisoned = read_checkpoint(out / "checkpoint.safetensors")
    poisoned["learner"]["inner"]["theta"]["actor.net.0.bias"][0] = math.nan
    write_checkpoint(out / "checkpoint.safetensors", poisoned, read_about(out / "checkpoint.safetensors"))
    poisoned_bytes = (out / "checkpoint.safetensors").read_bytes()
    with pytest.raises(TrainingDiverged, match="diverged at step 150: inner_loss is nan"):
        run(demos, out, "bc", steps=200)
    assert (out / "checkpoint.safetensors").read_bytes() == poisoned_bytes != good


def test_training_and_evaluation_do_not_share_an_environment(demos: Demonstrations) -> None:
    """Evaluating between two iterations changes nothing in the second."""
    curves = []
    for interrupted in (False, True):
        learner = make_learner("airl", PointMass(), demos, small("airl"), 0)
        assert isinstance(learner, AdversarialLearner)
        learner.begin_segment(0)
        learner.iterate()
        if interrupted:
            evaluate(PointMass(), lambda o, actor=learner.actor: actor.mode(torch.as_tensor(o)).detach().numpy(), 5)
        curves.append(learner.iterate())
    assert curves[0] == curves[1]


def test_the_gate_acts_after_its_warm_up(demos: Demonstrations, tmp_path: Path) -> None:
    accepted = {}
    for gate in (True, False):
        out = run(demos, tmp_path / str(gate), "cail-paper", steps=5000,
                  joint_confidence=JointConfidenceConfig(gate=gate, gate_after=1000))
        accepted[gate] = [float(row["accepted"]) for row in csv.DictReader((out / "metrics.csv").open())]
    assert accepted[True][:2] == [1.0, 1.0]  # 500 environment steps an iteration, with two updates: the first two are free
    assert min(accepted[True]) < 1.0
    assert set(accepted[False]) == {1.0}


def test_nested_state_survives_a_checkpoint(tmp_path: Path) -> None:
    state = {"a": {0: torch.arange(3), "b": [1, None, 2.5, "text", True]}, "c": {}}
    write_checkpoint(tmp_path / "c.safetensors", state, {"version": "1"})
    back = read_checkpoint(tmp_path / "c.safetensors")
    assert back["a"][0].tolist() == [0, 1, 2]
    assert back["a"]["b"] == [1, None, 2.5, "text", True]
    assert back["c"] == {}
    assert json.loads(json.dumps(list(back))) == ["a", "c"]


def test_the_command_trains_from_a_dataset_and_says_where_things_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demos"
    assert main(["demos", "collect", "--task", "pointmass", "--mix", "paper", "--episodes", "20", "--out", str(out)]) == 0
    command = ["train", "--task", "pointmass", "--demos", str(out), "--steps", "50", "--out", str(tmp_path / "run")]
    assert main([*command, "--method", "cail-bc"]) == 2
    assert "0 ranked episodes" in capsys.readouterr().err
    assert main([*command, "--method", "bc"]) == 0
    assert "policy: " in capsys.readouterr().out
    assert load_policy(tmp_path / "run" / "policy").card.task == "pointmass"
    assert main([*command, "--method", "cail-cb"]) == 2
    assert main([*command, "--method", "gail"]) == 2
    assert "another run" in capsys.readouterr().err


def test_long_episodes_are_told_of_when_all_have_had_time_to_end(demos: Demonstrations) -> None:
    """Rollouts of 20 steps, episodes of 50: after 20 and 40 steps only those that failed could have ended."""
    config = small("airl")
    config = replace(config, ppo=replace(config.ppo, num_envs=4, rollout_steps=80))
    learner = make_learner("airl", PointMass(), demos, config, 0)
    learner.begin_segment(0)
    told = [learner.iterate()["return"] for _ in range(6)]
    learner.close()
    assert np.isnan(told).tolist() == [True, True, False, True, True, False]
