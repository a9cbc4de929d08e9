"""The same tree installs the same things by pip (wheel, editable, from the sdist) and by colcon (copied, symlinked).

Everything is really built, in a copy of the files under version control, and installed into environments that see this
one's libraries but not its own installation of cail.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("colcon_core", reason="pip install -e '.[all,dev]' brings colcon")

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("cail_core", "cail_robot", "cail_sim", "cail_bench")
WAYS = ("wheel", "editable", "colcon", "colcon-symlink")
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "AMENT_PREFIX_PATH", "COLCON_PREFIX_PATH")

LIST_ENTRY_POINTS = """
import json
from importlib.metadata import distributions
points = [(e.group, e.name, e.value) for d in distributions() if d.name.replace("-", "_").split("_")[0] == "cail"
          for e in d.entry_points if e.group.startswith("cail.") or e.group == "console_scripts"]
print(json.dumps(sorted(set(points))))
"""
LOAD_ENTRY_POINTS = """
from importlib.metadata import entry_points
for group in ("cail.commands", "cail.tasks"):
    for entry in entry_points(group=group):
        assert callable(entry.load()), entry
"""


def run(*command: object, cwd: Path, env: dict[str, str]) -> str:
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def files_below(folder: Path) -> set[str]:
    """Relative names of all files, through links too, without what Python caches."""
    return {
        str(Path(parent, name).relative_to(folder))
        for parent, _, names in os.walk(folder, followlinks=True)
        for name in names
        if not name.endswith(".pyc")
    }


def tracked() -> list[str]:
    try:
        listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a git checkout: the files under version control are what is packaged")
    return [name for name in listing.split("\0") if name and (ROOT / name).exists()]


@pytest.fixture(scope="module")
def copy_tree(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    names = tracked()

    def copy() -> Path:
        folder = tmp_path_factory.mktemp("tree")
        for name in names:
            source, target = ROOT / name, folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                target.symlink_to(os.readlink(source))
            else:
                shutil.copy(source, target)  # with its permissions: some are programs
        return folder

    return copy


@pytest.fixture(scope="module")
def make_venv(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Makes environments with this one's libraries, except cail itself."""
    libraries = tmp_path_factory.mktemp("libraries")
    for site in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(site).iterdir():
            if not entry.name.startswith("cail") and entry.suffix != ".pth":
                (libraries / entry.name).symlink_to(entry)

    def make() -> Path:
        folder = tmp_path_factory.mktemp("venv")
        venv.create(folder, with_pip=False, symlinks=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "libraries.pth").write_text(f"{libraries}\n", encoding="utf-8")
        return folder

    return make


@pytest.fixture(scope="module")
def clean_env() -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return env | {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Install:
    """One way of installing: where each package's lib/ and share/ lie, and the environment to run in."""

    tree: Path
    python: Path
    prefix: dict[str, Path]
    env: dict[str, str]

    def ask(self, program: str) -> str:
        """What a Python program prints there; it does not start in the tree, whose folders it could import."""
        return run(self.python, "-c", program, cwd=self.tree.parent, env=self.env).strip()

    def entry_points(self) -> list[list[str]]:
        points: list[list[str]] = json.loads(self.ask(LIST_ENTRY_POINTS))
        return points


def pip_install(tree: Path, folder: Path, env: dict[str, str], *what: object) -> Install:
    python = folder / "bin" / "python"
    offline = ("--no-deps", "--no-index", "--no-build-isolation")
    run(python, "-m", "pip", "install", "-q", "--no-input", *offline, *what, cwd=tree, env=env)
    return Install(tree, python, dict.fromkeys(PACKAGES, folder), env)


def colcon_build(tree: Path, folder: Path, env: dict[str, str], *options: str) -> Install:
    python = folder / "bin" / "python"
    run(python, "-m", "colcon", "build", *options, cwd=tree, env=env)
    sourced = run("sh", "-c", ". install/setup.sh && env -0", cwd=tree, env=env)
    setup_env = dict(line.split("=", 1) for line in sourced.split("\0") if line)
    return Install(tree, python, {package: tree / "install" / package for package in PACKAGES}, setup_env)


@pytest.fixture(scope="module")
def archives(copy_tree: Callable[[], Path], clean_env: dict[str, str]) -> dict[str, Path]:
    """The sdist and the wheel of the tree, and the wheel of the unpacked sdist."""
    tree = copy_tree()
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", "dist", cwd=tree, env=clean_env)
    (sdist,), (wheel,) = tree.glob("dist/*.tar.gz"), tree.glob("dist/*.whl")
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # early releases of 3.10 have none
        archive.extractall(tree / "unpacked")
    (unpacked,) = (tree / "unpacked").iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tree / "again", cwd=unpacked, env=clean_env)
    (again,) = tree.glob("again/*.whl")
    return {"sdist": sdist, "unpacked": unpacked, "wheel": wheel, "wheel of sdist": again}


@pytest.fixture(scope="module")
def installs(
    archives: dict[str, Path], copy_tree: Callable[[], Path], make_venv: Callable[[], Path], clean_env: dict[str, str]
) -> dict[str, Install]:
    return {
        "wheel": pip_install(copy_tree(), make_venv(), clean_env, archives["wheel"]),
        "editable": pip_install(copy_tree(), make_venv(), clean_env, "-e", "."),
        "colcon": colcon_build(copy_tree(), make_venv(), clean_env),
        "colcon-symlink": colcon_build(copy_tree(), make_venv(), clean_env, "--symlink-install"),
    }


def test_sdist_gives_the_same_wheel_as_the_tree(archives: dict[str, Path]) -> None:
    contents = []
    for name in ("wheel", "wheel of sdist"):
        with zipfile.ZipFile(archives[name]) as archive:
            contents.append({entry.filename: (entry.CRC, entry.external_attr >> 16 & 0o111) for entry in archive.infolist()})
    assert contents[0] == contents[1]


def test_sdist_has_the_linked_folders_in_both_places(archives: dict[str, Path]) -> None:
    for folder in ("launch", "config"):
        expected = {str(Path(name).relative_to(folder)) for name in tracked() if name.startswith(f"{folder}/")}
        assert files_below(archives["unpacked"] / folder) == expected
        assert files_below(archives["unpacked"] / "src" / "cail_robot" / folder) == expected


@pytest.mark.parametrize("way", WAYS)
def test_launch_and_config_files_are_shared(installs: dict[str, Install], way: str) -> None:
    share = installs[way].prefix["cail_robot"] / "share" / "cail_robot"
    for folder in ("launch", "config"):
        expected = {str(Path(name).relative_to(folder)) for name in tracked() if name.startswith(f"{folder}/")}
        assert expected
        assert files_below(share / folder) == expected
        for name in expected:
            assert (share / folder / name).read_bytes() == (ROOT / folder / name).read_bytes()


@pytest.mark.parametrize("way", WAYS)
def test_packages_are_registered_with_ament(installs: dict[str, Install], way: str) -> None:
    for package in PACKAGES:
        share = installs[way].prefix[package] / "share"
        assert (share / "ament_index" / "resource_index" / "packages" / package).is_file()
        assert ElementTree.parse(share / package / "package.xml").findtext("name") == package


@pytest.mark.parametrize("way", WAYS)
def test_imports_come_from_this_install_with_all_their_files(installs: dict[str, Install], way: str) -> None:
    install = installs[way]
    for package in PACKAGES:
        found = Path(install.ask(f"import {package}; print({package}.__path__[0])"))
        assert found.is_relative_to(install.tree if way != "wheel" else install.prefix[package])
        inside = f"src/{package}/{package}/"
        assert files_below(found) == {name.removeprefix(inside) for name in tracked() if name.startswith(inside)}


@pytest.mark.parametrize("way", WAYS)
def test_every_console_script_is_an_executable_that_ros_finds(installs: dict[str, Install], way: str) -> None:
    install = installs[way]
    scripts = [(value.split(".")[0], name) for group, name, value in install.entry_points() if group == "console_scripts"]
    assert ("cail_core", "cail") in scripts
    for package, name in scripts:
        executable = install.prefix[package] / "lib" / package / name
        assert os.access(executable, os.X_OK), executable
        assert "usage" in run(executable, "--help", cwd=install.tree.parent, env=install.env)


@pytest.mark.parametrize("way", WAYS)
def test_entry_points_are_the_same_everywhere_and_load(installs: dict[str, Install], way: str) -> None:
    install = installs[way]
    points = install.entry_points()
    assert {"cail.commands", "cail.tasks"} <= {group for group, _, _ in points}
    assert points == installs["wheel"].entry_points()
    install.ask(LOAD_ENTRY_POINTS)


@pytest.mark.parametrize("way", WAYS)
def test_installed_settings_are_found(installs: dict[str, Install], way: str) -> None:
    install = installs[way]
    found = Path(install.ask("from cail_core.config import find_config; print(find_config('pointmass'))"))
    edits_act_at_once = way in ("editable", "colcon-symlink")
    prefix = install.tree / "config" if edits_act_at_once else install.prefix["cail_robot"]
    assert found.is_relative_to(prefix)


@pytest.mark.parametrize("way", WAYS)
def test_building_leaves_nothing_in_the_source_tree(installs: dict[str, Install], way: str) -> None:
    tree = installs[way].tree
    left = {path.name for path in tree.iterdir()} - {Path(name).parts[0] for name in tracked()}
    assert left <= {"build", "install", "log"}
    for folder in ("src", "launch", "config"):
        expected = {name.removeprefix(f"{folder}/") for name in tracked() if name.startswith(f"{folder}/")}
        files = [path for path in (tree / folder).rglob("*") if path.is_symlink() or path.is_file()]
        assert {str(path.relative_to(tree / folder)) for path in files} == expected


def test_all_files_state_one_version(archives: dict[str, Path], installs: dict[str, Install]) -> None:
    versions = {archives["wheel"].name.split("-")[1]}
    for package in PACKAGES:
        versions.add(ElementTree.parse(ROOT / "src" / package / "package.xml").findtext("version") or "none")
    ask = f"from importlib.metadata import version; print(*(version(p) for p in {PACKAGES}))"
    versions.update(installs["colcon"].ask(ask).split())
    assert len(versions) == 1, versions
