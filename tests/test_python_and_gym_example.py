"""The examples and the Python of the documents, run as they stand from a folder outside of this tree."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CAIL = Path(sys.executable).with_name("cail")


def blocks(file: Path, language: str = "") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", file.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_python_of_the_documents_runs_as_it_stands(tmp_path: Path) -> None:
    for command in ("demos collect --task pointmass --episodes 40 --out demos", "demos rank demos --by return --fraction 0.3"):
        subprocess.run([CAIL, *command.split()], cwd=tmp_path, check=True, capture_output=True)
    (lines,) = blocks(ROOT / "docs" / "extending.md", "python")
    assert sum(bool(line.strip()) for line in lines.splitlines()) <= 10
    done = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, action, result = done.stdout.splitlines()
    assert first == "40 episodes of pointmass"
    assert action.startswith("first action: [")
    assert re.fullmatch(r"return -?\d+\.\d, success \d+%", result)


def test_the_python_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    for command in ("demos collect --task pointmass --episodes 40 --out demos", "demos rank demos --by return --fraction 0.3"):
        subprocess.run([CAIL, *command.split()], cwd=tmp_path, check=True, capture_output=True)
    (lines,) = blocks(ROOT / "README.md", "python")
    done = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 0.0 <= float(done.stdout.splitlines()[-1]) <= 1.0


def test_importing_the_package_loads_nothing_heavy() -> None:
    lines = "import sys, cail_core; print(sorted({'torch', 'numpy', 'gymnasium'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_the_gymnasium_example_runs_outside_of_the_tree(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium_robotics")
    example = ROOT / "examples" / "train_on_gym_env"
    shutil.copy(example / "people.py", tmp_path)
    commands = [shlex.split(line) for block in blocks(example / "README.md") for line in block.splitlines()]
    assert [command[:2] for command in commands] == [["cail", "demos"], ["cail", "demos"], ["cail", "train"], ["cail", "eval"],
                                                     ["cail", "watch"]]
    fewer = {"90": "9", "50": "2", "0.2": "0.5"}
    said = ""
    for _, *words in commands:
        less = ["--report-episodes", "0"] if words[0] == "train" else ["--no-references"] if words[0] == "eval" else []
        done = subprocess.run([CAIL, *(fewer.get(word, word) for word in words), *less], cwd=tmp_path, capture_output=True,
                              text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr
        said += done.stdout
    assert "steady" in said
    assert "success:" in said
    assert "film: block." in said
    assert "gym:FetchPickAndPlace-v4" in (tmp_path / "run" / "policy" / "README.md").read_text()
