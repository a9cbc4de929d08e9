"""Which robot, and what its node is started with: the options that `cail record` and `cail deploy` share."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cail_core.cli import Parser, whole_number
from cail_core.errors import BadInput
from cail_robot.recording.recorder import SILENCE_S
from cail_robot.robot import Bringup, RobotSpec, default_robot, find_robot, robot_names, robot_or_unknown
from cail_robot.ros.params import with_params_file
from cail_robot.safety.limits import Limits
from cail_robot.teleop import INPUTS

RUNNING = "running"


def switch(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """An option that stands alone, or is followed by true or false as a launch file has it."""
    parser.add_argument(name, nargs="?", const="true", default="false", choices=("true", "false"), help=text)


def add_robot_arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("--robot", default="", metavar="R",
                   help=f"which robot to bring up: {', '.join(robot_names()) or 'none is installed'}; running: its node is up"
                   " already (default: the simulator)")
    p.add_argument("--robot-type", metavar="NAME", help="with --robot running: which robot it is")
    p.add_argument("--robot-ip", metavar="IP", help="address of the control box, for robots that have one")
    p.add_argument("--robot-config", metavar="FILE", help="settings of the robot, in place of the installed ones")
    p.add_argument("--limits", metavar="FILE", help="limits in place of the robot's own; `limits`: those of real arms")
    p.add_argument("--params-file", metavar="FILE", help="ROS parameter file for the robot's node (docs/ros.md)")
    p.add_argument("--viewer", choices=("true", "false"), default="false", help="show the simulator's window (default: false)")
    p.add_argument("--seed", type=whole_number, default=0, metavar="S", help="of the simulator's scenes (default: 0)")
    p.add_argument("--namespace", default="arm", help="of the robot's topics (default: arm)")
    p.add_argument("--silence", type=float, default=SILENCE_S, metavar="S",
                   help=f"seconds without a message on a needed topic that end a recording (default: {SILENCE_S:g})")


def add_input_arguments(p: argparse.ArgumentParser, text: str, *more: str) -> None:
    """What a person steers with."""
    p.add_argument("--input", choices=(*INPUTS, *more), default=INPUTS[0], help=f"{text} (default: {INPUTS[0]})")
    p.add_argument("--device", metavar="FILE", help="gamepad or spacemouse: /dev/input/event… (default: the first that fits)")
    p.add_argument("--script", type=Path, metavar="FILE", help="with --input scripted: what to do")


def robot_of(args: argparse.Namespace) -> RobotSpec:
    """The robot that is meant; `args.robot` is never empty afterwards."""
    args.robot = args.robot or default_robot()
    if not args.robot:
        raise BadInput(f"expected --robot, one of: {', '.join(robot_names()) or 'none is installed'}")
    if args.robot != RUNNING:
        return find_robot(args.robot)
    if args.robot_type is None:
        raise BadInput(f"expected --robot-type with --robot running, such as {', '.join(robot_names())}")
    return robot_or_unknown(args.robot_type)


@dataclass(frozen=True)
class Chosen:
    """A robot that is brought up in this process, with its options."""

    spec: RobotSpec
    bringup: Bringup
    options: argparse.Namespace
    limits: Limits
    """Those that its node will start with, those of a parameter file included."""

    def nodes(self) -> list[Any]:
        return list(self.bringup.nodes(self.options))

    def about(self) -> list[str]:
        """What it goes by: file, tool, payload, box, where it has them, and speeds."""
        own = self.bringup.about(self.options)
        return [*([own] if own else []), self.limits.text()]


def bring_up(args: argparse.Namespace, spec: RobotSpec) -> Chosen | None:
    """None where its node runs already. What is missing, or what it does not take, is said before anything starts."""
    if args.robot == RUNNING:
        return None
    import cail_robot.ros.runtime  # noqa: F401  says how to add rclpy where it is missing

    given = {
        "task": args.task, "seed": str(args.seed), "limits": args.limits, "robot_ip": args.robot_ip, "config": args.robot_config,
    }  # fmt: skip
    for option, name, others in (
        ("robot_ip", "--robot-ip", "an arm with a control box"),
        ("config", "--robot-config", "a robot with settings of its own"),
        ("limits", "--limits", "a robot whose limits are in a file"),
    ):
        if given[option] is not None and option not in spec.options:
            raise BadInput(f"{name} is for {others}, {spec.name} has none; --params-file changes its limits")
    words = [f"--namespace={args.namespace}"]
    words += [f"--{name.replace('_', '-')}={text}" for name, text in given.items() if text is not None and name in spec.options]
    if args.viewer == "true":
        if "window" not in spec.options:
            raise BadInput(f"--viewer true is for a simulator of ours, {spec.name} has no window")
        words.append("--window")
    bringup = spec.load()
    parser = Parser(prog=f"cail up {spec.name}")
    bringup.add_arguments(parser)
    options = parser.parse_args(words)
    bringup.check(options)
    limits = with_params_file(bringup.limits(options), args.params_file, f"/{args.namespace.strip('/')}/arm_node")
    return Chosen(spec, bringup, options, limits)
