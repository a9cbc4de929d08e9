"""A lab's own recordings: trained on without a task, in whatever units, and what can be said of them without an environment."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cail_core.algorithms.method import method_config, read_part
from cail_core.cli import main
from cail_core.config import to_dict
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.edit import set_ranking
from cail_core.demos.importing import Given, export_demos, import_demos
from cail_core.errors import BadInput
from cail_core.held_out import HeldOut, action_errors, deal, held_out, of_policy
from cail_core.policy import load_policy
from cail_core.ranking.ranks import provenance, rank_by_return
from cail_core.tasks.from_dataset import DatasetTask, action_range, task_of
from cail_core.training import train

torch.set_num_threads(1)
OFFLINE = ("bc", "cail-bc", "rinse", "dwbc")


def recordings(episodes: int, seed: int = 0, length: int = 40, scale: float = 1.0, shift: float = 0.0, force: float = 1.0,
               push: float = 0.0, extra: bool = False) -> dict[str, np.ndarray]:
    """Everyone pulls a cart to the origin, every second one to a place beside it. `scale`, `shift`, `force` and `push` are the
    units; `extra` adds an observation and an action that never change."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {name: [] for name in ("states", "actions", "rewards", "timeouts", "next_states")}

    def seen(x: np.ndarray, v: np.ndarray) -> np.ndarray:
        return np.concatenate([scale * x + shift, scale * v, [7.0] if extra else []])

    for e in range(episodes):
        x, v = rng.uniform(-1, 1, 2), np.zeros(2)
        for t in range(length):
            a = np.clip(2.0 * (0.8 * (e % 2) - x) - 1.5 * v + rng.normal(0, 0.02, 2), -3, 3)
            columns["states"].append(seen(x, v))
            v, x = v + 0.1 * a, x + 0.1 * (v + 0.1 * a)
            columns["actions"].append(np.concatenate([force * a + push, [5.0] if extra else []]))
            columns["rewards"].append(-float(np.linalg.norm(x)))
            columns["next_states"].append(seen(x, v))
            columns["timeouts"].append(t == length - 1)
    made = {name: np.array(values) for name, values in columns.items()}
    return {**made, "dones": np.zeros(len(made["states"]))}


def imported(folder: Path, name: str = "lab", ranked: float = 0.7, given: Given | None = None, **options: Any) -> DemoDataset:
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{name}.npz", **recordings(**options))
    dataset, _ = import_demos(folder / f"{name}.npz", folder / name, fps=20, given=given)
    assert dataset.returns is not None
    set_ranking(dataset.root, rank_by_return(dataset.returns, ranked, 0), provenance("return"))
    return DemoDataset(folder / name)


def small(method: str, task: str = "data:lab") -> Any:
    changes = {"checkpoint_every": 1, "offline_confidence.steps": 5, "offline_confidence.batch_size": 50,
               "cloning.batch_size": 100}
    return method_config(method, task, read_part(method, changes))


def trained(dataset: DemoDataset, out: Path, method: str = "bc", steps: int = 100, **options: Any) -> Path:
    return train(task_of(dataset), dataset.demonstrations(), method, small(method), seed=0, out=out, steps=steps,
                 demos_name=dataset.root.name, demos_folder=dataset.root, **options)


def test_import_takes_names_rate_and_units_and_makes_the_folders_above(tmp_path: Path) -> None:
    np.savez(tmp_path / "pull.npz", **recordings(3, extra=True))
    out = tmp_path / "not" / "yet" / "there"
    assert main(["demos", "import", str(tmp_path / "pull.npz"), "--out", str(out), "--fps", "25", "--robot", "cart",
                 "--observation-names", "x,y,vx,vy,temperature", "--observation-units", "m,m,m/s,m/s,°C",
                 "--action-names", "fx,fy,grip", "--action-units", "N", "--text", "Pull the cart home."]) == 0
    spec = task_of(DemoDataset(out)).spec
    assert (spec.name, spec.text, spec.robot_type, spec.fps, spec.max_steps) == (
        "data:pull", "Pull the cart home.", "cart", 25, 40)
    assert spec.observation_names == ("x", "y", "vx", "vy", "temperature")
    assert spec.action_units == ("N", "N", "N")
    assert spec.observation_units == "x in m, y in m, vx in m/s, vy in m/s, temperature in °C"
    assert not spec.has_environment
    again = tmp_path / "again"
    export_demos(DemoDataset(out), "npz", tmp_path / "again.npz")
    import_demos(tmp_path / "again.npz", again)
    assert DemoDataset(again).units("action") == ("N", "N", "N")


def test_names_that_do_not_fit_are_said_all_at_once_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "pull.npz", **recordings(2))
    assert main(["demos", "import", str(tmp_path / "pull.npz"), "--out", str(tmp_path / "d"), "--observation-names", "x,y",
                 "--action-units", "N,N,N"]) == 2
    said = capsys.readouterr().err
    assert "--observation-names: expected 4 different names, given 2: x, y" in said
    assert "--action-units: expected 2 units or one for all, given 3" in said
    assert not (tmp_path / "d").exists()


def test_a_rate_that_nobody_said_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "pull.npz", **recordings(2))
    assert main(["demos", "import", str(tmp_path / "pull.npz"), "--out", str(tmp_path / "d")]) == 0
    assert "10 Hz is assumed; --fps HZ" in capsys.readouterr().err


def foreign(dataset: DemoDataset, form: str, folder: Path) -> Path:
    """The dataset as another tool would have written it: without what this project adds."""
    if form == "lerobot":
        info = json.loads((dataset.root / "meta" / "info.json").read_text())
        del info["cail"]
        (dataset.root / "meta" / "info.json").write_text(json.dumps(info))
        return dataset.root
    h5py = pytest.importorskip("h5py")
    file = folder / ("out.hdf5" if form == "robomimic" else "out")
    export_demos(dataset, form, file)
    if form == "robomimic":
        with h5py.File(file, "r+") as opened:
            del opened["data"].attrs["cail"]
        return file
    about = file / "data" / "metadata.json"
    about.write_text(json.dumps({key: value for key, value in json.loads(about.read_text()).items() if key != "cail"}))
    return file


@pytest.mark.parametrize("form", ["lerobot", "robomimic", "minari"])
def test_data_of_other_tools_trains_without_a_task(form: str, tmp_path: Path) -> None:
    source = foreign(imported(tmp_path / "source", episodes=6), form, tmp_path)
    assert main(["demos", "import", str(source), "--out", str(tmp_path / "d")]) == 0
    run = tmp_path / "run"
    assert main(["train", "--demos", str(tmp_path / "d"), "--method", "bc", "--steps", "50", "--report-episodes", "0",
                 "--out", str(run)]) == 0
    policy = load_policy(run / "policy")
    assert policy.card.task == f"data:{DemoDataset(tmp_path / 'd').task}"
    assert policy.guard is not None
    assert policy.card.fps == (20 if form == "lerobot" else 10)


@pytest.mark.parametrize("method", OFFLINE)
def test_every_offline_method_trains_on_eight_recordings_in_odd_units(method: str, tmp_path: Path) -> None:
    given = Given(units={"action": ["N", "N", "mm"], "observation": []})
    dataset = imported(tmp_path, episodes=8, scale=1e-5, shift=300.0, force=120.0, push=40.0, extra=True, given=given)
    policy = load_policy(trained(dataset, tmp_path / "run", method) / "policy")
    actions = dataset.demonstrations().actions
    acted = policy.act(dataset.demonstrations().states)
    assert (acted >= actions.min(axis=0) - 0.01).all()
    assert (acted <= actions.max(axis=0) + 0.01).all()
    assert np.abs(acted[:, 2] - 5.0).max() < 0.006  # never changed: stays, within its narrow range
    assert policy.card.action_high[:2] == pytest.approx(actions.max(axis=0)[:2].tolist())
    card = (tmp_path / "run" / "policy" / "README.md").read_text()
    assert "| action_2 | 4.995 | 5.005 | mm |" in card


def test_units_do_not_change_what_is_learned(tmp_path: Path) -> None:
    """The same recordings in metres and newtons, and in others: the same policy and the same guard, in these units."""
    usual = imported(tmp_path / "a", episodes=8)
    other = imported(tmp_path / "b", episodes=8, scale=2.0**-12, force=2.0**7)
    one, two = (load_policy(trained(d, d.root.parent / "run", "cail-bc") / "policy") for d in (usual, other))
    states = usual.demonstrations().states[::7]
    np.testing.assert_allclose(two.act(states * 2.0**-12), one.act(states) * 2.0**7, atol=0.5)  # of ± 384
    assert np.ptp(one.act(states)) > 0.1
    assert one.guard is not None
    assert two.guard is not None
    beside = states + 0.3
    np.testing.assert_allclose(two.guard.distances(beside * 2.0**-12), one.guard.distances(beside), rtol=1e-3, atol=1e-3)


def test_a_clone_of_plain_recordings_does_what_was_done(tmp_path: Path) -> None:
    """Only what goes to the origin, and fresh recordings to compare with: the error is far below that of the mean action."""
    def best(folder: Path, seed: int) -> DemoDataset:
        folder.mkdir()
        all_of_them = recordings(12, seed=seed, force=50.0)
        rows = np.repeat(np.arange(12) % 2 == 0, 40)
        np.savez(folder / "lab.npz", **{name: values[rows] for name, values in all_of_them.items()})
        return import_demos(folder / "lab.npz", folder / "lab", fps=20)[0]

    shown, fresh = best(tmp_path / "a", 0), best(tmp_path / "b", 1)
    policy = load_policy(trained(shown, tmp_path / "run", steps=1000) / "policy")
    found = of_policy(policy, fresh)
    assert found.error < 0.35
    assert len(found.episodes) == 6
    assert found.actions[0].error < 0.5 * found.actions[0].of_mean


def test_a_method_that_acts_says_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = imported(tmp_path, episodes=6)
    out = tmp_path / "run"
    assert main(["train", "--demos", str(dataset.root), "--method", "cail", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "'cail' acts while it learns, and these demonstrations bring no environment" in said
    assert "gym:[MODULE:]ID" in said
    assert "cail-bc" in said
    assert said.count("\n") == 1
    assert not out.exists()


def test_a_dataset_of_an_installed_task_trains_on_that_task(tmp_path: Path) -> None:
    assert main(["demos", "collect", "--task", "pointmass", "--episodes", "4", "--out", str(tmp_path / "d")]) == 0
    assert task_of(DemoDataset(tmp_path / "d")).spec.name == "pointmass"


def test_a_stopped_run_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    dataset = imported(tmp_path, episodes=8, scale=1e-3, force=90.0)
    whole = trained(dataset, tmp_path / "whole", "cail-bc", steps=200)
    parts = trained(dataset, tmp_path / "parts", "cail-bc", steps=200, stop=lambda: True)
    first = (parts / "metrics.csv").read_bytes()
    trained(dataset, tmp_path / "parts", "cail-bc", steps=200)
    assert len(first) < len((parts / "metrics.csv").read_bytes())
    for name in ("metrics.csv", "policy/policy.safetensors", "policy/guard.safetensors", "confidence.parquet"):
        assert (parts / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of cail-bc on recordings, trained little."""
    folder = tmp_path_factory.mktemp("own")
    return trained(imported(folder, episodes=10, length=20, force=3.0), folder / "run", "cail-bc")


def test_eval_without_an_environment_tells_of_what_was_held_out(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--policy", str(run / "policy")]) == 0
    said = capsys.readouterr().out
    assert "of the actions' spread" in said
    assert "trusted demonstrations held out" in said
    assert "always giving the mean action: 1.00" in said
    assert "held-out pairs in order" in said
    assert "trusted most: episode" in said
    kept = (run / "held_out.json").read_bytes()
    assert main(["eval", "--policy", str(run / "policy")]) == 0
    assert capsys.readouterr().out == said
    assert (run / "held_out.json").read_bytes() == kept


def test_eval_compares_with_other_demonstrations(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh = imported(tmp_path, episodes=3, seed=5, length=20, force=3.0)
    assert main(["eval", "--policy", str(run / "policy"), "--demos", str(fresh.root)]) == 0
    assert "(3 demonstrations)" in capsys.readouterr().out
    strange = imported(tmp_path / "strange", episodes=3, extra=True)
    assert main(["eval", "--policy", str(run / "policy"), "--demos", str(strange.root)]) == 2
    assert "its observations are state_0, state_1" in capsys.readouterr().err


def test_eval_of_a_policy_outside_of_its_run_says_what_to_give(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run / "policy", tmp_path / "policy")
    assert main(["eval", "--policy", str(tmp_path / "policy")]) == 2
    assert "give --demos D" in capsys.readouterr().err
    assert main(["eval", "--policy", str(run / "policy"), "--plot", str(tmp_path / "p.png")]) == 2
    assert "--plot: needs an environment" in capsys.readouterr().err


def test_the_report_tells_of_held_out_demonstrations_and_trust(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert "There is no environment to play in" in page
    assert "on demonstrations held out" in page
    assert "held-out pairs in order" in page
    assert "Most trusted" in page
    assert "cail watch" not in page
    assert "cail train --demos" in page


def test_cross_validation_holds_out_what_it_says(tmp_path: Path) -> None:
    """Without labels that could be learned the error is that of a guess: noise cannot be predicted, the rule can."""
    rng = np.random.default_rng(0)

    def error(noise: float, folder: Path) -> HeldOut:
        folder.mkdir()
        states = rng.normal(size=(400, 2))
        actions = 0.3 * states * (1 - noise) + noise * rng.normal(size=(400, 2))
        ends = np.arange(400) % 20 == 19
        np.savez(folder / "a.npz", states=states, actions=actions, next_states=np.roll(states, -1, axis=0), dones=0 * ends,
                 timeouts=ends)
        dataset, _ = import_demos(folder / "a.npz", folder / "a", fps=10)
        settings = json.loads(json.dumps(to_dict(small("bc"))))
        return held_out(DatasetTask(dataset), dataset.demonstrations(), "bc", settings, 0, 150, np.ones(20))

    rule, guess = error(0.0, tmp_path / "rule"), error(1.0, tmp_path / "noise")
    assert sorted(rule.episodes) == list(range(20))
    assert rule.error < 0.5
    assert guess.error > 0.95
    assert rule.pairs is None


def test_folds_are_trusted_alike() -> None:
    assert deal(np.array([3.0, 1.0, 2.0, 0.5, 0.1]), 2) == [[0, 1, 4], [2, 3]]


def test_action_errors_are_counted_in_spreads_and_in_units() -> None:
    dataset = type("Spec", (), {"action_low": (0.0,), "action_high": (10.0,), "action_units": ("rad",), "action_names": ("q",)})
    shown = [np.array([[-1.0], [1.0]]), np.array([[-1.0], [1.0]])]  # spread 1, mean 0
    relative, (one,) = action_errors(dataset, [np.array([[-0.5], [0.5]]), shown[1]], shown)  # type: ignore[arg-type]
    assert relative == [0.5, 0.0]
    assert (one.name, one.unit, one.error, one.of_mean) == ("q", "rad", pytest.approx(1.25), pytest.approx(5.0))


def test_the_range_of_an_action_that_never_changed_is_narrow() -> None:
    low, high = action_range(np.array([[1.0, 4.0, 0.0], [3.0, 4.0, 0.0]]))
    assert (low, high) == ((1.0, pytest.approx(3.996), -0.001), (3.0, pytest.approx(4.004), 0.001))


def test_keeping_the_best_checkpoint_needs_an_environment(tmp_path: Path) -> None:
    dataset = imported(tmp_path, episodes=4)
    with pytest.raises(BadInput, match="checkpoint_selection: best plays episodes"):
        train(task_of(dataset), dataset.demonstrations(), "bc", replace(small("bc"), checkpoint_selection="best"), seed=0,
              out=tmp_path / "run")
