"""The registry of robots: whatever package brings one, its spec is all that the commands know of it."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from cail_core.cli import main
from cail_core.errors import BadInput, MissingDependency
from cail_robot.robot import Bringup, Resets, RobotSpec, default_robot, find_robot, kind_of, robot_names, robot_or_unknown

MODULE = '''
from cail_robot.robot import Bringup, Resets, RobotSpec

STICK = RobotSpec("stick", "a stick", "stick_arm:Start", "stick_base", kind="branch", simulated=True, resets=Resets.ALL,
                  options=("limits", "seed"), aliases=("old_stick",))
MISNAMED = RobotSpec("twig", "a twig", "stick_arm:Start", "base")
NOT_A_SPEC = Bringup
'''


@pytest.fixture
def stick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package outside of the tree, as pip would leave it."""
    about = tmp_path / "stick-0.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stick\nVersion: 0.0\n")
    (about / "entry_points.txt").write_text(
        "[cail.arms]\nstick = stick_specs:STICK\nbent = stick_specs:NOT_A_SPEC\nlog = stick_specs:MISNAMED\ngone = no_such:X\n"
    )
    (tmp_path / "stick_specs.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("stick")
def test_an_installed_robot_is_found_by_its_name_and_its_other_names() -> None:
    spec = find_robot("stick")
    assert (spec.base_frame, spec.simulated, spec.resets) == ("stick_base", True, Resets.ALL)
    assert find_robot("old_stick") is spec
    assert "stick" in robot_names()
    assert (kind_of("stick"), kind_of("old_stick"), kind_of("nobody's")) == ("branch", "branch", "nobody's")


@pytest.mark.usefixtures("stick")
@pytest.mark.parametrize(
    ("name", "words"),
    [("bent", "is no cail_robot.robot.RobotSpec"), ("log", "calls itself 'twig'"), ("gone", "cannot be loaded: No module named"),
     ("tree", "given 'tree'")],
)
def test_what_is_wrong_with_a_robot_is_said_and_hides_no_other(name: str, words: str) -> None:
    with pytest.raises((BadInput, MissingDependency), match=words):
        find_robot(name)
    assert find_robot("old_stick").name == "stick"


def test_a_robot_that_is_not_installed_counts_as_real() -> None:
    spec = robot_or_unknown("somebody's")
    assert (spec.simulated, spec.resets, spec.kind) == (False, Resets.NOTHING, "somebody's")


def test_a_robot_takes_the_options_of_its_spec() -> None:
    with pytest.raises(ValueError, match="takes wings"):
        RobotSpec("bird", "", "", "base", options=("wings",))
    parser = argparse.ArgumentParser()
    Bringup(RobotSpec("stick", "", "", "base", options=("robot_ip", "seed"))).add_arguments(parser)
    given = parser.parse_args(["--robot-ip", "127.0.0.1", "--seed", "3"])
    assert (given.robot_ip, given.seed, given.namespace) == ("127.0.0.1", 3, "arm")
    assert not hasattr(given, "window")


@pytest.mark.parametrize(
    ("given", "words"),
    [({"robot_ip": "127.0.0.9"}, "--robot-ip is for an arm with a control box, stick has none"),
     ({"robot_config": "x"}, "--robot-config is for a robot with settings"), ({"viewer": "true"}, "stick has no window")],
)
def test_options_that_a_robot_does_not_take_are_refused(given: dict[str, str], words: str) -> None:
    pytest.importorskip("rclpy")
    from cail_robot.commands.robot_options import bring_up

    plain = {"robot": "stick", "task": "", "seed": 0, "limits": None, "robot_ip": None, "robot_config": None, "viewer": "false",
             "namespace": "arm", "params_file": None}
    with pytest.raises(BadInput, match=words):
        bring_up(argparse.Namespace(**plain | given), RobotSpec("stick", "a stick", "stick_arm:Start", "base"))


@pytest.mark.usefixtures("stick")
def test_a_robot_that_nobody_has_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "tree"]) == 2
    assert "expected an installed robot" in capsys.readouterr().err


def test_the_default_is_a_robot_that_offers_itself() -> None:
    assert default_robot() == "" or find_robot(default_robot()).default


def test_a_bringup_that_gives_neither_arm_nor_nodes_is_said_in_one_line() -> None:
    spec = RobotSpec("twig", "a twig", "cail_robot.robot:Bringup", "base")
    with pytest.raises(BadInput, match=r"'twig': expected cail_robot\.robot:Bringup to define arm or nodes"):
        spec.load().nodes(argparse.Namespace(namespace="arm"))
