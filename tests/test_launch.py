"""The launch files: the names in them against a stand-in for launch, always; the real launch service, where there is one.

The stand-in knows the names that launch files import, not the keywords these take: only the second test shows those.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import socket
import subprocess
import sys
import sysconfig
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from person import at_terminal
from ros_bench import environment

from cail_core.algorithms import method_names
from cail_core.cli import Parser, build_parser
from cail_core.commands.train import add_arguments
from cail_core.demos.dataset import DemoDataset
from cail_robot.robot import find_robot, robot_names

ROOT = Path(__file__).resolve().parents[1]
LAUNCH_FILES = sorted((ROOT / "launch").glob("*.launch.py"))
PACKAGES = ("cail_core", "cail_robot", "cail_sim", "cail_bench")

STAND_IN = {
    "launch": ("LaunchDescription",),
    "launch.actions": (
        "DeclareLaunchArgument", "EmitEvent", "ExecuteProcess", "OpaqueFunction", "RegisterEventHandler", "Shutdown",
    ),
    "launch.event": (),
    "launch.event_handler": ("EventHandler",),
    "launch.event_handlers": ("OnProcessExit", "OnProcessIO"),
    "launch.substitutions": ("Command", "LaunchConfiguration"),
    "launch_ros": (),
    "launch_ros.actions": ("Node",),
    "launch_ros.parameter_descriptions": ("ParameterValue",),
    "launch_ros.substitutions": ("ExecutableInPackage",),
}  # fmt: skip


class Made:
    """One object that a launch file made: of which class, from what."""

    def __init__(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.kind, self.args, self.kwargs = kind, args, kwargs

    def perform(self, context: Context) -> str:
        """Of a LaunchConfiguration."""
        context.used.add(self.args[0])
        return context.values[self.args[0]]


@dataclass
class Context:
    """Launch's, as far as our files ask it: what was given, and what of it they wanted to know."""

    values: dict[str, str]
    used: set[str] = field(default_factory=set)
    is_shutdown: bool = False


class Opened:
    """A launch file, read with the stand-in."""

    def __init__(self, path: Path) -> None:
        self.description = runpy.run_path(str(path))["generate_launch_description"]()
        assert self.description.kind == "LaunchDescription"
        self.entities: list[Made] = list(self.description.args[0])
        self.declared = {one.args[0]: one for one in self.entities if one.kind == "DeclareLaunchArgument"}

    def start(self, **given: str) -> tuple[list[Made], Context]:
        """Everything that it starts with these arguments, also after a process has ended well."""
        assert given.keys() <= self.declared.keys()
        context = Context({name: one.kwargs["default_value"] for name, one in self.declared.items()} | given)
        found: list[Made] = []
        queue: list[Any] = [one for one in self.entities if one.kind == "OpaqueFunction"]
        while queue:
            one = queue.pop(0)
            found.append(one)
            if one.kind == "OpaqueFunction":
                queue += one.kwargs["function"](context)
            elif one.kind == "RegisterEventHandler" and "on_exit" in one.args[0].kwargs:
                handler = one.args[0].kwargs
                handler["target_action"].name = "process"  # launch's own objects have it
                queue += handler["on_exit"](types.SimpleNamespace(returncode=0), context)
        return found, context


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kinds in STAND_IN.items():
        module = types.ModuleType(name)
        for kind in kinds:
            setattr(module, kind, lambda *args, kind=kind, **kwargs: Made(kind, args, kwargs))
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["launch.event"].Event = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cail_robot.ros.launching", None)
    monkeypatch.delitem(sys.modules, "cail_robot.ros.launching")  # read anew, and forgotten afterwards


@pytest.fixture(params=LAUNCH_FILES, ids=lambda path: path.name)
def opened(request: pytest.FixtureRequest, stand_in: None) -> Opened:
    return Opened(request.param)


WITHOUT_LIBRARIES = """
import sys, types
for name, kinds in {stand_in!r}.items():
    module = sys.modules[name] = types.ModuleType(name)
    for kind in kinds:
        setattr(module, kind, object)
sys.modules["launch.event"].Event = object
for name in {libraries!r}:
    sys.modules[name] = None
import cail_robot.ros.launching
from cail_robot.robot import find_robot, robot_names
print([find_robot(name).base_frame for name in robot_names()])
import cail_core.algorithms
"""


def test_launch_files_need_nothing_that_the_system_s_python_has_not() -> None:
    """`ros2 launch` runs with that one, cail perhaps in an environment of its workspace."""
    libraries = ("numpy", "yaml", "rich", "pyarrow", "torch", "rclpy", "pybullet", "h5py", "gymnasium", "safetensors")
    program = WITHOUT_LIBRARIES.format(stand_in=STAND_IN, libraries=libraries)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def robots(opened: Opened) -> list[dict[str, str]]:
    """What each robot needs to be tried with every argument that it takes."""
    if "robot" not in opened.declared:
        return [{}]
    every = {"scene": "true", "params_file": "p.yaml", "limits": "limits", "robot_ip": "127.0.0.9",
             "robot_config": "ur5e", "device": "/dev/input/event9"}  # fmt: skip
    found = [{"robot": robot, **more} for robot in opened.declared["robot"].kwargs["choices"] for more in ({}, every)]
    return [{**one, "viewer": "true"} if "window" in find_robot(one["robot"]).options else one for one in found]


def test_there_are_launch_files() -> None:
    assert LAUNCH_FILES


def test_every_argument_is_described_and_used(opened: Opened) -> None:
    used: set[str] = set()
    for given in robots(opened):
        used |= opened.start(**given)[1].used
    assert used == opened.declared.keys()
    assert len([one for one in opened.entities if one.kind == "DeclareLaunchArgument"]) == len(opened.declared)
    for one in opened.declared.values():
        assert one.kwargs["default_value"] is not None
        assert one.kwargs["description"]


def test_every_executable_exists(opened: Opened) -> None:
    points = distribution("cail").entry_points
    ours = {(point.value.split(".")[0], point.name) for point in points if point.group == "console_scripts"}
    needed = {element.text for element in ElementTree.parse(ROOT / "src" / "cail_robot" / "package.xml").iterfind("exec_depend")}
    for given in robots(opened):
        actions, _ = opened.start(**given)
        started = [one for one in actions if one.kind == "Node"]
        started += [one.kwargs["cmd"][0] for one in actions if one.kind == "ExecuteProcess"]
        assert started
        for made in started:
            package, executable = made.kwargs["package"], made.kwargs["executable"]
            if package in PACKAGES:
                assert (package, executable) in ours
            else:
                assert package in needed, f"src/cail_robot/package.xml lacks <exec_depend>{package}</exec_depend>"


def test_every_command_takes_what_it_is_given(opened: Opened) -> None:
    """Each with its own parser: the options, and values of the right kind."""
    from cail_sim.robots.scene import main as scene

    for given in robots(opened):
        for process in (one for one in opened.start(**given)[0] if one.kind == "ExecuteProcess"):
            program, *arguments = process.kwargs["cmd"]
            program = program.kwargs["executable"]
            words = arguments[: arguments.index("--ros-args")] if "--ros-args" in arguments else arguments
            parser = Parser()
            if program == "cail" and words[0] != "up":
                parser = build_parser()
            elif program == "cail":
                find_robot(words[1]).load().add_arguments(parser)
                words = words[2:]
            else:
                with pytest.raises(SystemExit) as end:
                    scene([*words, "--help"])
                assert end.value.code == 0
                continue
            parser.parse_args(words)


COMMANDS = {"deploy.launch.py": "deploy", "teleop_record.launch.py": "record"}
BY_LAUNCH = {"scene", "rviz"}
"""What only launch can start."""
BY_COMMAND = {"help", "robot_type", "check", "results"}
"""Who starts a command by hand has the arm's node elsewhere, asks for a check alone, or reads its results."""


def test_launch_and_the_command_take_the_same(opened: Opened, request: pytest.FixtureRequest) -> None:
    """Names, choices and the robots: a launch file that lags behind its command refuses what the command takes."""
    name = COMMANDS.get(request.node.callspec.params["opened"].name)
    if name is None:
        pytest.skip("starts no command that has a robot")
    commands = next(action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    taken = {action.dest: action for action in commands.choices[name]._actions}
    assert opened.declared.keys() - BY_LAUNCH == taken.keys() - BY_COMMAND
    for argument, declared in opened.declared.items():
        if (choices := declared.kwargs.get("choices")) is not None and argument not in BY_LAUNCH and argument != "robot":
            assert {text.lower() for text in choices} == set(taken[argument].choices), argument
    assert opened.declared["robot"].kwargs["choices"] == robot_names()


def test_the_training_node_takes_what_it_is_given(opened: Opened) -> None:
    for node in (one for one in opened.start()[0] if one.kind == "Node" and one.kwargs["executable"] == "train_node"):
        parser = Parser()
        add_arguments(parser)
        parser.add_argument("--report", choices=("true", "false"))
        given = parser.parse_args(node.kwargs["arguments"])
        assert given.steps is None  # the method's own
        assert tuple(opened.declared["method"].kwargs["choices"]) == method_names()
        started, _ = opened.start(config="c.yaml", set="ppo.gamma=0.9 'ppo.hidden=[8, 8]'")
        (changed,) = (one for one in started if one.kind == "Node")
        given = parser.parse_args(changed.kwargs["arguments"])
        assert (given.config, given.set) == ("c.yaml", ["ppo.gamma=0.9", "ppo.hidden=[8, 8]"])


def test_an_arm_plays_its_own_task_unless_told_otherwise(opened: Opened) -> None:
    if "demonstrator" not in opened.declared:
        pytest.skip("only a recording has a task of its own")
    for robot, task in (("panda_sim", "panda"), ("ur5e_sim", "ur5e"), ("ur5e", "ur5e")):
        commands = [one.kwargs["cmd"] for one in opened.start(robot=robot)[0] if one.kind == "ExecuteProcess"]
        assert all(f"--task={task}" in command for command in commands if "record" in command)
        told = [one.kwargs["cmd"] for one in opened.start(robot=robot, task="panda-carry")[0] if one.kind == "ExecuteProcess"]
        assert all("--task=panda-carry" in command for command in told if "record" in command)


SIDES = {"left": ("page-down", 2, -1.0), "right": ("page-up", 2, 1.0)}
"""Namespace -> the key that is held there, and which component of the action it moves which way."""


def two_arms(tmp_path: Path) -> dict[str, dict[str, str]]:
    """Launch arguments of two arms that are steered apart."""
    given = {}
    for side, (key, _, _) in SIDES.items():
        script = tmp_path / f"{side}.txt"
        script.write_text(f"press c\nwait 2\npress enter\nhold {key} 1.0\nwait 0.5\npress s\nwait 1\n")
        given[side] = {"input": "scripted", "script": str(script), "dataset": str(tmp_path / side / "d"), "demonstrator": side,
                       "silence": "60", "namespace": side}  # fmt: skip
        (tmp_path / side).mkdir()
    return given


def each_did_its_own(tmp_path: Path) -> None:
    for side, (_, component, sign) in SIDES.items():
        dataset = DemoDataset(tmp_path / side / "d")
        assert [row.demonstrator for row in dataset.rows] == [side]
        moved = dataset.demonstrations().actions[:, component] * sign
        assert moved.max() > 0.1
        assert moved.min() > -0.01, "the other arm's command"


def test_two_arms_in_two_namespaces_do_not_meet(stand_in: None, tmp_path: Path) -> None:
    """The processes of two launches, as the launch file says them, started by hand in one ROS domain."""
    pytest.importorskip("pybullet", reason="needs PyBullet")
    pytest.importorskip("rclpy", reason="needs ROS 2")
    opened = Opened(ROOT / "launch" / "teleop_record.launch.py")
    arms, desks = [], []
    try:
        for given in two_arms(tmp_path).values():
            for one in (one for one in opened.start(**given)[0] if one.kind == "ExecuteProcess"):
                (found, *words) = one.kwargs["cmd"]
                program = Path(sysconfig.get_path("data"), "lib", found.kwargs["package"], found.kwargs["executable"])
                if "--check" not in words:
                    kept = desks if "record" in words else arms
                    kept.append(subprocess.Popen([program, *words], env=environment(), stdin=subprocess.DEVNULL))
        assert [len(arms), len(desks)] == [2, 2]
        assert [desk.wait(120) for desk in desks] == [0, 0]
    finally:
        for process in (*arms, *desks):
            process.terminate()
    assert [arm.wait(60) for arm in arms] == [0, 0]
    each_did_its_own(tmp_path)


LAUNCH = """
import json, os, sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription, RegisterEventHandler
from launch.event_handlers import OnProcessExit
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch_ros.substitutions import FindPackageShare

file, arguments, kept = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
source = PythonLaunchDescriptionSource([FindPackageShare("cail_robot"), f"/launch/{file}"])
ended = []
watch = RegisterEventHandler(OnProcessExit(on_exit=lambda event, _: ended.append((event.cmd, event.returncode))))
service = LaunchService(noninteractive=True)
included = IncludeLaunchDescription(source, launch_arguments=arguments.items())
service.include_launch_description(LaunchDescription([watch, included]))
code = service.run()
json.dump(ended, open(kept, "w"))
sys.exit(code)
"""


@dataclass(frozen=True)
class Ended:
    """A process that launch started."""

    cmd: list[str]
    returncode: int


def launched(file: str, arguments: dict[str, str], tmp_path: Path) -> tuple[list[Ended], int, str]:
    """The processes that the real launch service started for a launch file, its own exit code, and what was on the screen."""
    pytest.importorskip("launch_ros.actions", reason="needs ROS 2's launch_ros, which pip does not have")
    prefixes = os.pathsep.join(filter(None, [os.environ.get("AMENT_PREFIX_PATH", ""), sysconfig.get_path("data")]))
    env = {**environment(), "AMENT_PREFIX_PATH": prefixes, "ROS_LOG_DIR": str(tmp_path / "log")}
    command = [sys.executable, "-c", LAUNCH, file, json.dumps(arguments), str(tmp_path / "ended.json")]
    done = subprocess.run(command, env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, start_new_session=True)  # fmt: skip
    ended = [Ended(*one) for one in json.loads((tmp_path / "ended.json").read_text())]
    return ended, done.returncode, done.stdout


def test_real_launch_hands_its_arguments_to_the_installed_command(tmp_path: Path) -> None:
    (process,), code, _ = launched("demo.launch.py", {"out": "nowhere", "seed": "odd", "quick": "True"}, tmp_path)
    program, *arguments = process.cmd
    assert Path(program).parts[-3:] == ("lib", "cail_core", "cail")
    assert arguments == ["demo", "--out=nowhere", "--seed=odd", "--quick"]
    assert process.returncode == 2  # the command's own word on a seed that is no number: it ran, and nothing was trained
    assert code == 1


def test_real_launch_records_and_ends_with_0(tmp_path: Path) -> None:
    pytest.importorskip("pybullet", reason="needs PyBullet")
    script = tmp_path / "s.txt"
    script.write_text("press c\nwait 2\npress enter\nhold page-down 2.0\nwait 1.0\npress s\nwait 1\n")
    given = {"input": "scripted", "script": str(script), "dataset": str(tmp_path / "d"), "demonstrator": "anna", "silence": "60",
             "namespace": "left", "trim_idle": "True"}  # fmt: skip
    (check, *both), code, _ = launched("teleop_record.launch.py", given, tmp_path)
    arm, desk = sorted(both, key=lambda event: "record" in event.cmd)
    assert Path(arm.cmd[0]).parts[-3:] == ("lib", "cail_core", "cail")
    assert arm.cmd[1:] == ["up", "panda_sim", "--namespace=left", "--task=panda", "--seed=0"]
    assert "--check" in check.cmd
    assert "--trim-idle=true" in desk.cmd
    assert [event.returncode for event in (check, arm, desk)] == [0, 0, 0]
    assert code == 0
    assert [row.demonstrator for row in DemoDataset(tmp_path / "d").rows] == ["anna"]


def test_real_launch_runs_two_arms_in_two_namespaces(tmp_path: Path) -> None:
    pytest.importorskip("launch_ros.actions", reason="needs ROS 2's launch_ros, which pip does not have")
    pytest.importorskip("pybullet", reason="needs PyBullet")
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(launched, "teleop_record.launch.py", given, tmp_path / side)
                for side, given in two_arms(tmp_path).items()]  # fmt: skip
        ends = [one.result() for one in both]
    assert [code for _, code, _ in ends] == [0, 0]
    assert [[event.returncode for event in ended] for ended, _, _ in ends] == [[0, 0, 0]] * 2
    each_did_its_own(tmp_path)


def test_real_launch_leaves_the_keys_to_who_steers_by_a_device(tmp_path: Path) -> None:
    pytest.importorskip("launch_ros.actions", reason="needs ROS 2's launch_ros, which pip does not have")
    pytest.importorskip("pybullet", reason="needs PyBullet")
    prefixes = os.pathsep.join(filter(None, [os.environ.get("AMENT_PREFIX_PATH", ""), sysconfig.get_path("data")]))
    given = {"input": "joy_topic", "dataset": str(tmp_path / "d")}
    command = [sys.executable, "-c", LAUNCH, "teleop_record.launch.py", json.dumps(given), str(tmp_path / "ended.json")]
    env = {"AMENT_PREFIX_PATH": prefixes, "ROS_LOG_DIR": str(tmp_path / "log"), "PYTHONPATH": os.pathsep.join(sys.path)}
    with at_terminal(command, ROS_DOMAIN_ID=environment()["ROS_DOMAIN_ID"], CAIL_REALTIME="0", **env) as window:
        window.wait_for("IDLE: connected to simulated Franka Panda", 90.0)
        for key, text in (("c", "ENABLED: motion is permitted"), ("Escape", "FAULT: stop was called"), ("q", "ended with 0")):
            window.type(key)
            window.wait_for(text, 60.0)


@pytest.mark.parametrize(
    ("file", "given", "words"),
    [
        ("teleop_record.launch.py", {"task": "pointmass"}, "seen through an arm's topics"),
        ("teleop_record.launch.py", {"viewer": "true", "robot": "ur5e"}, "viewer:=true is for a simulator of ours"),
        ("teleop_record.launch.py", {"params_file": "limits"}, "give a ROS parameter file"),
        ("deploy.launch.py", {"policy": "nowhere"}, "nowhere"),
    ],
)
def test_real_launch_starts_nothing_that_does_not_fit(
    file: str, given: dict[str, str], words: str, tmp_path: Path
) -> None:
    (tmp_path / "s.txt").write_text("wait 0\n")
    given = {"input": "scripted", "script": str(tmp_path / "s.txt"), "dataset": str(tmp_path / "d"), **given}
    ended, code, said = launched(file, given, tmp_path)
    assert [any("--check" in word for word in event.cmd) for event in ended] == [True]
    assert ended[0].returncode == 2
    assert code == 1
    assert not (tmp_path / "d").exists()
    assert words in said


def test_real_launch_says_the_last_words_of_an_arm_that_dies(tmp_path: Path) -> None:
    """A control box that is there for the check and not for the arm: its ports are another's."""
    pytest.importorskip("rtde_control", reason="needs ur_rtde")
    pytest.importorskip("pybullet", reason="needs PyBullet")
    from cail_sim.ursim.process import free_host
    from cail_sim.ursim.server import Ports

    host, script = free_host(), tmp_path / "s.txt"
    script.write_text("wait 60\n")
    with socket.socket() as other:
        other.bind((host, Ports().rtde))
        other.listen()
        given = {"robot": "ur5e_sim", "robot_ip": host, "input": "scripted", "script": str(script)}
        given["dataset"] = str(tmp_path / "d")
        ended, code, said = launched("teleop_record.launch.py", given, tmp_path)
    assert [event.returncode for event in ended if "up" in event.cmd] == [2]
    assert code == 1
    assert "the arm's node ended with exit code 2. Its last words:" in said
    assert "  cail: " in said.split("Its last words:")[1]
    assert "launch.log" in said


def test_real_launch_hands_its_arguments_to_the_training_node(tmp_path: Path) -> None:
    given = {"task": "pointmass", "demos": str(tmp_path / "d"), "method": "bc", "out": str(tmp_path / "run"), "report": "false"}
    (process,), code, _ = launched("train.launch.py", given, tmp_path)
    program, *arguments = process.cmd[: process.cmd.index("--ros-args")]
    assert Path(program).parts[-3:] == ("lib", "cail_robot", "train_node")
    assert arguments == [
        "--task=pointmass", f"--demos={tmp_path / 'd'}", "--method=bc", "--seed=0", "--steps=default",
        f"--out={tmp_path / 'run'}", "--report=false",
    ]  # fmt: skip
    assert process.returncode == 2  # there is no dataset
    assert code == 1
    assert not (tmp_path / "run").exists()
