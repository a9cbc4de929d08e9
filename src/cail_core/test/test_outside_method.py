"""A method from a package outside of this tree: one file, one YAML file, one entry point; and then all commands know it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

METHOD = '''
"""`best-half`: behaviour cloning of the better half of the ranked demonstrations."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import OfflineConfig
from cail_core.algorithms.trainers.cloning import CloningLearner
from cail_core.algorithms.trainers.trust import given_trust
from cail_core.config import setting


@dataclass(frozen=True)
class BestHalfConfig(OfflineConfig):
    best_fraction: float = setting(0.9, "fraction of the ranked demonstrations that is cloned", low=0.0, high=1.0)


@method("best-half", BestHalfConfig, offline=True, needs_ranking=True)
def best_half(training: Training[BestHalfConfig]) -> CloningLearner:
    demos = training.demos
    trusted = torch.zeros(demos.episodes)
    trusted[torch.as_tensor(demos.ranked[: round(training.config.best_fraction * len(demos.ranked))])] = 1.0
    return CloningLearner(training, given_trust(training, trusted[torch.as_tensor(demos.episode_of_pair)]))
'''
Cail = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def cail(tmp_path_factory: pytest.TempPathFactory) -> Cail:
    """The command with the package on its path, as an installation would put it."""
    folder = tmp_path_factory.mktemp("lab")
    package = folder / "lab_methods"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "best.py").write_text(METHOD)
    (package / "best-half.yaml").write_text("steps: 100\nbest_fraction: 0.5\ncloning: {batch_size: 64}\n")
    about = folder / "lab_methods-0.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-methods\nVersion: 0.0\n")
    (about / "entry_points.txt").write_text("[cail.methods]\nbest-half = lab_methods.best\n")

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.run([sys.executable, "-m", "cail_core.cli", *map(str, words)], capture_output=True, text=True,
                              cwd=folder, env={**os.environ, "PYTHONPATH": path})

    return run


def test_it_goes_from_demonstrations_to_an_evaluated_policy(cail: Cail, tmp_path: Path) -> None:
    demos, out = tmp_path / "demos", tmp_path / "run"
    for words in (("demos", "collect", "--task", "pointmass", "--episodes", 10, "--out", demos),
                  ("demos", "rank", demos, "--by", "return", "--fraction", "0.8"),
                  ("train", "--task", "pointmass", "--demos", demos, "--method", "best-half", "--out", out,
                   "--report-episodes", 2, "--set", "cloning.learning_rate=0.002"),
                  ("eval", "--policy", out / "policy", "--task", "pointmass", "--episodes", 5)):
        done = cail(*words)
        assert done.returncode == 0, done.stderr
    config = yaml.safe_load((out / "config.yaml").read_text())
    settings = config["settings"]
    assert (config["method"], settings["steps"], settings["best_fraction"]) == ("best-half", 100, 0.5)
    assert settings["cloning"]["learning_rate"] == 0.002
    assert "return" in done.stdout


def test_its_settings_are_found_beside_it_and_what_it_does_not_read_is_refused(cail: Cail) -> None:
    shown = cail("train", "--method", "best-half", "--task", "ant", "--show-config")
    assert shown.returncode == 0, shown.stderr
    assert "best-half.yaml" in shown.stdout
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert "best_fraction: 0.5 # method" in lines
    assert "sigma: 0.3 # default" in lines
    refused = cail("train", "--method", "best-half", "--set", "trusted_fraction=0.1", "--show-config")
    assert refused.returncode == 2
    assert "unknown key 'trusted_fraction'" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_it_is_named_among_the_others(cail: Cail) -> None:
    assert "best-half" in cail("train", "--help").stdout
    assert "best-half" in cail("train", "--method", "best-haf", "--show-config").stderr
