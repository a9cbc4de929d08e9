"""`cail up sim` and the executable `sim_node`: the simulated Panda with its table, on the arm's topics."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cail_core.cli import Parser, whole_number
from cail_core.errors import BadInput, CailError
from cail_core.launch_words import spoken
from cail_core.tasks import get_task
from cail_robot.safety.limits import Limits, load_limits
from cail_sim.bullet.description import panda_urdf
from cail_sim.bullet.engine import load_pybullet
from cail_sim.bullet.window import need_display
from cail_sim.tasks.panda import Panda

if TYPE_CHECKING:
    from cail_sim.robots.node import SimNode


class Sim:
    """The simulated Panda with its table, until Ctrl-C."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--task", default="panda", help="panda or panda-carry; default: panda")
        parser.add_argument("--limits", metavar="FILE",
                            help="limits over those of limits.yaml, in place of the simulator's; `limits`: limits.yaml")
        parser.add_argument("--pace", choices=("realtime", "commands"), default="realtime",
                            help="commands: /clock advances one decision for every twist_cmd, as fast as they come")
        parser.add_argument("--seed", type=whole_number, default=0, help="of the episodes that `reset` begins; default: 0")
        parser.add_argument("--namespace", default="arm", help="default: arm")
        parser.add_argument("--window", action="store_true", help="show PyBullet's window")

    @staticmethod
    def limits(args: argparse.Namespace) -> Limits:
        """What the node will start with."""
        limits = _task(args.task).config.limits
        return load_limits(args.limits) if args.limits else limits

    @staticmethod
    def check(args: argparse.Namespace) -> None:
        """What can be known before the node starts."""
        _task(args.task)
        load_pybullet()
        if args.window:
            need_display()

    @staticmethod
    def description() -> str:
        return panda_urdf() if find_spec("pybullet_data") else ""

    @staticmethod
    def nodes(args: argparse.Namespace) -> list[SimNode]:
        from cail_sim.robots.node import SimNode
        from cail_sim.robots.panda_arm import PandaArm

        Sim.check(args)
        task = _task(args.task)
        paced = args.pace == "realtime"
        arm = PandaArm(task, window=args.window)
        return [SimNode(arm, Sim.limits(args), seed=args.seed, paced=paced, namespace=args.namespace)]


def _task(name: str) -> Panda:
    task = get_task(name)
    if not isinstance(task, Panda):
        raise BadInput(f"expected a task of the simulated Panda (panda, panda-carry), given '{name}'")
    return task


def main(argv: list[str] | None = None) -> int:
    """The executable `sim_node` of `ros2 run` and launch files; what follows --ros-args is ROS's."""
    words = list(sys.argv[1:] if argv is None else argv)
    ours = words[: words.index("--ros-args")] if "--ros-args" in words else words
    parser = Parser(prog="sim_node", description="The simulated Panda on the arm's topics.")
    Sim.add_arguments(parser)
    args = parser.parse_args(ours)
    try:
        from cail_robot.ros.runtime import run

        return run(lambda: Sim.nodes(args), [parser.prog, *words[len(ours) :]], realtime=args.pace == "realtime")
    except CailError as fault:
        print(spoken(f"sim_node: {fault}"), file=sys.stderr)
        return 2
