"""The launch files: the names in them against a stand-in for launch, always; the real launch service, where there is one.

The stand-in knows the names that launch files import, not the keywords these take: only the second test shows those.
"""

from __future__ import annotations

import os
import runpy
import sys
import sysconfig
import types
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cail_core.algorithms import METHODS
from cail_core.cli import Parser, build_parser
from cail_core.commands.train import add_arguments

ROOT = Path(__file__).resolve().parents[1]
LAUNCH_FILES = sorted((ROOT / "launch").glob("*.launch.py"))
PACKAGES = ("cail_core", "cail_robot", "cail_sim")

STAND_IN = {
    "launch": ("LaunchDescription",),
    "launch.actions": (
        "DeclareLaunchArgument", "EmitEvent", "ExecuteProcess", "GroupAction", "IncludeLaunchDescription", "LogInfo",
        "RegisterEventHandler", "SetEnvironmentVariable", "Shutdown", "TimerAction",
    ),
    "launch.conditions": ("IfCondition", "UnlessCondition"),
    "launch.event_handlers": ("OnProcessExit", "OnProcessStart"),
    "launch.events": ("Shutdown",),
    "launch.launch_description_sources": ("PythonLaunchDescriptionSource",),
    "launch.substitutions": (
        "EnvironmentVariable", "LaunchConfiguration", "PathJoinSubstitution", "PythonExpression", "TextSubstitution",
    ),
    "launch_ros": (),
    "launch_ros.actions": ("LifecycleNode", "Node", "PushRosNamespace", "SetParameter"),
    "launch_ros.parameter_descriptions": ("ParameterFile", "ParameterValue"),
    "launch_ros.substitutions": ("ExecutableInPackage", "FindPackageShare"),
}


class Made:
    """One object that a launch file made: of which class, from what."""

    def __init__(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.kind, self.args, self.kwargs = kind, args, kwargs

    def get(self, keyword: str, position: int | None = None) -> Any:
        """The argument, however it was given."""
        return self.args[position] if position is not None and position < len(self.args) else self.kwargs.get(keyword)

    def below(self) -> list[Made]:
        """This object and all inside it."""
        found, queue = [self], [*self.args, *self.kwargs.values()]
        while queue:
            item = queue.pop(0)
            if isinstance(item, Made):
                found += item.below()
            elif isinstance(item, dict):
                queue += [*item.keys(), *item.values()]
            elif isinstance(item, (list, tuple)):
                queue += item
            elif isinstance(item, types.FunctionType):  # what an event handler starts once a process has ended well
                queue += item(types.SimpleNamespace(returncode=0), None)
        return found


def recorder(kind: str) -> Any:
    return lambda *args, **kwargs: Made(kind, args, kwargs)


@pytest.fixture(params=LAUNCH_FILES, ids=lambda path: path.name)
def description(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Made:
    for name, kinds in STAND_IN.items():
        module = types.ModuleType(name)
        for kind in kinds:
            setattr(module, kind, recorder(kind))
        monkeypatch.setitem(sys.modules, name, module)
    made = runpy.run_path(str(request.param))["generate_launch_description"]()
    assert made.kind == "LaunchDescription"
    return made


def of_kind(description: Made, *kinds: str) -> list[Made]:
    return [made for made in description.below() if made.kind in kinds]


def defaults(description: Made) -> dict[str, str]:
    return {made.get("name", 0): made.get("default_value") for made in of_kind(description, "DeclareLaunchArgument")}


def text(value: Any, arguments: dict[str, str]) -> str:
    """What a substitution becomes when no argument is given; a package's share is the source tree's root."""
    if isinstance(value, (list, tuple)):
        return "".join(text(part, arguments) for part in value)
    if not isinstance(value, Made):
        return str(value)
    if value.kind == "LaunchConfiguration":
        return arguments[value.get("variable_name", 0)]
    if value.kind == "PathJoinSubstitution":
        return os.path.join(*(text(part, arguments) for part in value.get("substitutions", 0)))
    if value.kind == "FindPackageShare":
        assert value.get("package", 0) == "cail_robot", "launch and config files are in the share of cail_robot"
        return str(ROOT)
    return text(value.args[0], arguments)


def test_there_are_launch_files() -> None:
    assert LAUNCH_FILES


def test_every_argument_used_is_declared_and_described(description: Made) -> None:
    declared = of_kind(description, "DeclareLaunchArgument")
    names = [made.get("name", 0) for made in declared]
    assert len(names) == len(set(names))
    assert {made.get("variable_name", 0) for made in of_kind(description, "LaunchConfiguration")} == set(names)
    for made in declared:
        assert made.get("default_value") is not None
        assert made.get("description")


def test_every_executable_exists(description: Made) -> None:
    points = distribution("cail").entry_points
    ours = {(point.value.split(".")[0], point.name) for point in points if point.group == "console_scripts"}
    needed = {element.text for element in ElementTree.parse(ROOT / "src" / "cail_robot" / "package.xml").iterfind("exec_depend")}
    started = of_kind(description, "Node", "LifecycleNode", "ExecutableInPackage")
    assert started
    for made in started:
        package, executable = made.kwargs["package"], made.kwargs["executable"]
        if package in PACKAGES:
            assert (package, executable) in ours
        else:
            assert package in needed, f"src/cail_robot/package.xml lacks <exec_depend>{package}</exec_depend>"


def test_the_cail_command_takes_what_it_is_given(description: Made) -> None:
    for process in of_kind(description, "ExecuteProcess"):
        program, *arguments = process.kwargs["cmd"]
        if isinstance(program, Made) and program.kwargs.get("executable") == "cail":
            build_parser().parse_args([text(argument, defaults(description)) for argument in arguments])


def test_the_training_node_takes_what_it_is_given(description: Made) -> None:
    for node in of_kind(description, "Node"):
        if node.kwargs["executable"] == "train_node":
            parser = Parser()
            add_arguments(parser)
            parser.add_argument("--report", choices=("true", "false"))
            given = parser.parse_args([text(argument, defaults(description)) for argument in node.kwargs["arguments"]])
            assert given.steps is None  # the method's own
            (method,) = (m for m in of_kind(description, "DeclareLaunchArgument") if m.get("name", 0) == "method")
            assert tuple(method.kwargs["choices"]) == METHODS


def test_every_parameter_file_and_included_launch_file_exists(description: Made) -> None:
    files = [made.args[0] for made in of_kind(description, "ParameterFile", "PythonLaunchDescriptionSource")]
    for node in of_kind(description, "Node", "LifecycleNode"):
        files += [given for given in node.kwargs.get("parameters", []) if not isinstance(given, dict)]
    for file in files:
        path = Path(text(file, defaults(description)))
        assert path.is_file(), path


def launched(file: str, arguments: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ends of the processes that the real launch service starts for a launch file."""
    pytest.importorskip("launch_ros.actions", reason="needs ROS 2's launch_ros, which pip does not have")
    from launch import LaunchDescription, LaunchService
    from launch.actions import IncludeLaunchDescription, RegisterEventHandler
    from launch.event_handlers import OnProcessExit
    from launch.launch_description_sources import PythonLaunchDescriptionSource
    from launch_ros.substitutions import FindPackageShare

    prefixes = [os.environ.get("AMENT_PREFIX_PATH", ""), sysconfig.get_path("data")]
    monkeypatch.setenv("AMENT_PREFIX_PATH", os.pathsep.join(filter(None, prefixes)))
    monkeypatch.setenv("ROS_LOG_DIR", str(tmp_path))
    included = IncludeLaunchDescription(
        PythonLaunchDescriptionSource([FindPackageShare("cail_robot"), f"/launch/{file}"]), launch_arguments=arguments.items()
    )
    ended: list[Any] = []
    watch = RegisterEventHandler(OnProcessExit(on_exit=lambda event, _: ended.append(event)))
    service = LaunchService(noninteractive=True)
    service.include_launch_description(LaunchDescription([watch, included]))
    service.run()
    return ended


def test_real_launch_hands_its_arguments_to_the_installed_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (process,) = launched("demo.launch.py", {"out": "nowhere", "seed": "odd"}, tmp_path, monkeypatch)
    program, *arguments = process.cmd
    assert Path(program).parts[-3:] == ("lib", "cail_core", "cail")
    assert arguments == ["demo", "--out", "nowhere", "--seed", "odd"]
    assert process.returncode == 2  # the command's own word on a seed that is no number: it ran, and nothing was trained


def test_real_launch_starts_the_arm_and_the_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"robot": "panda_sim", "input": "scripted", "dataset": str(tmp_path / "d"), "demonstrator": "anna"}
    given["task"] = "pointmass"
    ended = launched("teleop_record.launch.py", given, tmp_path, monkeypatch)
    arm, desk = sorted(ended, key=lambda event: "record" in event.cmd)
    assert Path(arm.cmd[0]).parts[-3:] == ("lib", "cail_sim", "sim_node")
    assert arm.cmd[1:] == ["--task", "pointmass", "--seed=0"]
    assert Path(desk.cmd[0]).parts[-3:] == ("lib", "cail_core", "cail")
    assert desk.cmd[1:] == [
        "record", "--robot", "running", "--robot-type", "panda_sim", "--input", "scripted", "--script", "teleop.txt",
        "--dataset", str(tmp_path / "d"), "--demonstrator", "anna", "--task", "pointmass", "--rate", "50",
    ]  # fmt: skip
    assert 2 in (arm.returncode, desk.returncode)  # a point mass is no arm's task: whoever says so first ends the other
    assert not (tmp_path / "d").exists()


def test_real_launch_hands_its_arguments_to_the_training_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"task": "pointmass", "demos": str(tmp_path / "d"), "method": "bc", "out": str(tmp_path / "run"), "report": "false"}
    (process,) = launched("train.launch.py", given, tmp_path, monkeypatch)
    program, *arguments = process.cmd[: process.cmd.index("--ros-args")]
    assert Path(program).parts[-3:] == ("lib", "cail_robot", "train_node")
    assert arguments == [
        "--task", "pointmass", "--demos", str(tmp_path / "d"), "--method", "bc", "--seed", "0", "--steps", "default",
        "--out", str(tmp_path / "run"), "--report", "false",
    ]  # fmt: skip
    assert process.returncode == 2  # there is no dataset
    assert not (tmp_path / "run").exists()
