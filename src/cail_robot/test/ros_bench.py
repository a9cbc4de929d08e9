"""For tests over real DDS: a domain that no other test has, node processes, a commander and a listener."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_held: list[Any] = []


def own_domain() -> str:
    """A ROS_DOMAIN_ID for this process and its children, on this machine nobody else's until the process ends."""
    if not _held:
        for n in range(1, 100):
            handle = open(Path(tempfile.gettempdir(), f"cail-ros-domain-{n}"), "w")  # noqa: SIM115
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.close()
                continue
            _held.append(handle)
            os.environ["ROS_DOMAIN_ID"] = str(n)
            break
    return os.environ["ROS_DOMAIN_ID"]


def environment() -> dict[str, str]:
    """For a process that starts with this project's defaults."""
    own_domain()
    ours = ("ROS_AUTOMATIC_DISCOVERY_RANGE", "FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
    return {name: value for name, value in os.environ.items() if name not in ours} | {"OMP_NUM_THREADS": "1"}


@contextmanager
def process(*command: object) -> Iterator[subprocess.Popen[str]]:
    """A Python process in this environment; killed at the end if it still lives."""
    started = subprocess.Popen(
        [sys.executable, *map(str, command)], env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        yield started
    finally:
        if started.poll() is None:
            started.send_signal(signal.SIGCONT)
            started.kill()
        started.wait()
        assert started.stdout
        started.stdout.close()


def wait_for(what: Callable[[], Any], text: str, timeout_s: float = 20.0) -> Any:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.005)
    raise AssertionError(f"waited {timeout_s:g} s for {text}")


class Operator:
    """A node that commands an arm and hears all that it says; its own thread spins it. Use as a context."""

    def __init__(self, namespace: str = "/arm") -> None:
        own_domain()
        import rclpy
        from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
        from geometry_msgs.msg import PoseStamped, TwistStamped
        from rclpy.executors import SingleThreadedExecutor
        from sensor_msgs.msg import JointState
        from std_msgs.msg import Float64
        from std_srvs.srv import SetBool, Trigger

        from cail_robot.ros import COMMAND_QOS, STATE_QOS, STATUS_QOS, stay_on_this_machine

        stay_on_this_machine()
        self.context = rclpy.Context()
        rclpy.init(context=self.context, signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
        self.node = rclpy.create_node("operator", context=self.context, namespace=namespace)
        self.heard: dict[str, list[Any]] = {}
        topics = {
            "status": (DiagnosticStatus, STATUS_QOS),
            "/diagnostics": (DiagnosticArray, STATE_QOS),
            "ee_pose": (PoseStamped, STATE_QOS),
            "ee_twist": (TwistStamped, STATE_QOS),
            "twist_executed": (TwistStamped, STATE_QOS),
            "joint_states": (JointState, STATE_QOS),
            "gripper_state": (Float64, STATE_QOS),
        }
        for name, (kind, qos) in topics.items():
            into = self.heard[name] = []
            self.node.create_subscription(kind, name, into.append, qos)
        self.twist_cmd = self.node.create_publisher(TwistStamped, "twist_cmd", COMMAND_QOS)
        self.gripper_cmd = self.node.create_publisher(Float64, "gripper_cmd", COMMAND_QOS)
        self.services = {name: self.node.create_client(Trigger, name) for name in ("stop", "clear_fault", "reset")}
        self.services["enable"] = self.node.create_client(SetBool, "enable")
        self._ask = {"enable": SetBool.Request}
        self._trigger, self._message = Trigger.Request, TwistStamped
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._spin, daemon=True)

    def _spin(self) -> None:
        while not self._ending.is_set():
            self.executor.spin_once(timeout_sec=0.05)

    def __enter__(self) -> Operator:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._ending.set()
        self._thread.join()
        self.executor.shutdown()
        self.node.destroy_node()
        self.context.try_shutdown()

    def call(self, service: str, **fields: Any) -> Any:
        client = self.services[service]
        assert client.wait_for_service(20.0), service
        future = client.call_async(self._ask.get(service, self._trigger)(**fields))
        wait_for(future.done, f"the answer of {service}")
        return future.result()

    def send(self, twist: Sequence[float] = (0.0,) * 6, frame: str | None = None, age_s: float = 0.0) -> None:
        """A fresh command in the arm's own frame unless said otherwise."""
        message = self._message()
        stamp = time.time() - age_s
        message.header.stamp.sec, message.header.stamp.nanosec = int(stamp), int(stamp % 1 * 1e9)
        message.header.frame_id = frame or self.heard["ee_pose"][-1].header.frame_id
        v, w = message.twist.linear, message.twist.angular
        v.x, v.y, v.z, w.x, w.y, w.z = map(float, twist)
        self.twist_cmd.publish(message)

    def state(self) -> str:
        return self.heard["status"][-1].message if self.heard["status"] else ""

    def wait_for_state(self, state: str) -> str:
        return str(wait_for(lambda: self.state().startswith(state) and self.state(), f"{state}, is {self.state()}"))

    def ready(self) -> None:
        """The node is there, enabled, and has had its zero command."""
        wait_for(lambda: self.node.count_subscribers("twist_cmd") and self.heard["ee_pose"], "the arm's node")
        answer = self.call("enable", data=True)
        assert answer.success, answer.message
        wait_for(lambda: self.send() or self.state() == "ENABLED: motion is permitted", "motion to be permitted")

    def drive_until(self, twist: Sequence[float], done: Callable[[], Any], text: str) -> None:
        """Command a twist at 100 Hz until something holds; on a busy machine the arm may hold in between, and is freed again."""
        until = time.monotonic() + 30.0
        while not done():
            assert time.monotonic() < until, f"drove 30 s for {text}; {self.state()}"
            if self.state().startswith("HOLDING"):
                wait_for(lambda: self.send() or self.state() == "ENABLED: motion is permitted", "motion to be permitted")
            self.send(twist)
            time.sleep(0.01)
