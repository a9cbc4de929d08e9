"""Settings in layers: method ← task ← file ← --set; what is shown of them, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml

from cail_core.algorithms import method_names
from cail_core.algorithms.method import method_config, method_settings
from cail_core.algorithms.registry import get_method
from cail_core.cli import main
from cail_core.config import config_folders, to_dict
from cail_core.errors import BadInput, ConfigError
from cail_core.layers import flat, set_layer


def differing(a: object, b: object) -> dict[str, object]:
    was, now = flat(to_dict(a)), flat(to_dict(b))
    return {key: now[key] for key in now if was.get(key) != now[key]}


def test_a_partial_file_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("steps: 1000\nppo: {num_envs: 4}\n")
    for task in ("", "reacher", "ant"):
        mine = method_settings("cail", task, str(tmp_path / "mine.yaml")).config
        assert differing(method_config("cail", task), mine) == {"steps": 1000, "ppo.num_envs": 4}


def test_a_single_setting_counts_over_the_file_and_the_file_over_the_task(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("ppo: {num_envs: 4, rollout_steps: 40}\n")
    found = method_settings("cail", "ant", str(tmp_path / "mine.yaml"), ["ppo.num_envs=8", "ppo.hidden=[16, 8]"])
    ppo = found.config.ppo
    assert (ppo.num_envs, ppo.rollout_steps, ppo.learning_rate, ppo.hidden) == (8, 40, 1e-4, (16, 8))
    assert [found.origin(f"ppo.{key}") for key in ("num_envs", "rollout_steps", "learning_rate", "gamma", "hidden")] == [
        "--set", "file", "task", "default", "--set"]
    assert found.origin("beta.alpha") == "method"


@pytest.mark.parametrize("word", ["steps", "=3", "a..b=1", ".a=1", "steps=[1"])
def test_a_malformed_single_setting_is_refused_with_what_it_says(word: str) -> None:
    with pytest.raises((BadInput, ConfigError)) as fault:
        set_layer([word])
    assert word in str(fault.value)
    assert "\n" not in str(fault.value)


def test_a_setting_that_nobody_has_is_refused_by_the_name_of_its_source(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("pppo: {num_envs: 4}\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: unknown key 'pppo'"):
        method_settings("cail", "", str(tmp_path / "mine.yaml"))
    with pytest.raises(ConfigError, match=r"--set ppo\.x=1: unknown key 'ppo\.x'"):
        method_settings("cail", "", None, ["ppo.x=1"])
    with pytest.raises(ConfigError, match=r"ppo\.num_envs: expected int, given 'many'"):
        method_settings("cail", "", None, ["ppo.num_envs=many"])


def test_what_is_shown_names_every_source_fits_80_columns_and_can_be_given_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "--method", "cail", "--task", "reacher", "--set", "ppo.gamma=0.9", "--show-config"]) == 0
    shown = capsys.readouterr().out
    assert "gamma: 0.9" in shown
    assert "--steps" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if not line.startswith("#"))
    for origin in ("default", "method", "task", "--set"):
        assert f"  # {origin}\n" in shown + "\n"
    (tmp_path / "again.yaml").write_text(shown)
    assert method_settings("cail", "", str(tmp_path / "again.yaml")).config == yaml_config("cail", "reacher", ["ppo.gamma=0.9"])


def yaml_config(method: str, task: str, changes: list[str]) -> object:
    return method_settings(method, task, None, changes).config


def test_nothing_is_trained_where_the_settings_are_shown(tmp_path: Path) -> None:
    words = ["train", "--demos", str(tmp_path / "none"), "--task", "pointmass", "--out", str(tmp_path / "run"), "--show-config"]
    assert main(words) == 0
    assert not (tmp_path / "run").exists()


def test_what_is_missing_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--method", "bc"]) == 2
    assert capsys.readouterr().err == "cail: the following arguments are required: --task, --demos, --out\n"


def test_a_run_with_the_file_that_tuning_wrote_keeps_the_task_s_settings(tmp_path: Path) -> None:
    """On Reacher the task's settings differ from the method's: the tuned run has them, but for what was tuned."""
    pytest.importorskip("optuna")
    demos = str(tmp_path / "demos")
    assert main(["demos", "collect", "--task", "pointmass", "--episodes", "10", "--out", demos]) == 0
    assert main(["demos", "rank", demos, "--by", "return", "--fraction", "0.8"]) == 0
    tuned = tmp_path / "tuned.yaml"
    quick = ["--set", "offline_confidence.steps=20", "--set", "offline_confidence.batch_size=50"]
    assert main(["tune", "--task", "pointmass", "--demos", demos, "--method", "cail-bc", "--trials", "2",
                 *quick, "--out", str(tuned)]) == 0
    assert tuned.read_text().startswith("# ")
    keys = ("steps", "batch_size", "mu", "learning_rate")
    allowed = {"beta.alpha", *(f"offline_confidence.{key}" for key in keys)}
    assert set(flat(yaml.safe_load(tuned.read_text()))) <= allowed
    assert set(differing(method_config("cail-bc", "ant"), method_settings("cail-bc", "ant", str(tuned)).config)) <= allowed


@pytest.mark.parametrize(("method", "old", "new"), [
    ("cail", "trusted", "trusted_fraction"), ("cail", "learner", "decided by the method"),
    ("cail-bc", "before", "offline_confidence"),
    ("cail-bc", "ppo", "cloning.hidden"), ("airl", "clone", "bc_warmup_steps"), ("airl", "discriminator.rate", "learning_rate"),
    ("bc", "cloning.average", "ema_decay"), ("cail-hybrid", "self_imitation.gains", "action_gain_std"),
    ("cail-hybrid", "practice", "self_imitation"), ("2iwil", "classifier.batch", "batch_size"),
    ("dwbc", "dwbc.experts", "expert_fraction"), ("rinse", "smoothness.keep", "keep_fraction"),
    ("cail-paper", "mu", "joint_confidence.mu")])
def test_an_old_name_is_refused_with_the_new_one(method: str, old: str, new: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown key '{old}', which is now: .*{new}"):
        method_settings(method, "", None, [f"{old}=1"])


def test_every_new_name_in_the_table_of_old_ones_exists() -> None:
    """A message that leads to a setting which does not exist helps nobody."""
    known = {key.rsplit(".", 1)[-1] for name in method_names() for key in flat(to_dict(method_config(name)))}
    sections = {"offline_confidence", "self_imitation"}
    for name in method_names():
        for cls in (get_method(name).config, *section_classes(get_method(name).config)):
            for new in getattr(cls, "RENAMED", {}).values():
                if " " not in new and not new.startswith("`"):
                    assert new.rsplit(".", 1)[-1] in known | sections, (name, new)


def section_classes(cls: type) -> list[type]:
    return [field.default_factory for field in dataclasses.fields(cls)  # type: ignore[misc]
            if isinstance(field.default_factory, type) and dataclasses.is_dataclass(field.default_factory)]


def test_a_method_reads_only_its_own_settings() -> None:
    for method, setting in (("bc", "beta.alpha"), ("bc", "trusted_fraction"), ("airl", "offline_confidence.steps"),
                            ("gail", "discriminator.min_log_prob"), ("cail-bc", "discriminator.updates"),
                            ("t-rex", "noise.levels")):
        with pytest.raises(ConfigError, match="unknown key"):
            method_settings(method, "", None, [f"{setting}=1"])


def test_a_key_for_all_methods_that_none_reads_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pointmass-learning.yaml").write_text("all: {ppo: {gama: 0.9}}\n")
    folders = config_folders()
    monkeypatch.setattr("cail_core.config.config_folders", lambda: [tmp_path, *folders])
    with pytest.raises(ConfigError, match=r"no method reads ppo\.gama \(section all\)"):
        method_config("cail", "pointmass")


def test_the_ur5e_learns_as_the_panda_does() -> None:
    for method in method_names():
        assert method_config(method, "ur5e") == method_config(method, "panda")


def test_a_run_of_an_earlier_version_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demos, run = str(tmp_path / "demos"), tmp_path / "run"
    assert main(["demos", "collect", "--task", "pointmass", "--episodes", "4", "--out", demos]) == 0
    run.mkdir()
    (run / "config.yaml").write_text("{version: 0.1.0, task: pointmass, method: bc, seed: 0, settings: {learner: bc, steps: 50}}")
    capsys.readouterr()
    assert main(["train", "--task", "pointmass", "--demos", demos, "--method", "bc", "--out", str(run)]) == 2
    said = capsys.readouterr().err
    assert "made by an earlier version of cail" in said
    assert len(said.splitlines()) == 1
    assert sorted(path.name for path in run.iterdir()) == ["config.yaml"]
