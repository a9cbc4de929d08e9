"""The nodes of a recording session: one that commands the arm, one that hears everything it says."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import PoseStamped, Twist, TwistStamped
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import JointState, Joy
from std_msgs.msg import Float64, String
from std_srvs.srv import SetBool, Trigger

from cail_core.recording import cdr
from cail_core.recording.bag import Message
from cail_core.recording.topics import FLOAT, JOINTS, POSE, STATUS, STRING, TOPICS, TWIST
from cail_robot.recording.recorder import Recorder
from cail_robot.ros.arm_link import ArmReport
from cail_robot.ros.runtime import COMMAND_QOS, STATE_QOS, STATUS_QOS, ByHand, taken
from cail_robot.teleop.command import Axes

TYPES = {TWIST: TwistStamped, POSE: PoseStamped, JOINTS: JointState, FLOAT: Float64, STRING: String, STATUS: DiagnosticStatus}
RECORDING_QOS = QoSProfile(depth=200, reliability=ReliabilityPolicy.RELIABLE)
"""Deep, so that a moment of saving or a busy machine loses nothing."""
THINGS = ("object_pose", "obstacle_pose", "target_pose")
"""What a lab's tracker says."""
THINGS_QOS = QoSProfile(depth=200, reliability=ReliabilityPolicy.BEST_EFFORT)
"""Hears trackers of either kind; a reliable subscription would hear nothing of one with sensor QoS."""
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
                TYPES[topic.type], topic.name, _not_called, _heard_by(topic.name), raw=True, callback_group=by_hand)
            for topic in TOPICS.values()
        }  # fmt: skip

    def listen(self) -> None:
        """Take what has come, in the order in which it was sent."""
        came: list[tuple[int, str, bytes, dict[str, Any]]] = []
        for name, topic in self._topics.items():
            came += [(info["source_timestamp"], name, bytes(data), info) for data, info in taken(topic)]
        for sent_ns, name, data, info in sorted(came, key=lambda message: message[0]):
            if name == "ee_pose":
                self._frame = self._frame or cdr.read_stamped(data, 7).frame
            elif name in THINGS and self._frame and (frame := cdr.read_stamped(data, 7).frame) != self._frame:
                self._recorder.warning = f"{name} is in frame '{frame}', expected '{self._frame}': it is not recorded"
                continue
            count = info.get("publication_sequence_number") or 0
            message = Message(name, data, info.get("received_timestamp") or time.time_ns(), count if count < 2**32 else 0)
            self._recorder.hear(message, sent_ns or None)
            if name == "status":
                self._on_status(deserialize_message(data, DiagnosticStatus))

    def _on_status(self, message: Any) -> None:
        period = {pair.key: pair.value for pair in message.values}.get("publish_period_s")
        self._recorder.period_ns = None if period is None else round(float(period) * 1e9)

    def tell(self, event: str) -> None:
        """Say on `episode_event` what happened to the recording."""
        text = {"event": event, "episode": self._recorder.episodes, "recording": True, "time": time.time()}
        self._events.publish(String(data=json.dumps(text)))


def _heard_by(name: str) -> QoSProfile:
    if name in THINGS:
        return THINGS_QOS
    return STATUS_QOS if name == "status" else RECORDING_QOS


def _not_called(data: bytes) -> None:
    """A subscription wants a callback."""


class TeleopNode(Node):  # type: ignore[misc]
    """The arm as the desk sees it."""

    def __init__(self, namespace: str = "/arm", name: str = "teleop", *, commands: bool = True) -> None:
        """Without `commands` it watches: nothing is there that could publish one."""
        super().__init__(name, namespace=namespace)
        self.report = ArmReport()
        self._status = "no word from the arm's node yet", ""
        self._values: dict[str, str] = {}
        self._frame = ""
        self._position: tuple[float, ...] = ()
        self._gripper: float | None = None
        self._answers: queue.SimpleQueue[tuple[str, bool, str]] = queue.SimpleQueue()
        self._twists = self.create_publisher(TwistStamped, "twist_cmd", COMMAND_QOS) if commands else None
        self._grips = self.create_publisher(Float64, "gripper_cmd", COMMAND_QOS) if commands else None
        self._by_hand = ByHand()
        self._heard: dict[str, Any] = {}
        self.subscribe("ee_pose", PoseStamped, STATE_QOS)
        self.subscribe("gripper_state", Float64, STATE_QOS)
        self.subscribe("status", DiagnosticStatus, STATUS_QOS)
        self._enable = self.create_client(SetBool, "enable")
        self._triggers = {name: self.create_client(Trigger, name) for name in ("stop", "clear_fault", "unlock", "reset")}

    def subscribe(self, name: str, kind: Any, qos: QoSProfile) -> None:
        """To what `listen` takes."""
        self._heard[name] = self.create_subscription(kind, name, _not_called, qos, raw=True, callback_group=self._by_hand)

    def listen(self) -> None:
        """Take what the arm has said since the last time. One thread calls this, and everything else but the executor's."""
        for name, subscription in self._heard.items():
            if messages := [bytes(data) for data, _ in taken(subscription)]:
                self.hear(name, messages)
        self.report = ArmReport(*self._status, self._position, self._gripper)

    def hear(self, name: str, messages: list[bytes]) -> None:
        """What came on a topic, oldest first; there is at least one."""
        if name == "ee_pose":
            pose = cdr.read_stamped(messages[-1], 7)
            self._frame, self._position = pose.frame, pose.values[:3]
        elif name == "gripper_state":
            self._gripper = cdr.read_float64(messages[-1])
        elif name == "status":
            self.hear_status(deserialize_message(messages[-1], DiagnosticStatus))

    def hear_status(self, message: Any) -> None:
        self._values = {pair.key: pair.value for pair in message.values}
        self._status = message.message, self._values.get("note") or self._values.get("filter_text", "")

    @property
    def note(self) -> str:
        """What the arm's node says of its gripper, where something is wrong."""
        return self._values.get("note", "")

    @property
    def settings(self) -> str:
        """The file, tool, payload and box that the arm goes by, where it says so."""
        return self._values.get("settings", "")

    @property
    def simulated(self) -> bool | None:
        """What the arm's node says of itself; None until it has said something. One that does not say is a real one."""
        return self._values.get("simulated") == "True" if self._values else None

    @property
    def ready(self) -> bool:
        """The arm is connected and its node answers."""
        self.listen()
        return bool(self._frame) and not self._status[0].startswith("DISCONNECTED") and bool(self._enable.service_is_ready())

    def move(self, twist: Axes) -> None:
        self.listen()
        if not self._frame or self._twists is None:
            return
        message = TwistStamped()
        message.header.stamp, message.header.frame_id = self.get_clock().now().to_msg(), self._frame
        v, w = message.twist.linear, message.twist.angular
        v.x, v.y, v.z, w.x, w.y, w.z = twist
        self._twists.publish(message)

    def grip(self, opening: float) -> None:
        if self._grips is not None:
            self._grips.publish(Float64(data=opening))

    def stop(self) -> None:
        self._call("stop")

    def permit(self) -> None:
        if self._status[0].startswith("FAULT"):
            self._call("clear_fault")
        else:
            self._ask("enable", self._enable, SetBool.Request(data=True))

    def unlock(self) -> None:
        self._call("unlock")

    def disable(self) -> None:
        self._ask("disable", self._enable, SetBool.Request(data=False))

    def reset(self) -> None:
        self._call("reset")

    def answer(self) -> tuple[str, bool, str] | None:
        try:
            return self._answers.get_nowait()
        except queue.Empty:
            return None

    def _call(self, name: str) -> None:
        self._ask(name, self._triggers[name], Trigger.Request())

    def _ask(self, name: str, client: Any, request: Any) -> None:
        if not client.service_is_ready():
            self._answers.put((name, False, f"{name}: the arm's node does not answer; is it up?"))
            return
        future = client.call_async(request)
        future.add_done_callback(lambda done: self._answers.put((name, done.result().success, done.result().message)))


def listen_to_joy(node: Node, topic: str, on_axes: Callable[[list[float], list[int]], None]) -> None:
    """What the drivers of gamepads and of the SpaceMouse publish, axes and buttons."""
    node.create_subscription(Joy, topic, lambda message: on_axes(list(message.axes), list(message.buttons)), DRIVER_QOS)


def listen_to_twist(node: Node, topic: str, on_twist: Callable[[Axes], None]) -> None:
    """What the driver of the SpaceMouse publishes, without its buttons."""

    def take(message: Any) -> None:
        v, w = message.linear, message.angular
        on_twist((v.x, v.y, v.z, w.x, w.y, w.z))

    node.create_subscription(Twist, topic, take, DRIVER_QOS)
