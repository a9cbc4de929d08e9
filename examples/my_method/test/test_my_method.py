from __future__ import annotations

from pathlib import Path

from my_method.method import MyMethodConfig

from cail_core.algorithms.registry import get_method
from cail_core.cli import main


def test_it_is_installed_with_its_settings() -> None:
    found = get_method("my-method")
    assert found.config is MyMethodConfig
    assert found.settings is not None
    assert found.settings.name == "my-method.yaml"


def test_it_learns_a_policy_from_ranked_demonstrations(tmp_path: Path) -> None:
    demos, run = str(tmp_path / "demos"), tmp_path / "run"
    assert not main(["demos", "collect", "--task", "pointmass", "--episodes", "6", "--out", demos])
    assert not main(["demos", "rank", demos, "--by", "return", "--fraction", "1"])
    assert not main(["train", "--task", "pointmass", "--demos", demos, "--method", "my-method", "--steps", "20",
                     "--report-episodes", "2", "--out", str(run)])  # fmt: skip
    assert (run / "policy" / "policy.json").is_file()
