"""The node that hears everything an arm says, and what the drivers of input devices publish."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import Twist
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Joy
from std_msgs.msg import String

from cail_core.recording import cdr
from cail_core.recording.bag import Message
from cail_core.recording.topics import POSE
from cail_robot.recording.recorder import Recorder
from cail_robot.ros.arm_client import THINGS_QOS, TYPES
from cail_robot.ros.runtime import STATE_QOS, STATUS_QOS, ByHand, taken
from cail_robot.teleop.command import Axes

RECORDING_QOS = QoSProfile(depth=200, reliability=ReliabilityPolicy.RELIABLE)
"""Deep, so that a moment of saving or a busy machine loses nothing."""
DRIVER_QOS = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT, durability=DurabilityPolicy.VOLATILE)


class RecorderNode(Node):  # type: ignore[misc]
    """Hands every message of the arm's topics to the recorder, as the bytes that came.

    A thousand come in a second. An executor waits for each of them anew, which costs more than all that is done with it; so
    `listen` takes whatever has come.
    """

    def __init__(self, recorder: Recorder, namespace: str = "/arm") -> None:
        super().__init__("recorder", namespace=namespace)
        self._recorder = recorder
        self._frame = ""
        self._events = self.create_publisher(String, "episode_event", STATE_QOS)
        by_hand = ByHand()
        self._topics = {
            topic.name: self.create_subscription(
                TYPES[topic.type], topic.name, _not_called, _heard_by(topic.name, recorder.needs), raw=True,
                callback_group=by_hand)
            for topic in recorder.topics.values()
        }  # fmt: skip

    def listen(self) -> None:
        """Take what has come, in the order in which it was sent."""
        came: list[tuple[int, str, bytes, dict[str, Any]]] = []
        for name, topic in self._topics.items():
            came += [(info["source_timestamp"], name, bytes(data), info) for data, info in taken(topic)]
        for sent_ns, name, data, info in sorted(came, key=lambda message: message[0]):
            if name == "ee_pose":
                self._frame = self._frame or cdr.read_stamped(data, 7).frame
            elif frame := self._other_frame(name, data):
                self._recorder.warning = f"{name} is in frame '{frame}', expected '{self._frame}': it is not recorded"
                continue
            count = info.get("publication_sequence_number") or 0
            message = Message(name, data, info.get("received_timestamp") or time.time_ns(), count if count < 2**32 else 0)
            self._recorder.hear(message, sent_ns or None)
            if name == "status":
                self._on_status(deserialize_message(data, DiagnosticStatus))

    def _other_frame(self, name: str, data: bytes) -> str:
        """Of a pose that is not of the arm's base frame."""
        if not self._frame or self._recorder.needs.get(name) != POSE:
            return ""
        frame = cdr.read_stamped(data, 7).frame
        return "" if frame == self._frame else frame or "(none)"

    def _on_status(self, message: Any) -> None:
        period = {pair.key: pair.value for pair in message.values}.get("publish_period_s")
        self._recorder.period_ns = None if period is None else round(float(period) * 1e9)

    def tell(self, event: str) -> None:
        """Say on `episode_event` what happened to the recording."""
        text = {"event": event, "episode": self._recorder.episodes, "recording": True, "time": time.time()}
        self._events.publish(String(data=json.dumps(text)))


def _heard_by(name: str, needs: Mapping[str, str]) -> QoSProfile:
    if name in needs:
        return THINGS_QOS
    return STATUS_QOS if name == "status" else RECORDING_QOS


def _not_called(data: bytes) -> None:
    """A subscription wants a callback."""


def listen_to_joy(node: Node, topic: str, on_axes: Callable[[list[float], list[int]], None]) -> None:
    """What the drivers of gamepads and of the SpaceMouse publish, axes and buttons."""
    node.create_subscription(Joy, topic, lambda message: on_axes(list(message.axes), list(message.buttons)), DRIVER_QOS)


def listen_to_twist(node: Node, topic: str, on_twist: Callable[[Axes], None]) -> None:
    """What the driver of the SpaceMouse publishes, without its buttons."""

    def take(message: Any) -> None:
        v, w = message.linear, message.angular
        on_twist((v.x, v.y, v.z, w.x, w.y, w.z))

    node.create_subscription(Twist, topic, take, DRIVER_QOS)
