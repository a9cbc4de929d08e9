"""Packages outside of this tree: the examples, and what `cail new` writes, each installed from a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ros_bench import environment

from cail_core.cli import main
from cail_core.commands.new import kinds, written
from cail_core.demos.dataset import DemoDataset
from cail_core.recording.bag import bags_of, read_messages
from cail_core.recording.topics import POSE

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


def install(package: Path, place: Path) -> None:
    """As pip leaves a package: its modules and its dist-info. The metadata comes from pyproject.toml, by the same backend."""
    source = place.parent / "source" / package.name
    for path in (p for p in package.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        into = source / path.relative_to(package)
        into.parent.mkdir(parents=True, exist_ok=True)
        into.write_bytes(path.read_bytes())
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index",
               "--disable-pip-version-check", "--target", str(place), str(source)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of somebody who has installed both examples."""
    place = tmp_path_factory.mktemp("outside") / "installed"
    for name in ("my_arm", "stack_two_cups"):
        install(EXAMPLES / name, place)
    return {**environment(), "PYTHONPATH": os.pathsep.join([str(place), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "OMP_NUM_THREADS": "1"}  # fmt: skip


def cail(env: dict[str, str], *words: str) -> str:
    """What the command said; it must have done what was asked."""
    done = subprocess.run([sys.executable, "-m", "cail_core.cli", *words], env=env, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout + done.stderr


@contextmanager
def tracker(env: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "stack_two_cups.tracker"], env=env)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_the_examples_pass_their_own_tests(outside: dict[str, str]) -> None:
    for name in ("my_arm", "stack_two_cups"):
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / name / "test")],
                              env=outside, capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 0, done.stdout


def test_a_task_and_an_arm_from_outside_are_recorded_ranked_trained_on_and_deployed(
    outside: dict[str, str], tmp_path: Path
) -> None:
    """Nothing in this tree knows of either: a scripted hand on the arm, its demonstrations ranked, a policy on the arm again."""
    pytest.importorskip("rclpy")
    pytest.importorskip("mcap")
    script, demos, run = tmp_path / "script.txt", tmp_path / "demos", tmp_path / "run"
    episode = "press r\nwait 2\npress enter\nwait 0.5\nhold {} 1.0\nhold page-down 1.0\nwait 0.5\npress {}\nwait 1\n"
    script.write_text("wait 3\npress c\nwait 2\n" + "".join(episode.format(*one) for one in (("left", "s"), ("right", "f"))))
    with tracker(outside):
        cail(outside, "record", "--robot", "my_arm", "--task", "stack-two-cups", "--input", "scripted", "--script", str(script),
             "--dataset", str(demos), "--demonstrator", "anna", "--silence", "30")  # fmt: skip
        dataset = DemoDataset(demos)
        assert (dataset.info["robot_type"], dataset.info["cail"]["task"]) == ("my_arm", "stack-two-cups")
        assert [row.outcome for row in dataset.rows] == ["success", "failure"]
        needs = {"cup_1": POSE, "cup_2": POSE}
        heard = {message.topic for message in read_messages(bags_of(demos / "bags")[0], needs)}
        assert {"cup_1", "cup_2", "ee_pose", "twist_executed"} <= heard
        cail(outside, "demos", "rebuild", str(demos), "--out", str(tmp_path / "again"))
        assert [row.length for row in DemoDataset(tmp_path / "again").rows] == [row.length for row in dataset.rows]
        cail(outside, "demos", "rank", str(demos), "--by", "return", "--fraction", "1", "--seed", "0")
        cail(outside, "train", "--task", "stack-two-cups", "--demos", str(demos), "--method", "bc", "--steps", "50", "--seed",
             "0", "--out", str(run))  # fmt: skip
        assert "success:" in cail(outside, "eval", "--policy", str(run / "policy"), "--task", "stack-two-cups", "--episodes", "2",
                                  "--seed", "0")  # fmt: skip
        said = cail(outside, "deploy", "--policy", str(run / "policy"), "--robot", "my_arm", "--input", "none", "--episodes", "1",
                    "--without-guard")  # fmt: skip
    assert re.search(r"stack-two-cups on my_arm, 20 Hz", said)
    assert re.search(r"episodes +1\n", said)


def test_demonstrations_of_the_task_are_collected_and_learned_from(outside: dict[str, str], tmp_path: Path) -> None:
    demos, run = tmp_path / "demos", tmp_path / "run"
    cail(outside, "demos", "collect", "--task", "stack-two-cups", "--mix", "graded", "--episodes", "8", "--seed", "0", "--out",
         str(demos))  # fmt: skip
    cail(outside, "demos", "rank", str(demos), "--by", "return", "--fraction", "1", "--seed", "0")
    cail(outside, "train", "--task", "stack-two-cups", "--demos", str(demos), "--method", "cail-bc", "--steps", "50", "--seed",
         "0", "--out", str(run))  # fmt: skip
    assert (run / "policy" / "policy.json").is_file()


@pytest.mark.parametrize(("kind", "name", "folder"), [("arm", "my_arm", "my_arm"), ("method", "my-method", "my_method")])
def test_the_example_is_what_cail_new_writes(kind: str, name: str, folder: str) -> None:
    for path, text in written(kind, name).items():
        assert (EXAMPLES / folder / path).read_text(encoding="utf-8") == text, path


@pytest.mark.parametrize("kind", kinds())
def test_what_cail_new_writes_installs_and_passes_its_test(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = {"arm": "lab_arm", "task": "pour-tea", "method": "best-third"}[kind]
    out = tmp_path / "package"
    assert main(["new", kind, name, "--out", str(out)]) == 0
    assert f"my{kind}" not in "".join(path.read_text() for path in out.rglob("*") if path.is_file()).lower().replace("_", "")
    assert main(["new", kind, name, "--out", str(out)]) == 2, "nothing is written over"
    install(out, tmp_path / "installed")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "installed"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(out / "test")], env=env, cwd=out,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout
    done = subprocess.run([sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), str(out)],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["Two Cups", "class", "../up", "", "9lives"])
def test_a_name_that_no_package_can_have_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "task", name]) == 2
    assert "expected a name of small letters" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
