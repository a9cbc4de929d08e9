"""`cail up ur5e` and the executable `ur5e_node`: a UR5e on the arm's topics."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from cail_core.config import find_config
from cail_robot.commands.up import executable
from cail_robot.control.realtime import realtime
from cail_robot.robot import Bringup
from cail_robot.robots import UR5E
from cail_robot.robots.ur5e.arm import UR5eArm, need_rtde, urdf
from cail_robot.robots.ur5e.config import UR5eConfig
from cail_robot.ros.arm_node import ArmNode
from cail_robot.safety.limits import Limits, load_with_limits


class UR5e(Bringup):
    """`cail up ur5e`: a UR5e over RTDE, or `cail ursim`, on the arm's topics."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.set_defaults(config="ur5e")

    def limits(self, args: argparse.Namespace) -> Limits:
        """What the node will start with."""
        return settings(args).limits

    def about(self, args: argparse.Namespace) -> str:
        return settings(args).text(source(args))

    def check(self, args: argparse.Namespace) -> None:
        """What can be known before the node starts."""
        need_rtde()
        settings(args)

    def description(self) -> str:
        return urdf()

    def nodes(self, args: argparse.Namespace) -> list[ArmNode]:
        config = settings(args)
        realtime(config.realtime_priority - 10)  # below the RTDE loop, above everything ordinary
        return [ArmNode(UR5eArm(config, source=source(args)), config.limits, namespace=args.namespace)]


def settings(args: argparse.Namespace) -> UR5eConfig:
    """What the options say of the arm."""
    config = load_with_limits(UR5eConfig, find_config(args.config), args.limits, of="ur5e")
    return dataclasses.replace(config, robot_ip=args.robot_ip) if args.robot_ip else config


def source(args: argparse.Namespace) -> str:
    """Where what the arm goes by comes from."""
    return str(find_config(args.config)) + (f", limits of {find_config(args.limits)}" if args.limits else "")


def main(argv: list[str] | None = None) -> int:
    """The executable `ur5e_node` of `ros2 run` and launch files; what follows --ros-args is ROS's."""
    return executable(UR5E, "ur5e_node", sys.argv[1:] if argv is None else argv)
