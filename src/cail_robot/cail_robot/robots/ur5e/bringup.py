"""`cail up ur5e` and the executable `ur5e_node`: a UR5e on the arm's topics."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from cail_core.cli import Parser
from cail_core.config import find_config, load_config
from cail_core.errors import CailError
from cail_core.launch_words import spoken
from cail_robot.control.realtime import realtime
from cail_robot.robots.ur5e.arm import UR5eArm, need_rtde, urdf
from cail_robot.robots.ur5e.config import UR5eConfig, UR5eLimits
from cail_robot.ros.arm_node import ArmNode
from cail_robot.ros.runtime import run
from cail_robot.safety.limits import Limits


class UR5e:
    """`cail up ur5e`: a UR5e over RTDE, or `cail ursim`, on the arm's topics."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--config", default="ur5e", metavar="FILE", help="settings; default: the installed ur5e.yaml")
        add_limits(parser)
        parser.add_argument("--robot-ip", metavar="ADDRESS", help="in place of the settings' robot_ip")
        parser.add_argument("--namespace", default="arm", help="default: arm")

    @staticmethod
    def limits(args: argparse.Namespace) -> Limits:
        """What the node will start with."""
        return settings(args).limits

    @staticmethod
    def about(args: argparse.Namespace) -> str:
        return settings(args).text(source(args))

    @staticmethod
    def check(args: argparse.Namespace) -> None:
        """What can be known before the node starts."""
        need_rtde()
        settings(args)

    @staticmethod
    def description() -> str:
        return urdf()

    @staticmethod
    def nodes(args: argparse.Namespace) -> list[ArmNode]:
        config = settings(args)
        realtime(config.realtime_priority - 10)  # below the RTDE loop, above everything ordinary
        return [ArmNode(UR5eArm(config, source=source(args)), config.limits, namespace=args.namespace)]


def add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limits", metavar="FILE", help="limits in place of the settings' own, such as `limits`")


def settings(args: argparse.Namespace) -> UR5eConfig:
    """What the options say of the arm."""
    config = load_config(UR5eConfig, find_config(args.config))
    if getattr(args, "robot_ip", None):
        config = dataclasses.replace(config, robot_ip=args.robot_ip)
    return dataclasses.replace(config, limits=load_config(UR5eLimits, find_config(args.limits))) if args.limits else config


def source(args: argparse.Namespace) -> str:
    """Where what the arm goes by comes from."""
    return str(find_config(args.config)) + (f", limits of {find_config(args.limits)}" if args.limits else "")


def main(argv: list[str] | None = None) -> int:
    """The executable `ur5e_node` of `ros2 run` and launch files; what follows --ros-args is ROS's."""
    words = list(sys.argv[1:] if argv is None else argv)
    ours = words[: words.index("--ros-args")] if "--ros-args" in words else words
    parser = Parser(prog="ur5e_node", description="A UR5e on the arm's topics.")
    UR5e.add_arguments(parser)
    args = parser.parse_args(ours)
    try:
        return run(lambda: UR5e.nodes(args), [parser.prog, *words[len(ours) :]], realtime=True)
    except CailError as fault:
        print(spoken(f"ur5e_node: {fault}"), file=sys.stderr)
        return 2
