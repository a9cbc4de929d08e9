"""`cail up ur5e` and the executable `ur5e_node`: a UR5e on the arm's topics."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from cail_core.cli import Parser
from cail_core.config import find_config
from cail_core.errors import CailError
from cail_core.launch_words import spoken
from cail_robot.control.realtime import realtime
from cail_robot.robots.ur5e.arm import UR5eArm, need_rtde, urdf
from cail_robot.robots.ur5e.config import UR5eConfig
from cail_robot.ros.arm_node import ArmNode
from cail_robot.ros.runtime import run
from cail_robot.safety.limits import Limits, load_with_limits


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
        if args.robot_ip:
            config = dataclasses.replace(config, robot_ip=args.robot_ip)
        realtime(config.realtime_priority - 10)  # below the RTDE loop, above everything ordinary
        return [ArmNode(UR5eArm(config), config.limits, namespace=args.namespace)]


def add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limits", metavar="FILE", help="limits over those of the settings; `limits`: limits.yaml alone")


def settings(args: argparse.Namespace) -> UR5eConfig:
    """What the options say of the arm."""
    return load_with_limits(UR5eConfig, find_config(args.config), args.limits)


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
