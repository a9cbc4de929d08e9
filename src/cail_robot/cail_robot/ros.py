"""What every node shares: DDS on this machine only unless the user says otherwise, QoS, and a main that ends cleanly."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cail_core.errors import MissingDependency, how_to_add
from cail_robot.scheduling import ask_for_realtime

try:
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.node import Node
    from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
    from rclpy.signals import SignalHandlerOptions
except ImportError:
    raise MissingDependency(f"rclpy is not installed: source ROS 2's setup file, or {how_to_add('ros')}") from None

COMMAND_QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
STATE_QOS = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
STATUS_QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)

def listening_executor() -> Any:
    """For nodes that hear many messages: rclpy's executor by events; the other one asks every subscription before each message.

    Older rclpy has only the other one. By events nothing comes where a callback takes the message's information as well.
    """
    try:
        from rclpy.experimental import EventsExecutor
    except ImportError:
        return SingleThreadedExecutor()
    return EventsExecutor()


RANGE = "ROS_AUTOMATIC_DISCOVERY_RANGE"
PROFILES = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")


def stay_on_this_machine(environment: Any = os.environ) -> None:
    """Before `rclpy.init`: no socket on anything but loopback, unless the user chose a discovery range.

    With LOCALHOST alone Fast DDS still binds 0.0.0.0, so it gets a profile of its own, and SYSTEM_DEFAULT, which keeps
    rmw_fastrtps from adding its transports to that. A user's own profile is left alone.
    """
    if environment.get(RANGE, "LOCALHOST") != "LOCALHOST" or environment.get("ROS_LOCALHOST_ONLY", "0") != "0":
        return
    fast_dds = environment.get("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp").startswith("rmw_fastrtps")
    if fast_dds and not any(name in environment for name in PROFILES):
        environment.update(dict.fromkeys(PROFILES, str(Path(__file__).with_name("loopback.xml"))))
        environment[RANGE] = "SYSTEM_DEFAULT"
    else:
        environment[RANGE] = "LOCALHOST"


def start(arguments: Sequence[str] | None = None) -> None:
    """`rclpy.init` with the default above; signals stay with this process."""
    stay_on_this_machine()
    rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)


def join(name: str, namespace: str) -> tuple[Any, Node, SingleThreadedExecutor]:
    """A node for a program that is no node itself: its own context, and an executor that the caller spins."""
    stay_on_this_machine()
    context = rclpy.Context()
    rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node(name, context=context, namespace=namespace)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    return context, node, executor


def run(
    make_nodes: Callable[[], Sequence[Node]], arguments: Sequence[str] | None = None, *, realtime: bool = False
) -> int:
    """Spin nodes in this process until SIGINT or SIGTERM, however often they come; nodes may have a `finish` method.

    `finish` is called while DDS still works, so that an arm is at rest and says so before the process ends. `realtime`: where an
    arm moves in real time, so that a busy machine does not hold up its loop.
    """
    ended = False

    def end(number: int, frame: object) -> None:
        nonlocal ended
        ended = True

    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    sys.setswitchinterval(0.001)  # the control thread must not wait 5 ms for the interpreter
    if realtime:
        rclpy.logging.get_logger("cail").info(ask_for_realtime())  # before DDS starts its threads
    start(arguments)
    executor, nodes = SingleThreadedExecutor(), []
    try:
        nodes = list(make_nodes())
        for node in nodes:
            executor.add_node(node)
        while not ended and all(getattr(node, "alive", True) for node in nodes):
            executor.spin_once(timeout_sec=0.05)
        return 0 if ended else 1
    finally:
        for node in nodes:
            if hasattr(node, "finish"):
                node.finish()
        executor.shutdown(timeout_sec=0)
        for node in nodes:
            node.destroy_node()
        rclpy.try_shutdown()
        for number, handler in previous.items():
            signal.signal(number, handler)
