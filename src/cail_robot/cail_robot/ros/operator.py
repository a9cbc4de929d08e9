"""Whoever operates an arm over its topics and waits for what comes of it. For benchmarks, tests and scripts."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import TwistStamped
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import JointState

from cail_core.geometry import STILL
from cail_robot.arm import ArmError
from cail_robot.control.state_machine import StatusCode
from cail_robot.ros.arm_client import ArmClient
from cail_robot.ros.runtime import LISTEN_S, STATE_QOS, join

MORE = {"/diagnostics": DiagnosticArray, "ee_twist": TwistStamped, "joint_states": JointState}
"""What it hears beside what an `ArmClient` does."""
REMEMBERED = 2000
"""Messages of each topic."""
FAULTS = (StatusCode.FAULT, StatusCode.SAFETY_STOP)


def wait_for(what: Callable[[], Any], text: str, timeout_s: float = 60.0) -> Any:
    """What `what` gives once it is true; ArmError when that takes too long."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.005)
    raise ArmError(f"waited {timeout_s:g} s for {text}")


class _Remembering(ArmClient):
    """Keeps the messages themselves."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, needs={}, **options)
        self.heard: dict[str, deque[Any]] = {topic: deque(maxlen=REMEMBERED) for topic in (*self.subscriptions_by_name, *MORE)}
        for topic, kind in MORE.items():
            self.create_subscription(kind, topic, lambda message, topic=topic: self.heard[topic].append(message), STATE_QOS)

    def hear(self, name: str, data: bytes, count: int, sent_ns: int) -> None:
        super().hear(name, data, count, sent_ns)
        self.heard[name].append(deserialize_message(data, self.subscriptions_by_name[name].msg_type))


class Operator:
    """An `ArmClient` that remembers all that it hears; its own thread spins it. Use as a context.

    With `clear_faults` it sets an arm going again that a watchdog has stopped, as a person would do on a machine that stalls.
    """

    def __init__(self, namespace: str = "/arm", *, clear_faults: bool = False) -> None:
        self._clear_faults = clear_faults
        self.context, self.node, self.executor = join("operator", namespace, _Remembering)
        self.heard: dict[str, deque[Any]] = self.node.heard
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._spin, daemon=True)

    def _spin(self) -> None:
        while not self._ending.is_set():
            self.node.listen()
            self.executor.spin_once(timeout_sec=LISTEN_S)

    def __enter__(self) -> Operator:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._ending.set()
        self._thread.join()
        self.executor.shutdown()
        self.node.destroy_node()
        self.context.try_shutdown()

    def call(self, service: str, data: bool = True) -> Any:
        client = self.node.service(service)
        if not client.wait_for_service(30.0):
            raise ArmError(f"no service {client.srv_name}; is the arm's node running (`cail up`)?")
        future = self.node.call(service, data)
        wait_for(future.done, f"the answer of {service}")
        return future.result()

    def send(self, twist: Sequence[float] = STILL, frame: str | None = None, age_s: float = 0.0) -> None:
        """A fresh command in the arm's own frame unless said otherwise."""
        self.node.move(twist, frame=frame or self.heard["ee_pose"][-1].header.frame_id, stamp=time.time() - age_s)

    def grip(self, opening: float) -> None:
        self.node.grip(opening)

    def state(self) -> str:
        """What the arm says of itself, for people."""
        return self.heard["status"][-1].message if self.heard["status"] else ""

    def code(self) -> StatusCode:
        values = self.heard["status"][-1].values if self.heard["status"] else ()
        return StatusCode.read({pair.key: pair.value for pair in values})

    def wait_for_state(self, state: str) -> str:
        return str(wait_for(lambda: self.state().startswith(state) and self.state(), f"{state}, is {self.state()}"))

    def ready(self) -> None:
        """The node is there, enabled, and has had its zero command."""
        wait_for(lambda: self.node.count_subscribers("twist_cmd") and self.heard["ee_pose"], "the arm's node")
        answer = self.call("enable")
        if not answer.success and not self._clear_faults:
            raise ArmError(answer.message)
        self.free()

    def free(self) -> None:
        """Send zero commands until motion is permitted."""

        def permitted() -> bool:
            if self._clear_faults and self.code() in (*FAULTS, StatusCode.IDLE):
                self.call("clear_fault")
                self.call("enable")
            self.send()
            return self.code() is StatusCode.ENABLED

        wait_for(permitted, "motion to be permitted")

    def drive_until(self, twist: Sequence[float], done: Callable[[], Any], text: str) -> None:
        """Command a twist at 100 Hz until something holds; on a busy machine the arm may hold in between, and is freed again."""
        until = time.monotonic() + 30.0
        while not done():
            if time.monotonic() > until:
                raise ArmError(f"drove 30 s for {text}; {self.state()}")
            if self.code() is StatusCode.HOLDING or (self._clear_faults and self.code() is not StatusCode.ENABLED):
                self.free()
            self.send(twist)
            time.sleep(0.01)
