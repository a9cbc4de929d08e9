"""`cail up ARM`: the node of an arm in this process, without a launch system. Arms are entry points of the group `cail.arms`."""

from __future__ import annotations

import argparse
from importlib.metadata import entry_points
from typing import Any

from cail_core.cli import Parser
from cail_core.errors import BadInput


def register(commands: Any) -> None:
    p = commands.add_parser(
        "up",
        help="put an arm on ROS 2's topics",
        description="Put an arm on ROS 2's topics, until Ctrl-C. `cail up ARM --help` tells each arm's own options.",
        epilog="What follows --ros-args goes to ROS, such as parameters (-p max_linear_speed:=0.1) and remappings.",
    )
    p.add_argument("arm", metavar="ARM", help=f"one of: {', '.join(arms()) or 'none is installed'}")
    p.add_argument("options", nargs=argparse.REMAINDER, metavar="...", help="the arm's own options")
    p.set_defaults(run=_run)


def arms() -> list[str]:
    return sorted({entry.name for entry in entry_points(group="cail.arms")})


def _run(args: argparse.Namespace) -> int:
    """An entry point is a class with `add_arguments(parser)` and `nodes(args)`, which gives the nodes to run."""
    found = {entry.name: entry for entry in entry_points(group="cail.arms")}
    if args.arm not in found:
        raise BadInput(f"expected an installed arm ({', '.join(found) or 'there is none'}), given '{args.arm}'")
    from cail_robot.ros.runtime import run  # first: it says how to add rclpy where it is missing

    arm = found[args.arm].load()
    ours, ros = args.options, []
    if "--ros-args" in ours:
        split = ours.index("--ros-args")
        ours, ros = ours[:split], ours[split:]
    parser = Parser(prog=f"cail up {args.arm}", description=arm.__doc__)
    arm.add_arguments(parser)
    parser.add_argument("--description", action="store_true", help="print the robot's URDF and start nothing")
    options = parser.parse_args(ours)
    if options.description:
        print(arm.description() if hasattr(arm, "description") else "")
        return 0
    return run(lambda: arm.nodes(options), ["cail", *ros], realtime=getattr(options, "pace", "realtime") == "realtime")
