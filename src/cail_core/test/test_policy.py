from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from cail_core.errors import BadInput
from cail_core.policy import demonstrator, load_demonstrators, load_policy, save_policy
from cail_core.rl.networks import TanhGaussianActor
from cail_core.tasks.base import TaskSpec

SPEC = TaskSpec("toy", "Play.", "toy", 10, 50, ("a", "b", "c"), ("x", "y"), action_scale="2 m/s")


def make_actor(seed: int = 0, **options) -> TanhGaussianActor:
    generator = torch.Generator().manual_seed(seed)
    actor = TanhGaussianActor(3, 2, generator, **options)
    with torch.no_grad():
        actor.net[-1].weight.mul_(100)
    actor.standardise.set(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 2.0, 1.0]))
    return actor


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_policy(tmp_path / "policy", make_actor(), SPEC, "ppo", {"seed": 3, "data": "40 episodes"}, limits={"speed_m_s": 2.0},
                card_text="It trusted episodes 1 and 2.")
    return tmp_path / "policy"


@pytest.mark.parametrize("options", [{}, {"activation": torch.nn.ReLU, "hidden": (32, 16)}, {"state_dependent_std": True}])
def test_numpy_runner_equals_torch(tmp_path: Path, options: dict):
    actor = make_actor(**options)
    save_policy(tmp_path / "p", actor, SPEC, "ppo", {})
    runner = load_policy(tmp_path / "p")
    observation = np.random.default_rng(0).normal(0, 2, (200, 3)).astype(np.float32)
    with torch.no_grad():
        expected = actor.mode(torch.from_numpy(observation)).numpy()
    np.testing.assert_allclose(runner(observation), expected, atol=1e-6)
    np.testing.assert_allclose(np.array([runner(o) for o in observation]), expected, atol=1e-6)
    assert runner(observation[0]).dtype == np.float32


def test_acting_does_not_import_torch(folder: Path):
    code = ("import sys, numpy as np; from pathlib import Path; from cail_core.policy import load_policy; "
            f"load_policy(Path({str(folder)!r}))(np.zeros(3, dtype=np.float32)); assert 'torch' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_card_says_what_the_policy_is(folder: Path):
    card = load_policy(folder).card
    assert (card.task, card.method, card.fps, card.action_scale) == ("toy", "ppo", 10, "2 m/s")
    assert card.provenance == {"seed": 3, "data": "40 episodes"}
    assert card.limits == {"speed_m_s": 2.0}
    assert card.versions["numpy"] == np.__version__
    readme = (folder / "README.md").read_text()
    assert "It trusted episodes 1 and 2." in readme
    assert "speed_m_s: 2" in readme


def test_saving_replaces_an_older_policy_and_leaves_nothing_else(folder: Path):
    save_policy(folder, make_actor(seed=1), SPEC, "sac", {})
    assert load_policy(folder).card.method == "sac"
    assert [p.name for p in folder.parent.iterdir()] == ["policy"]
    assert sorted(p.name for p in folder.iterdir()) == ["README.md", "policy.json", "policy.safetensors"]


def test_a_folder_with_other_files_is_not_overwritten(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="found something else"):
        save_policy(tmp_path, make_actor(), SPEC, "ppo", {})
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_failed_save_leaves_the_older_policy(folder: Path):
    before = (folder / "policy.json").read_bytes()
    with pytest.raises(TypeError):
        save_policy(folder, make_actor(), SPEC, "ppo", {"data": object()})
    assert (folder / "policy.json").read_bytes() == before
    assert [p.name for p in folder.parent.iterdir()] == ["policy"]


def test_missing_folder_is_a_clear_error(tmp_path: Path):
    with pytest.raises(BadInput, match=r"expected a policy folder.*found nothing"):
        load_policy(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="found a file"):
        load_policy(tmp_path / "file")


@pytest.mark.parametrize("name", ["policy.json", "policy.safetensors"])
def test_missing_or_damaged_file_is_named(folder: Path, name: str):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(BadInput, match=name):
        load_policy(folder)
    (folder / name).unlink()
    with pytest.raises(BadInput, match=f"{name} is missing"):
        load_policy(folder)


def change(folder: Path, **values: object) -> None:
    card = json.loads((folder / "policy.json").read_text())
    (folder / "policy.json").write_text(json.dumps({**card, **values}))


@pytest.mark.parametrize(("values", "text"), [
    ({"format": "other"}, "not a policy"),
    ({"format_version": 99}, "update cail"),
    ({"activation": "swish"}, "one of tanh, relu"),
    ({"fps": "fast"}, "'fps': expected int"),
    ({"action_names": ["x"]}, r"layer2: expected \(1, 64\)"),
])
def test_bad_card_is_a_clear_error(folder: Path, values: dict, text: str):
    change(folder, **values)
    with pytest.raises(BadInput, match=text):
        load_policy(folder)


def test_bad_weights_are_all_listed(folder: Path):
    weights = load_file(folder / "policy.safetensors")
    weights["observation_scale"] = np.array([1.0, 0.0, 1.0], dtype=np.float32)
    weights["layer0.weight"][0, 0] = np.nan
    save_file(weights, folder / "policy.safetensors")
    with pytest.raises(BadInput, match=r"2 faults(.|\n)*layer0.weight: holds NaN(.|\n)*other than 0"):
        load_policy(folder)
    del weights["layer0.bias"]
    save_file(weights, folder / "policy.safetensors")
    with pytest.raises(BadInput, match="layer0 … layerN"):
        load_policy(folder)


def test_policy_refuses_a_task_with_other_observations_or_action_scale(folder: Path):
    load_policy(folder).check(SPEC)
    with pytest.raises(BadInput, match="observations are a, b, c"):
        load_policy(folder).check(dataclasses.replace(SPEC, observation_names=("a", "c", "b")))
    with pytest.raises(BadInput, match="action of 1 means 2 m/s"):
        load_policy(folder).check(dataclasses.replace(SPEC, action_scale="3 m/s"))


def test_wrong_number_of_observations_is_a_clear_error(folder: Path):
    with pytest.raises(BadInput, match="expects 3 observations, given 4"):
        load_policy(folder)(np.zeros(4, dtype=np.float32))


def test_saved_policy_demonstrates(folder: Path):
    source = demonstrator(folder, SPEC)
    assert source.name == "policy"
    action = source.start(np.random.default_rng(0))(np.zeros(3, dtype=np.float32))
    np.testing.assert_array_equal(action, load_policy(folder)(np.zeros(3, dtype=np.float32)))


def test_demonstrators_come_from_policies_and_from_folders_of_policies(tmp_path: Path):
    for name in "ba":
        save_policy(tmp_path / "many" / name, make_actor(), SPEC, "sac", {})
    assert [d.name for d in load_demonstrators([tmp_path / "many"], SPEC)] == ["a", "b"]
    assert [d.name for d in load_demonstrators([tmp_path / "many" / "b"], SPEC)] == ["b"]
    with pytest.raises(BadInput, match="given twice: b"):
        load_demonstrators([tmp_path / "many", tmp_path / "many" / "b"], SPEC)
    with pytest.raises(BadInput, match="expected a policy folder"):
        load_demonstrators([tmp_path], SPEC)


def test_one_by_one_gives_each_observation_what_it_gets_alone(folder: Path):
    network = load_policy(folder).network
    many = np.random.default_rng(0).normal(size=(7, network.inputs)).astype(np.float32)
    together = network.one_by_one(many)
    assert all(np.array_equal(network.one_by_one(one[None])[0], row) for one, row in zip(many, together, strict=True))
    np.testing.assert_allclose(together, network(many), atol=1e-5)
