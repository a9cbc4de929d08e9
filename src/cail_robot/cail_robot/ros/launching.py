"""What the launch files share: arguments, the arm's process, a check before anything moves, and how a failure ends.

By itself `ros2 launch` ends with 0 whatever became of what it started. Here a process that failed is an event of its own, whose
handler raises: launch says the words and ends with 1, and every other handler of the process's end has had its turn.

The Python of `ros2 launch` may be the system's, without what cail needs: only ROS, the standard library and
what needs no more than that are imported here.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launch.actions import DeclareLaunchArgument, EmitEvent, ExecuteProcess, OpaqueFunction, RegisterEventHandler, Shutdown
from launch.event import Event
from launch.event_handler import EventHandler
from launch.event_handlers import OnProcessExit, OnProcessIO
from launch.substitutions import Command, LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import ExecutableInPackage

from cail_core.launch_words import SWITCH
from cail_robot.robot import default_robot, find_robot, robot_names
from cail_robot.teleop import INPUTS

ENDED_BY_SIGNAL = (-2, -15, 128 + 2, 128 + 15)
LAST_WORDS = 8
"""Lines of the arm's output that are shown when it fails."""
YES_NO = ["true", "false", "True", "False"]


class LaunchFailed(Exception):
    """Something that was launched failed; launch says the text and ends with exit code 1."""


class Failure(Event):  # type: ignore[misc]
    """Something that was launched failed."""

    name = "cail_robot.ros.launching.Failure"

    def __init__(self, text: str) -> None:
        self.text = text


def failure(text: str) -> list[Any]:
    return [EmitEvent(event=Failure(text))]


def failures_end_it() -> Any:
    return RegisterEventHandler(
        EventHandler(matcher=lambda event: isinstance(event, Failure), entities=[OpaqueFunction(function=_fail)])
    )


def _fail(context: Any) -> None:
    raise LaunchFailed(context.locals.event.text)


# Arguments.


def argument(name: str, default: str, text: str, choices: Sequence[str] | None = None) -> Any:
    return DeclareLaunchArgument(name, default_value=default, description=text, **({"choices": [*choices]} if choices else {}))


def switch(name: str, text: str) -> Any:
    return argument(name, "false", text, YES_NO)


def arm_arguments() -> list[Any]:
    """Which arm, and what its node is started with."""
    return [
        argument("robot", default_robot() or next(iter(robot_names()), ""), "which of the installed robots", robot_names()),
        argument("robot_ip", "", "address of the control box, for robots that have one; empty: as their settings say"),
        argument("robot_config", "", "settings of the robot; empty: the installed ones"),
        argument("namespace", "arm", "of the arm's topics; two arms need two"),
        argument("params_file", "", "ROS parameter file for the arm's node, such as config/ros/limits.params.yaml"),
        argument("limits", "", "file of limits in place of the arm's own; `limits`: those of real arms"),
        argument("seed", "0", "of the simulator's scenes"),
        switch("viewer", "show the simulator's window, for robots that have one"),
        switch("scene", "publish the task's things as markers on `scene`"),
        switch("rviz", "start RViz with share/cail_robot/config/rviz/arm.rviz, and `scene`"),
    ]


def hand_arguments(text: str, *more: str) -> list[Any]:
    """What a person steers with."""
    return [
        argument("input", INPUTS[0], text, (*INPUTS, *more)),
        argument("device", "", "gamepad or spacemouse: /dev/input/event…; empty: the first that fits"),
        argument("script", "teleop.txt", "with input:=scripted: the file of what to do"),
    ]


def value(context: Any, name: str) -> str:
    text = str(LaunchConfiguration(name).perform(context))
    return text.lower() if text in ("True", "False") else text


def options(context: Any, *names: str) -> list[str]:
    """Launch arguments as options of the command, where they have a value."""
    return [f"--{name.replace('_', '-')}={text}" for name in names if (text := value(context, name))]


# Processes.


def cail() -> Any:
    return ExecutableInPackage(package="cail_core", executable="cail")


def process(name: str, command: Sequence[Any], **more: Any) -> Any:
    return ExecuteProcess(cmd=[*command], name=name, additional_env={SWITCH: "1"}, **more)


def arm_process(context: Any, task: str) -> Any:
    """The arm's node in a process of its own: the desk's end is not the arm's. Its words go to the log."""
    spec = find_robot(value(context, "robot"))
    given = {"task": task, "config": value(context, "robot_config")}
    given |= {name: value(context, name) for name in ("limits", "robot_ip", "seed")}
    command = [cail(), "up", spec.name, *options(context, "namespace")]
    command += [f"--{name.replace('_', '-')}={given[name]}" for name in given if name in spec.options and given[name]]
    if value(context, "viewer") == "true":
        command.append("--window")
    if params := value(context, "params_file"):
        command += ["--ros-args", "--params-file", params]
    return process("arm", command, output={"both": "log"})


class Together:
    """A check, and once it has succeeded the arm and the desk; whichever ends takes the other along."""

    def __init__(self, check: Any, arm: Any, desk: Any, beside: Sequence[Any] = ()) -> None:
        self._check, self._arm, self._desk, self._beside = check, arm, desk, beside
        self._running = {"arm", "desk"}
        self._failed: list[str] = []
        self._said: deque[str] = deque(maxlen=LAST_WORDS)

    def actions(self) -> list[Any]:
        checked = RegisterEventHandler(OnProcessExit(target_action=self._check, on_exit=self._checked))
        return [failures_end_it(), checked, self._check]

    def _checked(self, event: Any, context: Any) -> list[Any]:
        if context.is_shutdown:
            return []
        if event.returncode != 0:
            return failure("nothing was started; the reason is above")
        return [
            RegisterEventHandler(OnProcessIO(target_action=self._arm, on_stdout=self._hear, on_stderr=self._hear)),
            RegisterEventHandler(OnProcessExit(target_action=self._arm, on_exit=self._arm_ended)),
            RegisterEventHandler(OnProcessExit(target_action=self._desk, on_exit=self._desk_ended)),
            self._arm,
            self._desk,
            *self._beside,
        ]

    def _hear(self, event: Any) -> None:
        self._said.extend(line for line in event.text.decode("utf-8", "replace").splitlines() if line.strip())

    def _arm_ended(self, event: Any, context: Any) -> list[Any]:
        if failed(event, context):
            words = "".join(f"\n  {line}" for line in self._said) or " It said nothing."
            self._failed.append(f"the arm's node ended with exit code {event.returncode}. Its last words:{words}{whole_log()}")
        return self._end("arm", "the arm's node has ended")

    def _desk_ended(self, event: Any, context: Any) -> list[Any]:
        if failed(event, context):
            self._failed.append(f"{self._desk.name} ended with exit code {event.returncode}; the reason is above")
        return self._end("desk", "all is done")

    def _end(self, which: str, reason: str) -> list[Any]:
        """Faults are said when both have ended: until then the desk's screen would cover them."""
        self._running.discard(which)
        if not self._running and self._failed:
            return failure("\n".join(self._failed))
        return [Shutdown(reason=reason)]


def failed(event: Any, context: Any) -> bool:
    """Whether a process failed; one that was asked to end has not."""
    return event.returncode != 0 and not (context.is_shutdown and event.returncode in ENDED_BY_SIGNAL)


def alone(action: Any, what: str) -> list[Any]:
    """One process whose end is the launch's."""

    def ended(event: Any, context: Any) -> list[Any]:
        if failed(event, context):
            return failure(f"{what} ended with exit code {event.returncode}; the reason is above")
        return [Shutdown(reason=f"{what} has ended")]

    return [failures_end_it(), RegisterEventHandler(OnProcessExit(target_action=action, on_exit=ended)), action]


def whole_log() -> str:
    from launch.logging import launch_config

    return f"\nAll that it said: {Path(launch_config.log_dir) / 'launch.log'}"


# What shows the arm.


def shown(context: Any, task: str, policy: str = "") -> list[Any]:
    """robot_state_publisher where it is installed; the scene's markers and RViz where they are asked for."""
    robot, namespace = find_robot(value(context, "robot")), value(context, "namespace").strip("/")
    found: list[Any] = []
    # Frames have the same names on every arm, so each but the usual one has its transforms in its own namespace.
    remappings = [] if namespace == "arm" else [("/tf", "tf"), ("/tf_static", "tf_static")]
    if installed("robot_state_publisher"):
        urdf = ParameterValue(Command([cail(), f" up {robot.name} --description"], on_stderr="warn"), value_type=str)
        found.append(Node(package="robot_state_publisher", executable="robot_state_publisher", namespace=namespace,
                          parameters=[{"robot_description": urdf}], remappings=remappings, output="log"))  # fmt: skip
    rviz = value(context, "rviz") == "true"
    if rviz or value(context, "scene") == "true":
        words = [f"--namespace={namespace}", *([f"--task={task}"] if task else []), *([f"--policy={policy}"] if policy else [])]
        found.append(process("scene", [ExecutableInPackage(package="cail_sim", executable="scene_node"), *words], output="log"))
    if rviz:
        if not installed("rviz2"):
            distro = os.environ.get("ROS_DISTRO", "jazzy")
            raise LaunchFailed(f"rviz:=true needs the package rviz2, which is not installed: sudo apt install ros-{distro}-rviz2")
        found.append(Node(package="rviz2", executable="rviz2", namespace=namespace, remappings=remappings, output="log",
                          arguments=["-d", str(rviz_config(namespace)), "-f", robot.base_frame]))  # fmt: skip
    return found


def installed(package: str) -> bool:
    from ament_index_python.packages import PackageNotFoundError, get_package_prefix

    try:
        return bool(get_package_prefix(package))
    except (PackageNotFoundError, OSError):  # OSError: no ROS prefix in the environment at all
        return False


def rviz_config(namespace: str) -> Path:
    """Our configuration for the topics of a namespace."""
    from ament_index_python.packages import get_package_share_directory

    ours = Path(get_package_share_directory("cail_robot"), "config", "rviz", "arm.rviz")
    if namespace == "arm":
        return ours
    made = Path(tempfile.mkdtemp(prefix="cail-rviz-"), ours.name)
    made.write_text(ours.read_text(encoding="utf-8").replace("/arm/", f"/{namespace}/"), encoding="utf-8")
    return made
