"""`cail bench arm-latency`: from `twist_cmd` to the arm, the period of the control loop, and messages lost, over real DDS.

The simulator's node in real time, a commander at 100 Hz and a subscriber to `ee_pose`, each a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from cail_bench.arm_faults import IN_MEMORY, START_S, Child, own_network
from cail_bench.result import save
from cail_core.errors import CailError
from cail_core.over_topics import own_domain
from cail_core.progress import bar, console, table
from cail_robot.arm import Twist
from cail_robot.control.loop_timer import summarise
from cail_robot.control.realtime import ask_for_realtime
from cail_robot.control.state_machine import StatusCode
from cail_robot.ros.operator import Operator, wait_for
from cail_robot.safety.limits import Limits

SECONDS = {"smoke": 5, "short": 60, "full": 600}
MODULE = "cail_bench.arm_latency"


def node_process(result: Path) -> int:
    """The node, which also notes when commands arrive and when they reach the arm."""
    from cail_core.tasks import get_task
    from cail_robot.ros.runtime import run
    from cail_sim.robots.node import SimNode
    from cail_sim.robots.panda_arm import PandaArm
    from cail_sim.tasks.panda import Panda

    arrived: list[float] = []
    reached: list[float] = []
    moments: list[float] = []
    fresh: list[float] = []

    class TimedArm(PandaArm):
        def send_twist(self, twist: Twist) -> None:
            moments.append(time.monotonic())
            if fresh:
                reached.append(time.time() - fresh.pop())
                fresh.clear()
            super().send_twist(twist)

    class TimedNode(SimNode):
        def _on_twist(self, message: Any, info: dict[str, Any]) -> None:
            stamp = message.header.stamp.sec + message.header.stamp.nanosec * 1e-9
            super()._on_twist(message, info)
            arrived.append(time.time() - stamp)
            fresh.append(stamp)

    task = get_task("panda")
    assert isinstance(task, Panda)
    code = run(lambda: [TimedNode(TimedArm(task), Limits())], realtime=True)
    periods = [after - before for before, after in pairwise(moments)][100:]  # without the start
    figures = {"arrived": summarise(arrived), "reached": summarise(reached), "period": summarise(periods)}
    result.write_text(json.dumps({"received": len(arrived), **{name: vars(found) for name, found in figures.items()}}))
    return code


def listener_process(result: Path) -> int:
    """Counts `ee_pose`; the publisher's own numbering shows what is missing."""
    from geometry_msgs.msg import PoseStamped
    from rclpy.node import Node

    from cail_robot.ros.runtime import STATE_QOS, run

    numbers: list[int] = []

    def nodes() -> list[Node]:
        node = Node("listener", namespace="/arm")
        node.create_subscription(
            PoseStamped, "ee_pose", lambda message, info: numbers.append(info["publication_sequence_number"]), STATE_QOS)
        print("ready 0", flush=True)
        return [node]

    code = run(nodes)
    lost = numbers[-1] - numbers[0] + 1 - len(numbers) if numbers else -1
    result.write_text(json.dumps({"heard": len(numbers), "lost": lost}))
    return code


def run(budget: str, out: Path, seed: int = 0) -> Path:
    """In a process of its own, which may leave this one's network."""
    command = [sys.executable, "-m", MODULE, "bench", budget, str(out.resolve())]
    if subprocess.run(command).returncode:
        raise CailError("the benchmark did not finish; its messages are above")
    return out / "arm-latency.csv"


def bench(budget: str, out: Path) -> None:
    os.environ["ROS_DOMAIN_ID"] = "0" if own_network() else own_domain()
    ask_for_realtime()  # a late commander would be measured as a slow way to the arm; all processes inherit it
    seconds = SECONDS[budget]
    with tempfile.TemporaryDirectory(prefix="cail-arm-latency-", dir=IN_MEMORY) as name, Operator() as operator:
        folder = Path(name)
        node = Child(folder, "node", str(folder / "node.json"), module=MODULE)
        listener = Child(folder, "listener", str(folder / "listener.json"), module=MODULE)
        commander = Child(folder, "commander")
        try:
            wait_for(lambda: operator.heard["ee_pose"] and operator.state(), "the arm's node", START_S)
            wait_for(lambda: commander.sent("ready") and listener.sent("ready"), "the commander and the listener", START_S)
            operator.call("enable", data=True)
            commander.ask("zero")
            wait_for(lambda: operator.code() is StatusCode.ENABLED, "motion to be permitted")
            commander.ask("go")
            with bar("commanding at 100 Hz", seconds) as advance:
                for second in range(seconds):
                    time.sleep(1.0)
                    advance(second + 1)
            commander.ask("end")
            commander.process.wait(20)
            for child in (listener, node):
                child.process.terminate()
                child.process.wait(20)
            sent = len(commander.sent("zero")) + len(commander.sent("go"))
            measured = json.loads((folder / "node.json").read_text())
            heard = json.loads((folder / "listener.json").read_text())
        finally:
            for child in (node, listener, commander):
                child.gone()
    row = {"seconds": seconds, "commands_sent": sent, "commands_received": measured["received"],
           "poses_heard": heard["heard"], "poses_lost": heard["lost"]}  # fmt: skip
    shown = table("what", "p50 (ms)", "p99 (ms)", "max (ms)")
    for key, text in (("arrived", "twist_cmd published → in the node"), ("reached", "twist_cmd published → sent to the arm"),
                      ("period", "period of the control loop")):  # fmt: skip
        values = [round(measured[key][name] * 1e3, 2) for name in ("p50", "p99", "max")]
        row |= {f"{key}_{name}_ms": value for name, value in zip(("p50", "p99", "max"), values, strict=True)}
        shown.add_row(text, *map(str, values))
    console().print(shown)
    console().print(f"commands: {sent} sent, {measured['received']} received")
    console().print(f"ee_pose: {heard['heard']} heard, {heard['lost']} lost")
    save(out, "arm-latency", [row], command=f"cail bench arm-latency --budget {budget}", budget=budget)


if __name__ == "__main__":
    role, *given = sys.argv[1:]
    if role == "node":
        sys.exit(node_process(Path(given[0])))
    if role == "listener":
        sys.exit(listener_process(Path(given[0])))
    bench(given[0], Path(given[1]))
