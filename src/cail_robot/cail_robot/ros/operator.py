"""Whoever operates an arm over its topics: commands it and hears all that it says. For benchmarks, tests and scripts."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from cail_robot.arm import ArmError
from cail_robot.ros.runtime import COMMAND_QOS, STATE_QOS, STATUS_QOS, join

REMEMBERED = 2000
"""Messages of each topic."""
PERMITTED = "ENABLED: motion is permitted"


def wait_for(what: Callable[[], Any], text: str, timeout_s: float = 60.0) -> Any:
    """What `what` gives once it is true; ArmError when that takes too long."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.005)
    raise ArmError(f"waited {timeout_s:g} s for {text}")


class Operator:
    """A node that commands an arm and hears all that it says; its own thread spins it. Use as a context.

    With `clear_faults` it sets an arm going again that a watchdog has stopped, as a person would do on a machine that stalls.
    """

    def __init__(self, namespace: str = "/arm", *, clear_faults: bool = False) -> None:
        from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
        from geometry_msgs.msg import PoseStamped, TwistStamped
        from sensor_msgs.msg import JointState
        from std_msgs.msg import Float64
        from std_srvs.srv import SetBool, Trigger

        self._clear_faults = clear_faults
        self.context, self.node, self.executor = join("operator", namespace)
        self.heard: dict[str, deque[Any]] = {}
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
            self.heard[name] = deque(maxlen=REMEMBERED)
            self.node.create_subscription(kind, name, lambda message, name=name: self.heard[name].append(message), qos)
        self.twist_cmd = self.node.create_publisher(TwistStamped, "twist_cmd", COMMAND_QOS)
        self.gripper_cmd = self.node.create_publisher(Float64, "gripper_cmd", COMMAND_QOS)
        self.services = {name: self.node.create_client(Trigger, name) for name in ("stop", "clear_fault", "unlock", "reset")}
        self.services["enable"] = self.node.create_client(SetBool, "enable")
        self._requests = dict.fromkeys(self.services, Trigger.Request) | {"enable": SetBool.Request}
        self._message = TwistStamped
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
        if not client.wait_for_service(30.0):
            raise ArmError(f"no service {client.srv_name}; is the arm's node running (`cail up sim`)?")
        future = client.call_async(self._requests[service](**fields))
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
        if not answer.success and not self._clear_faults:
            raise ArmError(answer.message)
        self.free()

    def free(self) -> None:
        """Send zero commands until motion is permitted."""

        def permitted() -> bool:
            if self._clear_faults and self.state().startswith(("FAULT", "IDLE")):
                self.call("clear_fault")
                self.call("enable", data=True)
            self.send()
            return self.state() == PERMITTED

        wait_for(permitted, "motion to be permitted")

    def drive_until(self, twist: Sequence[float], done: Callable[[], Any], text: str) -> None:
        """Command a twist at 100 Hz until something holds; on a busy machine the arm may hold in between, and is freed again."""
        until = time.monotonic() + 30.0
        while not done():
            if time.monotonic() > until:
                raise ArmError(f"drove 30 s for {text}; {self.state()}")
            if self.state().startswith("HOLDING") or (self._clear_faults and self.state() != PERMITTED):
                self.free()
            self.send(twist)
            time.sleep(0.01)
