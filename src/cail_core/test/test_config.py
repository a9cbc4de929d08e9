"""YAML onto dataclasses: 1:1, unknown keys and wrong values are errors, all listed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from cail_core.config import build, find_config, load_config, setting, to_dict
from cail_core.errors import ConfigError


@dataclass(frozen=True)
class Net:
    width: int = setting(64, "neurons per layer", low=1)


@dataclass(frozen=True)
class Settings:
    rate: float = setting(3e-4, "learning rate", low=0.0)
    loss: str = setting("rk", "outer loss", choices=("rk", "logistic"))
    layers: list[int] = setting([64, 64], "widths", low=1)
    gate: bool | None = setting(None, "Theorem 1's gate")
    net: Net = setting(Net, "network")


def test_values_are_taken_and_defaults_fill_the_rest() -> None:
    made = build(Settings, {"rate": "3e-4", "layers": [8], "net": {"width": 7}, "gate": True}, "f.yaml")
    assert made == Settings(rate=3e-4, layers=[8], gate=True, net=Net(7))
    assert to_dict(made)["net"] == {"width": 7}
    assert build(Settings, {"rate": 1}, "f.yaml").rate == 1.0


def test_every_fault_is_listed() -> None:
    with pytest.raises(ConfigError) as fault:
        build(
            Settings,
            {"rate": -1, "loss": "hinge", "layers": [8, "x"], "net": {"width": 0, "depth": 2}, "speed": 1, "gate": "yes"},
            "f.yaml",
        )
    said = str(fault.value)
    for part in (
        "f.yaml: 7 faults",
        "rate: expected 0.0 … any, given -1",
        "loss: expected one of rk, logistic",
        "layers[1]: expected int",
        "net.width: expected 1",
        "unknown key 'net.depth'",
        "unknown key 'speed'",
        "gate: expected bool",
    ):
        assert part in said, part
    with pytest.raises(ConfigError, match="expected keys and values"):
        build(Settings, [1, 2], "f.yaml")


def test_an_unknown_config_names_the_installed_ones() -> None:
    assert find_config("pointmass").name == "pointmass.yaml"
    with pytest.raises(ConfigError, match="pointmass"):
        find_config("nonesuch")


def test_a_key_given_twice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("rate: 1\nrate: 2\n")
    with pytest.raises(ConfigError, match="given twice: rate"):
        load_config(Settings, tmp_path / "f.yaml")


def test_a_package_brings_its_own_files_and_replaces_none_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about, files = tmp_path / "cups-0.0.dist-info", tmp_path / "cups" / "config"
    about.mkdir()
    files.mkdir(parents=True)
    (tmp_path / "cups" / "__init__.py").write_text("raise AssertionError('looking for a file imports nothing')")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: cups\nVersion: 0.0\n")
    (about / "entry_points.txt").write_text("[cail.tasks]\nstack-cups = cups.task:Cups\nlost = nowhere.at:All\n")
    (files / "stack-cups.yaml").write_text("max_speed: 0.1\n")
    (files / "pointmass.yaml").write_text("max_steps: 1\n")
    ours = find_config("pointmass")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_config("stack-cups") == files / "stack-cups.yaml"
    assert find_config("pointmass") == ours
