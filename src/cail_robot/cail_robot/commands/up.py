"""`cail up ROBOT`: the node of a robot in this process, without a launch system."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from cail_core.cli import Parser
from cail_core.errors import CailError
from cail_core.launch_words import spoken
from cail_robot.robot import RobotSpec, find_robot, robot_names


def register(commands: Any) -> None:
    p = commands.add_parser(
        "up",
        help="put an arm on ROS 2's topics",
        description="Put an arm on ROS 2's topics, until Ctrl-C. `cail up ROBOT --help` tells each robot's own options.",
        epilog="What follows --ros-args goes to ROS, such as parameters (-p max_linear_speed:=0.1) and remappings.",
    )
    p.add_argument("arm", metavar="ROBOT", help=f"one of: {', '.join(robot_names()) or 'none is installed'}")
    p.add_argument("options", nargs=argparse.REMAINDER, metavar="...", help="the robot's own options")
    p.set_defaults(run=lambda args: start(find_robot(args.arm), f"cail up {args.arm}", args.options))


def start(spec: RobotSpec, program: str, words: Sequence[str]) -> int:
    """Run the robot's nodes with these options until they end; what follows --ros-args is ROS's."""
    import cail_robot.ros.runtime as ros  # first: it says how to add rclpy where it is missing

    bringup = spec.load()
    split = words.index("--ros-args") if "--ros-args" in words else len(words)
    parser = Parser(prog=program, description=type(bringup).__doc__)
    bringup.add_arguments(parser)
    parser.add_argument("--description", action="store_true", help="print the robot's URDF and start nothing")
    options = parser.parse_args(list(words[:split]))
    if options.description:
        print(bringup.description())
        return 0
    return ros.run(lambda: bringup.nodes(options), ["cail", *words[split:]], realtime=bringup.in_real_time(options))


def executable(spec: RobotSpec, program: str, words: Sequence[str]) -> int:
    """The same as a program of its own, for `ros2 run` and launch files."""
    try:
        return start(spec, program, words)
    except CailError as fault:
        print(spoken(f"{program}: {fault}"), file=sys.stderr)
        return 2
