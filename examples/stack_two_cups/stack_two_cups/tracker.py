"""In the place of a lab's tracker: hears where the tool is and says where the cups are, 50 times a second."""

from __future__ import annotations

import argparse
import signal
import time

from stack_two_cups.table import Table
from stack_two_cups.task import StackTwoCups
from stack_two_cups.view import NEEDS

PERIOD_S = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(description="Two cups that an arm on the topics can move.")
    parser.add_argument("--namespace", default="arm", help="of the arm's topics (default: arm)")
    parser.add_argument("--seed", type=int, default=0, help="of where the cups stand (default: 0)")
    args = parser.parse_args()
    from cail_robot.ros.runtime import join

    # isort: split
    from geometry_msgs.msg import PoseStamped

    from cail_robot.ros.arm_client import ArmClient
    from cail_robot.ros.arm_node import stamped_pose
    from cail_robot.ros.runtime import STATE_QOS

    ended: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda n, _: ended.append(n))
    context, arm, _ = join("cups_tracker", args.namespace, ArmClient, needs={}, commands=False)
    cups = {name: arm.create_publisher(PoseStamped, name, STATE_QOS) for name in NEEDS}
    table, seed = Table(StackTwoCups().config, args.seed), args.seed
    while not ended:
        time.sleep(PERIOD_S)
        sample = arm.sample()
        if any(event.get("event") == "started" and "recording" not in event for event in arm.events):
            seed += 1
            table.restart(seed)  # the arm was put back to the start of an episode
        arm.events.clear()
        if sample is None:
            continue
        table.move(sample.pose[:3], sample.gripper)
        stamp = arm.get_clock().now().to_msg()
        for name, pose in table.things().items():
            cups[name].publish(stamped_pose(pose[:3], pose[3:], stamp, arm.frame))
    arm.destroy_node()
    context.try_shutdown()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
