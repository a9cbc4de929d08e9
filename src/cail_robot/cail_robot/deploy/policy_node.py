"""The node of a deployment: hears what a policy looks at, and is the only one that commands the arm.

Policy and operator command through this one publisher, so a takeover is a matter of one step of one loop.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from geometry_msgs.msg import PoseStamped, TwistStamped
from rcl_interfaces.srv import GetParameters
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import String

from cail_core.recording import cdr
from cail_core.recording.sync import STILL, Moment, Vector
from cail_robot.arm import ArmError
from cail_robot.recording.nodes import THINGS_QOS, TeleopNode
from cail_robot.ros.params import limits_from
from cail_robot.ros.runtime import STATE_QOS
from cail_robot.safety.limits import Limits

ARM_TOPICS = ("ee_pose", "twist_executed", "gripper_state")
_QOS = QoSProfile(depth=50, reliability=ReliabilityPolicy.RELIABLE)


class PolicyNode(TeleopNode):
    """The arm as a deployment sees it. `ages` and `look` take what has come; a thread spins it for the answers of services."""

    def __init__(self, namespace: str, things: Sequence[str], *, commands: bool = True) -> None:
        super().__init__(namespace, "policy", commands=commands)
        self.needs = (*ARM_TOPICS, *things)
        self._newest: dict[str, tuple[Vector, float, float]] = {}  # topic -> numbers, its stamp, when it came (monotonic)
        self._executed: list[Vector] = []
        self._stamped: list[tuple[float, Vector]] = []
        self._events = self.create_publisher(String, "episode_event", STATE_QOS) if commands else None
        self.subscribe("twist_executed", TwistStamped, _QOS)
        for name in things:
            self.subscribe(name, PoseStamped, THINGS_QOS)
        self._frames: dict[str, str] = {}
        self._limits_client = self.create_client(GetParameters, "arm_node/get_parameters")

    def hear(self, name: str, messages: list[bytes]) -> None:
        super().hear(name, messages)
        if name == "gripper_state":
            self._newest[name] = (cdr.read_float64(messages[-1]),), float("nan"), time.monotonic()
        elif name in self.needs:
            numbers = 6 if name == "twist_executed" else 7
            read = [cdr.read_stamped(data, numbers) for data in (messages if name == "twist_executed" else messages[-1:])]
            self._frames[name] = read[-1].frame
            self._newest[name] = read[-1].values, read[-1].stamp_ns * 1e-9, time.monotonic()
            if name == "twist_executed":
                self._executed = [*self._executed, *(one.values for one in read)][-100:]
                self._stamped = [*self._stamped, *((one.stamp_ns * 1e-9, one.values) for one in read)][-100:]

    @property
    def wrong_frames(self) -> list[str]:
        """Poses that are not of the arm's base frame: taken as they are, they would lead it somewhere else."""
        return [f"{name} is in frame '{frame}', expected '{self._frame}'" for name, frame in self._frames.items()
                if self._frame and frame != self._frame]

    @property
    def permitted(self) -> bool:
        """Enabled, and no zero command is awaited."""
        return self._values.get("state") == "ENABLED" and self._values.get("zero_command_awaited") == "False"

    @property
    def ready(self) -> bool:
        """The arm's services are there."""
        return all(client.service_is_ready() for client in (self._enable, *self._triggers.values()))

    @property
    def state(self) -> str:
        return self._values.get("state", "")

    def ages(self) -> dict[str, float]:
        """How old the newest message of each needed topic is, by its stamp or its arrival, whichever says older; inf: none."""
        self.listen()
        now, wall = time.monotonic(), self.get_clock().now().nanoseconds * 1e-9
        found = {}
        for name in self.needs:
            _, stamp, came = self._newest.get(name, ((), 0.0, float("-inf")))
            found[name] = max(now - came, wall - stamp) if stamp == stamp else now - came
        return found

    def look(self, gripper_cmd: float | None) -> Moment | None:
        """The newest of everything, and the mean of what was executed since the last look; None until all have been heard."""
        self.listen()
        newest, executed = self._newest, self._executed
        if len(newest) < len(self.needs):
            return None
        self._executed = []
        mean = tuple(sum(axis) / len(executed) for axis in zip(*executed, strict=True)) if executed else STILL
        pose, stamp, _ = newest["ee_pose"]
        things = {name: newest[name][0] for name in self.needs if name not in ARM_TOPICS}
        return Moment(round(stamp * 1e9), 0, mean, STILL, pose, STILL, (), newest["gripper_state"][0][0], gripper_cmd, things)

    def executed(self) -> list[tuple[float, Vector]]:
        self.listen()
        stamped, self._stamped = self._stamped, []
        wall = self.get_clock().now().nanoseconds * 1e-9
        return [(wall - stamp, twist) for stamp, twist in stamped]

    def tell(self, text: str) -> None:
        """Say on `episode_event`, and so in the bag, who commands."""
        if self._events is not None:
            self._events.publish(String(data=text))

    def arm_limits(self, timeout_s: float) -> Limits:
        """The limits that the arm's node has now. Another thread must spin this node."""
        names = [field.name for field in fields(Limits)]
        until = time.monotonic() + timeout_s
        future = None
        while time.monotonic() < until:
            if future is None and self._limits_client.service_is_ready():
                future = self._limits_client.call_async(GetParameters.Request(names=names))
            self.listen()
            if future is not None and future.done() and self.simulated is not None:
                found = {name: _value(answer) for name, answer in zip(names, future.result().values, strict=True)}
                return limits_from(found)
            time.sleep(0.02)
        raise ArmError(f"waited {timeout_s:g} s for {self.get_namespace()}/arm_node; is the arm's node up (`cail up sim`)?")


def _value(answer: Any) -> Any:
    """A double, or a list of them."""
    return answer.double_value if answer.type == 3 else list(answer.double_array_value)
