"""`cail up sim` and the executable `sim_node`: the simulated Panda with its table, on the arm's topics."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cail_core.errors import BadInput
from cail_core.tasks import get_task
from cail_robot.commands.up import executable
from cail_robot.robot import Bringup
from cail_robot.safety.limits import Limits, load_limits
from cail_sim.bullet.description import panda_urdf
from cail_sim.bullet.engine import load_pybullet
from cail_sim.bullet.window import need_display
from cail_sim.robots import PANDA_SIM
from cail_sim.tasks.panda import Panda

if TYPE_CHECKING:
    from cail_sim.robots.node import SimNode


class Sim(Bringup):
    """The simulated Panda with its table, until Ctrl-C."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.set_defaults(task=self.spec.task)
        parser.add_argument("--pace", choices=("realtime", "commands"), default="realtime",
                            help="commands: /clock advances one decision for every twist_cmd, as fast as they come")

    def limits(self, args: argparse.Namespace) -> Limits:
        """What the node will start with."""
        limits = _task(args.task).config.limits
        return load_limits(args.limits) if args.limits else limits

    def check(self, args: argparse.Namespace) -> None:
        """What can be known before the node starts."""
        _task(args.task)
        load_pybullet()
        if args.window:
            need_display()

    def description(self) -> str:
        return panda_urdf() if find_spec("pybullet_data") else ""

    def in_real_time(self, args: argparse.Namespace) -> bool:
        return bool(args.pace == "realtime")

    def nodes(self, args: argparse.Namespace) -> list[SimNode]:
        from cail_sim.robots.node import SimNode
        from cail_sim.robots.panda_arm import PandaArm

        self.check(args)
        arm = PandaArm(_task(args.task), window=args.window)
        paced = self.in_real_time(args)
        return [SimNode(arm, self.limits(args), seed=args.seed, paced=paced, namespace=args.namespace)]


def _task(name: str) -> Panda:
    task = get_task(name)
    if not isinstance(task, Panda):
        raise BadInput(f"expected a task of the simulated Panda (panda, panda-carry), given '{name}'")
    return task


def main(argv: list[str] | None = None) -> int:
    """The executable `sim_node` of `ros2 run` and launch files; what follows --ros-args is ROS's."""
    return executable(PANDA_SIM, "sim_node", sys.argv[1:] if argv is None else argv)
