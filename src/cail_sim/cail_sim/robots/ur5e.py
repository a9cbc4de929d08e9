"""`cail up ur5e-sim`: the UR5e's node against a control box of this machine, with the table's things on their topics.

The node meets the box through its sockets alone, as it meets a real one. What a lab's tracker would see comes from the box's own
simulation.
"""

from __future__ import annotations

import argparse
import threading
from typing import Any

from geometry_msgs.msg import PoseStamped

from cail_core.errors import CailError
from cail_robot.control.realtime import realtime
from cail_robot.robots.ur5e.arm import UR5eArm, need_rtde
from cail_robot.robots.ur5e.bringup import UR5e, settings, source
from cail_robot.robots.ur5e.config import UR5eConfig
from cail_robot.ros.arm_node import ArmNode, stamped_pose
from cail_robot.ros.runtime import STATE_QOS
from cail_sim.bullet.engine import load_pybullet
from cail_sim.bullet.window import need_display
from cail_sim.ursim.faults import FaultClient
from cail_sim.ursim.process import BoxProcess

TRACKER_S = 0.02


class UR5eSimNode(ArmNode):
    """The UR5e's node, a tracker of the things, and `reset`."""

    def __init__(self, box: BoxProcess, config: UR5eConfig, *, seed: int, namespace: str, source: str = "") -> None:
        self._box, self._seed = box, seed
        super().__init__(UR5eArm(config, simulated=True, source=source), config.limits, namespace=namespace)

    def set_up(self) -> None:
        names = {"object": "object_pose", "obstacle": "obstacle_pose", "target": "target_pose"}
        self._things = {name: self.create_publisher(PoseStamped, topic, STATE_QOS) for name, topic in names.items()}
        self._tracked = threading.Event()
        self._tracker = threading.Thread(target=self._track, name="tracker", daemon=True)
        self._tracker.start()

    def _track(self) -> None:
        try:
            ask = FaultClient(self._box.host)
            while not self._tracked.wait(TRACKER_S):
                stamp = self.get_clock().now().to_msg()
                for name, pose in ask("things")["things"].items():
                    self.send(self._things[name], stamped_pose(pose[:3], pose[3:], stamp, self.control.arm.base_frame))
            ask.close()
        except (OSError, ValueError, CailError):
            if not self._tracked.is_set():
                self.get_logger().error("the control box has gone; its things are not tracked any more")

    def _on_reset(self, request: Any, response: Any) -> Any:
        self._seed += 1
        self._box.fault(f"things {self._seed}")
        response.success, response.message = True, "the things stand at a new start; the arm stays where it is"
        return response

    def finish(self) -> None:
        super().finish()
        self._tracked.set()
        self._tracker.join(1.0)
        self._box.close()


class UR5eSim(UR5e):
    """`cail up ur5e_sim`: a simulated UR5e control box with its table, and the UR5e's node on it."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--host", dest="robot_ip", default=argparse.SUPPRESS, help="the same as --robot-ip")
        parser.set_defaults(robot_ip="127.0.0.1")

    def check(self, args: argparse.Namespace) -> None:
        """What can be known before the node starts."""
        need_rtde()
        load_pybullet()
        if args.window:
            need_display()

    def nodes(self, args: argparse.Namespace) -> list[ArmNode]:
        self.check(args)
        config = settings(args)
        realtime(config.realtime_priority - 10)
        box = BoxProcess("--table", "--seed", str(args.seed), *(["--window"] if args.window else []), host=args.robot_ip)
        return [UR5eSimNode(box, config, seed=args.seed, namespace=args.namespace, source=source(args))]
