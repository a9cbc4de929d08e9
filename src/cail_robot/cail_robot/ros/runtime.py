"""What every node shares: DDS on this machine only unless the user says otherwise, QoS, and a main that ends cleanly."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from cail_core.errors import BadInput, MissingDependency, how_to_add, in_workspace
from cail_robot.control.realtime import COMMANDER_PRIORITY, PRIORITY, ask_for_realtime

try:
    import rclpy
    from rclpy.callback_groups import CallbackGroup
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.node import Node
    from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
    from rclpy.signals import SignalHandlerOptions
except ImportError:
    otherwise = "" if in_workspace() else f", or {how_to_add('ros')}"
    raise MissingDependency(f"rclpy is not installed: source ROS 2's setup file{otherwise}") from None

COMMAND_QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
HEARD_COMMAND_QOS = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
"""For who receives commands: one that came while it was held up is still judged, by its stamp, and the newest counts."""
STATE_QOS = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
STATUS_QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
SPIN_S = 0.05
LISTEN_S = 0.004
SWITCH_S = 0.0002
"""So long one thread may keep the interpreter from another that wants it; Python's own 5 ms would hold up a control loop."""


class ByHand(CallbackGroup):  # type: ignore[misc]
    """The group of subscriptions that no executor serves, because a thread asks for `taken` when it is time: an executor's way to
    a callback takes milliseconds.
    """

    def can_execute(self, entity: Any) -> bool:
        return False

    def beginning_execution(self, entity: Any) -> bool:
        return False

    def ending_execution(self, entity: Any) -> None:
        """Nothing was begun."""


def taken(subscription: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """What has come to a subscription, oldest first: messages (bytes where it is raw) and what DDS says of them."""
    with subscription.handle:
        while (found := subscription.handle.take_message(subscription.msg_type, subscription.raw)) is not None:
            yield found


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
    """`rclpy.init` with the default above; signals stay with this process. BadInput where ROS cannot read its arguments."""
    stay_on_this_machine()
    try:
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    except Exception as fault:  # rclpy gives RCLError, RCLInvalidROSArgsError and others, with C's own words of where in it
        words = " ".join(str(fault).split(", at ")[0].split())
        given = " ".join(map(str, arguments or ()))
        raise BadInput(f"ROS does not take {given} ({words}); parameter files: docs/ros.md") from None


def join(
    name: str, namespace: str, make: Callable[..., Node] = rclpy.create_node, **options: Any
) -> tuple[Any, Any, SingleThreadedExecutor]:
    """A node for a program that is no node itself: its own context, and an executor that the caller spins."""
    stay_on_this_machine()
    context = rclpy.Context()
    rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = make(name, context=context, namespace=namespace, **options)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    return context, node, executor


class Nodes:
    """The nodes of a program whose own thread does something else: threads spin them until the block ends."""

    def __init__(self, *, with_arm: bool, params_file: str | None = None) -> None:
        """`with_arm`: it moves in this process, all of which shares the interpreter. `params_file`: for its node."""
        os.environ.setdefault("RCUTILS_LOGGING_USE_STDOUT", "0")
        sys.setswitchinterval(SWITCH_S)
        self.scheduling = ask_for_realtime(PRIORITY if with_arm else COMMANDER_PRIORITY)  # before DDS starts its threads
        params = ["--params-file", params_file] if params_file is not None else []
        start(["cail", "--ros-args", "--log-level", "error", *params])
        self._ending = threading.Event()
        self._nodes: list[Any] = []
        self._threads: list[threading.Thread] = []

    def spin(self, *nodes: Any) -> None:
        """These in one thread; none holds up those of another."""
        executor = SingleThreadedExecutor()
        for node in nodes:
            executor.add_node(node)

        def work() -> None:
            while not self._ending.is_set():
                executor.spin_once(timeout_sec=SPIN_S)
            executor.shutdown(timeout_sec=0)

        self._start(work, *nodes)

    def listen(self, node: Any) -> None:
        """A node that takes what has come itself (`listen`), every few milliseconds."""

        def work() -> None:
            while not self._ending.wait(LISTEN_S):
                node.listen()

        self._start(work, node)

    def _start(self, work: Callable[[], None], *nodes: Any) -> None:
        self._nodes += nodes
        self._threads.append(threading.Thread(target=work, daemon=True))
        self._threads[-1].start()

    @property
    def alive(self) -> bool:
        """Whether every arm's control loop still runs."""
        return all(getattr(node, "alive", True) for node in self._nodes)

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        for node in self._nodes:
            if hasattr(node, "finish"):
                node.finish()
        self._ending.set()
        for thread in self._threads:
            thread.join()
        for node in self._nodes:
            node.destroy_node()
        rclpy.try_shutdown()


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
    sys.setswitchinterval(SWITCH_S)
    if realtime:
        rclpy.logging.get_logger("cail").info(ask_for_realtime())  # before DDS starts its threads
    start(arguments)
    executor, nodes = SingleThreadedExecutor(), []
    try:
        nodes = list(make_nodes())
        if realtime:
            ask_for_realtime()  # once more, for what was loaded meanwhile
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
