"""What `cail doctor` and its advice say of this installation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cail_core import errors
from cail_core.cli import main


def test_doctor_names_what_is_there_and_how_to_add_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--no-speed"]) == 0
    said = capsys.readouterr().out
    for part in ("numpy", "pyarrow", "cores", "ros-jazzy-rclpy"):
        assert part in said


def with_packages(folder: Path, *names: str) -> dict[str, str]:
    """The environment of a Python that finds these packages in `folder` too."""
    for name in names:
        info = folder / f"{name.replace('-', '_')}-3.2.8.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 3.2.8\n")
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}


def test_doctor_says_when_two_pybullets_lie_over_each_other(tmp_path: Path) -> None:
    env = with_packages(tmp_path / "site", "pybullet", "pybullet-arm64")
    ask = [sys.executable, "-m", "cail_core.cli", "doctor", "--no-speed"]
    said = subprocess.run(ask, capture_output=True, text=True, env=env, cwd=tmp_path).stdout
    assert "found pybullet and pybullet-arm64, which overwrite each other: pip uninstall -y pybullet pybullet-arm64" in said
    assert "nothing is missing" not in said
    load = [sys.executable, "-c", "from cail_sim.bullet.engine import load_pybullet\nload_pybullet()"]
    refused_to = subprocess.run(load, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert refused_to.returncode != 0
    assert "MissingDependency: expected one PyBullet, found pybullet and pybullet-arm64" in refused_to.stderr


def test_pybullets_in_two_folders_are_no_fault(tmp_path: Path) -> None:
    """As where an environment sees the system's packages: the first one is used, whole."""
    with_packages(tmp_path / "system", "pybullet-arm64")
    env = with_packages(tmp_path / "own", "pybullet")
    env["PYTHONPATH"] += f"{os.pathsep}{tmp_path / 'system'}"
    ask = [sys.executable, "-c", "from cail_core.machine import two_pybullets as two; print(repr(two()))"]
    assert subprocess.run(ask, capture_output=True, text=True, env=env, cwd=tmp_path).stdout.strip() == "''"


@pytest.mark.parametrize(("extra", "version", "expected"), [
    ("ur", (3, 13, 0), "ur-rtde has no ready-built wheel for Python 3.13.0, the last is 3.12: make install PYTHON=python3.12"),
    ("sim", (3, 14, 1), "PyBullet has no ready-built wheel for Python 3.14.1, the last is 3.13: make install PYTHON=python3.13"),
    ("ur", (3, 12, 9), "pip install -c constraints.txt -e '.[ur]'"),
    ("sim", (3, 13, 0), "pip install -c constraints.txt -e '.[sim]'"),
    ("bench", (3, 14, 0), "pip install -c constraints.txt -e '.[bench]'"),
])
def test_advice_to_install_is_given_where_there_is_something_to_install(
    extra: str, version: tuple[int, int, int], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "sys", SimpleNamespace(version_info=version, platform="linux"))
    monkeypatch.setattr(errors, "platform", SimpleNamespace(
        machine=lambda: "x86_64", python_version=lambda: ".".join(map(str, version))))
    assert expected in errors.how_to_add(extra)
