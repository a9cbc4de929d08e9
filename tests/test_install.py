"""What is installed and from where: pins, hashes and the recipe of the Makefile."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest

from cail_core.errors import WHEELS_END

ROOT = Path(__file__).resolve().parents[1]
PINNED = ROOT / "requirements-pybullet.txt"
BUILD = "pybullet-arm64"


def make(*words: str) -> str:
    """What make would do in a tree where nothing is installed."""
    command = ["make", "--no-print-directory", "-n", f"VENV={ROOT}/none", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def requirement(start: str) -> tuple[str, str]:
    """Name with version, and the marker, of a dependency of cail, without the extra it belongs to."""
    named = [text for text in requires("cail") or [] if re.match(rf"{start}\b(?!-)", text)]
    (text,) = [text for text in named if not re.search("extra == .all", text)]
    pin, _, marker = text.partition(";")
    return pin.strip(), re.sub(r"[() ]*(and )?extra == .*", "", marker.replace('"', "'").strip(" ()"))


def test_one_pybullet_is_named_for_every_python_and_the_pins_agree() -> None:
    _, own = requirement("pybullet")
    pin, other = requirement(BUILD)
    assert own == "python_version < '3.12'"
    assert {"python_version >= '3.12'", "python_version < '3.14'"} <= set(other.split(" and "))
    line = PINNED.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()[-1]
    assert line.startswith(f"{pin};")
    assert set(other.split(" and ")) == set(line.split(";")[1].split("--hash")[0].strip().split(" and "))
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", line)) == 2  # a wheel for 3.12 and one for 3.13
    assert pin in (ROOT / "constraints.txt").read_text(encoding="utf-8").split()


@pytest.mark.parametrize(("extra", "start"), [("sim", BUILD), ("ur", "ur-rtde"), ("ray", "ray")])
def test_the_advice_ends_at_the_python_at_which_the_wheels_end(extra: str, start: str) -> None:
    _, marker = requirement(start)
    (first_without,) = re.findall(r"python_version < '3\.(\d+)'", marker)
    assert WHEELS_END[extra][1] == (3, int(first_without) - 1)


def test_a_wheel_with_another_hash_is_refused(tmp_path: Path) -> None:
    """A file of the right name and version that is not the one that was looked at."""
    info = "pybullet_arm64-3.2.8.dist-info"
    with zipfile.ZipFile(tmp_path / "pybullet_arm64-3.2.8-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pybullet.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {BUILD}\nVersion: 3.2.8\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    text = re.sub(r";[^\\]*", " ", PINNED.read_text(encoding="utf-8").partition("\n" + BUILD)[2])  # for any Python
    (tmp_path / "pinned.txt").write_text(BUILD + text)
    (recipe,) = [line for line in make("install").splitlines() if PINNED.name in line]
    options = recipe.split("pip install")[1].split(f"-r {PINNED.name}")[0].split()
    assert {"--require-hashes", "--no-deps"} <= set(options)

    def install(*more: str) -> subprocess.CompletedProcess[str]:
        where = ["--no-index", "--find-links", str(tmp_path), "--target", str(tmp_path / "into")]
        command = [sys.executable, "-m", "pip", "install", *where, *more]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    refused = install(*options, "-r", "pinned.txt")
    assert refused.returncode != 0
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    assert not (tmp_path / "into").exists()
    taken = install("--no-deps", BUILD)  # the very same file, without the hashes
    assert taken.returncode == 0, taken.stderr


def test_torch_comes_without_cuda_unless_there_is_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = "--index-url https://download.pytorch.org/whl/cpu torch"
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "make", "python3", "getconf", "cksum", "cut", "env"):
        (tools / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(tools))
    assert index in make("install")
    assert index not in make("install", "TORCH_INDEX=")
    assert f"--index-url {tmp_path} torch" in make("install", f"TORCH_INDEX={tmp_path}")
    (tools / "nvidia-smi").symlink_to(tools / "sh")
    assert "--index-url" not in make("install")


def test_pybullet_is_left_out_where_the_simulator_is() -> None:
    assert PINNED.name in make("install", "EXTRAS=sim,ur")
    without = make("install", "EXTRAS=ros,ur")
    assert PINNED.name not in without
    assert not re.search(r"touch .*demo-", without)  # the demo would find no simulator
    assert re.search(r"touch .*demo-", make("install"))


def test_sizes_measures_extras_that_there_are() -> None:
    asked = subprocess.run([sys.executable, ROOT / ".ci" / "sizes", "ros", "nothing"], capture_output=True, text=True)
    assert asked.returncode == 2
    assert asked.stderr == ("expected extras of ros, ur, sim, mujoco, bench, ray, tune, dev, all, given nothing; "
                            ".ci/sizes alone measures all\n")


def test_the_minute_s_selection_names_test_files_that_exist() -> None:
    """`find` says nothing of a name that it does not find."""
    named = re.findall(r"-name (test_\w+\.py)", make("check"))
    there = {path.name for folder in ("src", "tests") for path in (ROOT / folder).rglob("test_*.py")}
    assert len(named) > 20
    assert set(named) <= there
