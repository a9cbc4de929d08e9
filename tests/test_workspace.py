"""A ROS 2 workspace of this tree: everything that is imported is declared, `cail` is found, and `colcon test` runs the tests."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cail_core.errors import PACKAGES as OF_EXTRAS

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("cail_core", "cail_robot", "cail_sim", "cail_bench")
ROSDEP = {
    "numpy": "python3-numpy", "yaml": "python3-yaml", "h5py": "python3-h5py", "matplotlib": "python3-matplotlib",
    "rich": "python3-rich", "PIL": "python3-pil",
}  # fmt: skip
"""Module -> rosdep key, where the two have different names."""
PIP = {
    "pybullet_data": "pybullet", "rtde_control": "ur-rtde", "rtde_receive": "ur-rtde", "rtde_io": "ur-rtde",
    "mcap_ros2": "mcap-ros2-support",
}  # fmt: skip
"""Module -> distribution, likewise."""


def imported(package: str) -> dict[str, set[str]]:
    """Module -> the files of a package that import it; the standard library and the package itself left out."""
    found: dict[str, set[str]] = {}
    for file in (ROOT / "src" / package / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in (full.split(".")[0] for full in names):
                if name not in sys.stdlib_module_names and name != package:
                    found.setdefault(name, set()).add(file.name)
    return found


def requirements() -> set[str]:
    """Names of the distributions in ros-requirements.txt."""
    lines = (ROOT / "ros-requirements.txt").read_text(encoding="utf-8").splitlines()
    return {re.split(r"[<>=;\s]", line)[0] for line in lines if line and not line.startswith("#")}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_import_is_declared(package: str) -> None:
    tree = ElementTree.parse(ROOT / "src" / package / "package.xml")
    declared = {element.text for element in tree.iterfind("exec_depend")}
    advised = {name for names in OF_EXTRAS.values() for name in names.split()}  # a message says how to add these
    missing = {
        module: files
        for module, files in imported(package).items()
        if ROSDEP.get(module, module) not in declared and not {PIP.get(module, module)} & (requirements() | advised)
    }
    assert not missing, f"neither in src/{package}/package.xml nor in ros-requirements.txt"


def test_the_pip_line_brings_no_second_ros() -> None:
    assert not [name for name in requirements() if name.startswith(("ros", "rclpy", "cail"))]


def test_the_extras_are_those_of_the_distribution() -> None:
    """What a message names in a workspace is what the distribution's extra would bring."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for extra, names in OF_EXTRAS.items():
        (body,) = re.findall(rf"^{extra} = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
        for name in names.split():
            assert re.search(rf"\"{name}[<>=;\"]", body), f"{name} is not in the extra {extra}"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with this tree in src/cail, built by colcon."""
    pytest.importorskip("colcon_core", reason="pip install -e '.[all,dev]' brings colcon")
    folder = tmp_path_factory.mktemp("ws")
    (folder / "src").mkdir()
    (folder / "src" / "cail").symlink_to(ROOT)
    done = colcon(folder, "build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stderr output" not in done.stdout + done.stderr, done.stdout + done.stderr
    return folder


def colcon(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("COLCON_PREFIX_PATH", "PYTHONDONTWRITEBYTECODE")}
    return subprocess.run([sys.executable, "-m", "colcon", *words], cwd=folder, env={**env, "OMP_NUM_THREADS": "1"},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)  # fmt: skip


def test_cail_is_on_the_path_of_a_sourced_workspace(workspace: Path) -> None:
    done = subprocess.run(["bash", "-c", ". install/setup.bash && command -v cail && cail --version"], cwd=workspace,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == str(workspace / "install" / "cail_core" / "bin" / "cail")


def test_colcon_test_runs_the_tests(workspace: Path) -> None:
    done = colcon(workspace, "test", "--packages-select", "cail_core", "--event-handlers", "console_direct+", "--pytest-args",
                  "-k", "ranking", "-p", "no:cacheprovider")  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert re.search(r"\d+ passed", said), said
