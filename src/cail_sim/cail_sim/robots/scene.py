"""The executable `scene_node`: bottle, obstacle, platform and table as markers, and where a policy's trusted demonstrations went.

It hears the poses on the arm's topics, a tracker's or the simulator's, so that RViz and Foxglove show the same for both.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geometry_msgs.msg import Point, PoseStamped
from rclpy.node import Node
from visualization_msgs.msg import Marker, MarkerArray

from cail_core.cli import Parser
from cail_core.errors import BadInput, CailError
from cail_core.launch_words import spoken
from cail_core.policy import load_policy
from cail_core.recording import cdr
from cail_core.tasks import get_task
from cail_robot.ros.runtime import STATE_QOS, STATUS_QOS, ByHand, run, taken
from cail_sim.bullet.world import BRICK, CAP, GLASS, STONE, WOOD
from cail_sim.tasks.panda import Panda

PERIOD_S = 0.1
FORGOTTEN_S = 1
"""A thing that nobody reports any more disappears."""
TRUSTED = (0.2, 0.75, 0.35, 0.6)
Pose = tuple[float, ...]
"""x, y, z and the quaternion x, y, z, w."""
HERE: Pose = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)


class SceneNode(Node):  # type: ignore[misc]
    """Markers on `scene`, ten times a second, and on `trusted`, latched."""

    def __init__(self, task: Panda, namespace: str, trusted: Sequence[Sequence[float]] = ()) -> None:
        super().__init__("scene", namespace=namespace)
        self._task, self._points = task, trusted
        self._frame = ""
        self._poses: dict[str, Pose] = {}
        by_hand = ByHand()  # a hundred poses a second come, and ten are drawn
        self._topics = {
            name: self.create_subscription(PoseStamped, name, lambda _: None, STATE_QOS, raw=True, callback_group=by_hand)
            for name in ("object_pose", "obstacle_pose", "target_pose")
        }
        self._scene = self.create_publisher(MarkerArray, "scene", STATE_QOS)
        self._trusted = self.create_publisher(MarkerArray, "trusted", STATUS_QOS)
        self.create_timer(PERIOD_S, self._draw)

    def _draw(self) -> None:
        for name, topic in self._topics.items():
            for data, _ in taken(topic):
                read = cdr.read_stamped(bytes(data), 7)
                if not self._frame:
                    self._frame = read.frame
                    self._draw_trusted()
                self._poses[name] = read.values
        if self._frame:
            self._scene.publish(MarkerArray(markers=self._markers()))
            self._poses = {}

    def _markers(self) -> list[Marker]:
        task, world = self._task.config.task, self._task.config.world
        x, y, z = world.obstacle_half_m
        table = self._marker("table", 0, Marker.CUBE, (0.4, 0.0, -0.05, *HERE[3:]), (1.1, 1.0, 0.1), WOOD)
        found = [table]
        if bottle := self._poses.get("object_pose"):
            body, neck = world.bottle_body_m, task.bottle_height_m - world.bottle_body_m
            width = 2 * world.bottle_radius_m
            found.append(self._marker("bottle", 0, Marker.CYLINDER, along(bottle, body / 2), (width, width, body), GLASS))
            wide = task.neck_width_m
            found.append(self._marker("bottle", 1, Marker.CYLINDER, along(bottle, body + neck / 2), (wide, wide, neck), CAP))
        if obstacle := self._poses.get("obstacle_pose"):
            found.append(self._marker("obstacle", 0, Marker.CUBE, obstacle, (2 * x, 2 * y, 2 * z), BRICK))
        if target := self._poses.get("target_pose"):
            width, height = 2 * world.platform_radius_m, task.platform_height_m
            found.append(self._marker("platform", 0, Marker.CYLINDER, along(target, -height / 2), (width, width, height), STONE))
        return found

    def _draw_trusted(self) -> None:
        if self._points:
            marker = self._marker("trusted", 0, Marker.SPHERE_LIST, HERE, (0.008,) * 3, TRUSTED)
            marker.lifetime.sec = 0
            marker.points = [Point(x=float(x), y=float(y), z=float(z)) for x, y, z in self._points]
            self._trusted.publish(MarkerArray(markers=[marker]))

    def _marker(self, name: str, number: int, kind: int, pose: Pose, size: Sequence[float], colour: Sequence[float]) -> Marker:
        marker = Marker(ns=name, id=number, type=kind, action=Marker.ADD)
        marker.header.frame_id = self._frame  # without a stamp: wherever the frame is now
        p, o = marker.pose.position, marker.pose.orientation
        p.x, p.y, p.z, o.x, o.y, o.z, o.w = pose
        marker.scale.x, marker.scale.y, marker.scale.z = size
        marker.color.r, marker.color.g, marker.color.b, marker.color.a = colour
        marker.lifetime.sec = FORGOTTEN_S
        return marker


def along(pose: Pose, distance: float) -> Pose:
    """A pose moved along its own z axis."""
    x, y, z, a, b, c, w = pose
    axis = 2 * (a * c + b * w), 2 * (b * c - a * w), 1 - 2 * (a * a + b * b)
    return x + distance * axis[0], y + distance * axis[1], z + distance * axis[2], a, b, c, w


def trusted_points(folder: Path, task: Panda) -> list[list[float]]:
    """Where the tool was in the states that the policy's guard keeps: drawn from the demonstrations by their confidence."""
    guard, view = load_policy(folder).guard, task.spec.view
    if guard is None or view is None or guard.states.shape[1] != task.spec.observation_dim:
        return []
    points: list[list[float]] = task.spec.place(view.position, guard.states).tolist()
    return [point for point in points if all(map(math.isfinite, point))]


def main(argv: list[str] | None = None) -> int:
    """The executable `scene_node`; what follows --ros-args is ROS's."""
    words = list(sys.argv[1:] if argv is None else argv)
    ours = words[: words.index("--ros-args")] if "--ros-args" in words else words
    parser = Parser(prog="scene_node", description="The things on the table as markers, from their poses on the arm's topics.")
    parser.add_argument("--task", default="panda", help="whose things: panda, panda-carry or ur5e; default: panda")
    parser.add_argument("--policy", type=Path, metavar="P", help="shows where its trusted demonstrations went")
    parser.add_argument("--namespace", default="arm", help="of the arm's topics; default: arm")
    args = parser.parse_args(ours)
    try:
        task = _task(args)
        points = trusted_points(args.policy, task) if args.policy is not None else []
        return run(lambda: [SceneNode(task, args.namespace, points)], [parser.prog, *words[len(ours) :]])
    except CailError as fault:
        print(spoken(f"scene_node: {fault}"), file=sys.stderr)
        return 2


def _task(args: argparse.Namespace) -> Any:
    task = get_task(args.task)
    if not isinstance(task, Panda):
        raise BadInput(f"expected a task with a table (panda, panda-carry, ur5e), given '{args.task}'")
    return task
