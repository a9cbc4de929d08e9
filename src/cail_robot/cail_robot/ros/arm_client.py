"""`ArmClient`: an arm's node as those meet it who command it or look at it over its topics.

Desk, policy, environment and tests all do so through this one, and `TopicSynchronizer` alone says what a sample is.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import PoseStamped, TwistStamped
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64, String
from std_srvs.srv import SetBool, Trigger

from cail_core.errors import DatasetError
from cail_core.geometry import STILL
from cail_core.recording import cdr
from cail_core.recording.bag import Message
from cail_core.recording.sync import ArmSample, TopicSynchronizer, Vector
from cail_core.recording.topics import FLOAT, JOINTS, POSE, STATUS, STRING, TWIST, topics_with
from cail_robot.arm import ArmError
from cail_robot.control.state_machine import StatusCode
from cail_robot.ros.arm_link import ArmReport
from cail_robot.ros.params import limits_from
from cail_robot.ros.runtime import COMMAND_QOS, STATE_QOS, STATUS_QOS, ByHand, taken
from cail_robot.safety.limits import Limits

TYPES = {TWIST: TwistStamped, POSE: PoseStamped, JOINTS: JointState, FLOAT: Float64, STRING: String, STATUS: DiagnosticStatus}
REPORTED = ("ee_pose", "gripper_state", "status")
"""What everyone hears."""
SAMPLED = ("ee_pose", "twist_executed", "gripper_state")
"""What a sample is made of beside what the task needs."""
REMEMBERED = 100
_QOS = QoSProfile(depth=50, reliability=ReliabilityPolicy.RELIABLE)
THINGS_QOS = QoSProfile(depth=200, reliability=ReliabilityPolicy.BEST_EFFORT)


class ArmClient(Node):  # type: ignore[misc]
    """`listen` takes what has come, in the order in which it was sent, and everything that is asked for does so first. One thread
    calls all of it; another may spin the node for the answers of services.
    """

    def __init__(self, name: str = "client", namespace: str = "/arm", *, needs: Mapping[str, str] | None = None,
                 commands: bool = True, context: Any = None, simulated_only: bool = False) -> None:  # fmt: skip
        """`needs`: what samples hold beside the arm (`TaskSpec.needs`); None: no samples, the arm's report alone. Without
        `commands` it watches: nothing is there that could publish one. `simulated_only`: no lab's tracker is meant to be heard.
        """
        super().__init__(name, namespace=namespace, context=context)
        self.report = ArmReport()
        self.values: dict[str, str] = {}
        """Of the last status."""
        self.events: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
        """Of `episode_event`; heard with samples only."""
        self.needs = (*SAMPLED, *(needs or ()))
        self.frame = ""
        self.stamp = 0.0
        """Of the arm's newest pose: its clock may be a simulator's."""
        self._sync = None if needs is None else TopicSynchronizer(needs)
        self._newest: dict[str, tuple[float, float]] = {}  # topic -> stamp (nan: has none), when it came (monotonic)
        self._executed: deque[tuple[int, Vector]] = deque(maxlen=REMEMBERED)
        self._stamped: deque[tuple[float, Vector]] = deque(maxlen=REMEMBERED)
        self._frames: dict[str, str] = {}
        self._listening = threading.Lock()
        self._looked_ns = 0
        self._sent_before = self._sent_executed = self._sent_gripper = 0
        self._answers: queue.SimpleQueue[tuple[str, bool, str]] = queue.SimpleQueue()
        self._twists = self.create_publisher(TwistStamped, "twist_cmd", COMMAND_QOS) if commands else None
        self._grips = self.create_publisher(Float64, "gripper_cmd", COMMAND_QOS) if commands else None
        self._events = self.create_publisher(String, "episode_event", STATE_QOS) if commands and needs is not None else None
        by_hand, topics = ByHand(), topics_with(needs or {})
        tracked = {} if simulated_only else needs or {}
        heard = REPORTED if needs is None else (*REPORTED, "twist_executed", "episode_event", *needs)
        self.subscriptions_by_name = {
            topic: self.create_subscription(TYPES[topics[topic].type], topic, _not_called, _qos(topic, tracked), raw=True,
                                            callback_group=by_hand)
            for topic in heard
        }  # fmt: skip
        self._enable = self.create_client(SetBool, "enable")
        self._triggers = {name: self.create_client(Trigger, name) for name in ("stop", "clear_fault", "unlock", "reset")}
        self._get = self.create_client(GetParameters, "arm_node/get_parameters")
        self._set = self.create_client(SetParameters, "arm_node/set_parameters")

    # What is heard.

    def listen(self) -> None:
        """Take what the arm has said since the last time."""
        with self._listening:
            self._listen()

    def _listen(self) -> None:
        came = [(info["source_timestamp"], name, bytes(data), info.get("publication_sequence_number") or 0)
                for name, topic in self.subscriptions_by_name.items() for data, info in taken(topic)]  # fmt: skip
        for sent, name, data, count in sorted(came, key=lambda message: message[0]):
            self.hear(name, data, count, sent)

    def hear(self, name: str, data: bytes, count: int, sent_ns: int) -> None:
        """A message, the publisher's count of it, and when it was sent."""
        if name == "status":
            return self._hear_status(deserialize_message(data, DiagnosticStatus))
        if name == "episode_event":
            return self._hear_event(data)
        stamp = float("nan")
        if name == "ee_pose":
            pose = cdr.read_stamped(data, 7)
            self.frame, stamp = pose.frame, pose.stamp_ns * 1e-9
            self.stamp = stamp
            self.report = replace(self.report, position=pose.values[:3])
        elif name == "gripper_state":
            self._sent_gripper = sent_ns
            self.report = replace(self.report, gripper=cdr.read_float64(data))
        elif name == "twist_executed":
            twist = cdr.read_stamped(data, 6)
            stamp = twist.stamp_ns * 1e-9
            self._sent_before, self._sent_executed = self._sent_executed, sent_ns
            if twist.stamp_ns not in (self._looked_ns, self._executed[-1][0] if self._executed else None):  # not said once more
                self._executed.append((twist.stamp_ns, twist.values))
                self._stamped.append((stamp, twist.values))
        elif self.subscriptions_by_name[name].msg_type is not Float64:
            header = cdr.read_stamped(data, 0)
            stamp = header.stamp_ns * 1e-9
            if self.subscriptions_by_name[name].msg_type is PoseStamped:
                self._frames[name] = header.frame
        self._newest[name] = stamp, time.monotonic()
        if self._sync is not None:
            with suppress(DatasetError):  # something that a sample needs was not heard yet
                self._sync.feed(Message(name, data, 0, count), sent_ns or None)
        return None

    def _hear_status(self, message: Any) -> None:
        self.values = {pair.key: pair.value for pair in message.values}
        code = StatusCode.read(self.values)
        warning = self.note or self.values.get("filter_text", "")
        self.report = replace(self.report, state=message.message, warning=warning, code=code)

    def _hear_event(self, data: bytes) -> None:
        try:
            event = json.loads(cdr.read_string(data))
        except ValueError:
            return
        if isinstance(event, dict):
            self.events.append(event)

    @property
    def note(self) -> str:
        """What the arm's node says of its gripper, where something is wrong."""
        return self.values.get("note", "")

    @property
    def settings(self) -> str:
        """The file, tool, payload and box that the arm goes by, where it says so."""
        return self.values.get("settings", "")

    @property
    def simulated(self) -> bool | None:
        """What the arm's node says of itself; None until it has said something. One that does not say is a real one."""
        return self.values.get("simulated") == "True" if self.values else None

    @property
    def wrong_frames(self) -> list[str]:
        """Poses that are not of the arm's base frame: taken as they are, they would lead it somewhere else."""
        return [f"{name} is in frame '{frame}', expected '{self.frame}'" for name, frame in self._frames.items()
                if self.frame and frame != self.frame]  # fmt: skip

    @property
    def permitted(self) -> bool:
        """Enabled, and no zero command is awaited."""
        return self.report.code is StatusCode.ENABLED

    @property
    def state(self) -> str:
        """The state's name, such as ENABLED; empty until the arm has spoken."""
        return self.values.get("state", "")

    @property
    def ready(self) -> bool:
        """The arm is connected, and its services are there."""
        self.listen()
        there = all(client.service_is_ready() for client in (self._enable, *self._triggers.values()))
        return there and bool(self.frame) and self.report.code not in (StatusCode.UNKNOWN, StatusCode.DISCONNECTED)

    def ages(self) -> dict[str, float]:
        """How old the newest message of each needed topic is, by its stamp or its arrival, whichever says older; inf: none."""
        self.listen()
        now, wall = time.monotonic(), self.get_clock().now().nanoseconds * 1e-9
        found = {}
        for name in self.needs:
            stamp, came = self._newest.get(name, (0.0, float("-inf")))
            found[name] = max(now - came, wall - stamp) if stamp == stamp else now - came
        return found

    def sample(self, *, final: bool = False) -> ArmSample | None:
        """The newest sample; None until all that it is made of was heard. `final`: only one that nothing can change any more."""
        self.listen()
        sync = self._sync
        if sync is None or (found := sync.latest()) is None:
            return None
        # The gripper's message has no stamp: that of a period is sent just before the others.
        return found if not final or (sync.is_final(found) and self._sent_gripper > self._sent_before) else None

    def look(self, gripper_cmd: float | None, *, final: bool = False) -> ArmSample | None:
        """The newest sample, with the mean of what was executed since the last look; None until there is one."""
        sample = self.sample(final=final)
        if sample is None:
            return None
        executed = []
        while self._executed and self._executed[0][0] <= sample.stamp_ns:
            executed.append(self._executed.popleft()[1])
        self._looked_ns = sample.stamp_ns
        mean = tuple(sum(axis) / len(executed) for axis in zip(*executed, strict=True)) if executed else STILL
        return replace(sample, executed=mean, gripper_cmd=gripper_cmd)

    def executed(self) -> list[tuple[float, Vector]]:
        """How long ago, by its stamp, each twist was executed that came since the last call, and which, the oldest first."""
        self.listen()
        stamped, wall = [*self._stamped], self.get_clock().now().nanoseconds * 1e-9
        self._stamped.clear()
        return [(wall - stamp, twist) for stamp, twist in stamped]

    # What is asked for.

    def move(self, twist: Sequence[float], *, frame: str = "", stamp: float | None = None) -> None:
        """Command a twist, in the arm's own frame and with the time that it is unless said otherwise."""
        self.listen()
        if not (frame or self.frame) or self._twists is None:
            return
        message = TwistStamped()
        message.header.frame_id = frame or self.frame
        message.header.stamp = self.get_clock().now().to_msg()
        if stamp is not None:
            nanoseconds = round(stamp * 1e9)
            message.header.stamp.sec, message.header.stamp.nanosec = divmod(nanoseconds, 10**9)
        v, w = message.twist.linear, message.twist.angular
        v.x, v.y, v.z, w.x, w.y, w.z = map(float, twist)
        self._twists.publish(message)

    def grip(self, opening: float) -> None:
        if self._grips is not None:
            self._grips.publish(Float64(data=float(opening)))

    def tell(self, text: str) -> None:
        """Say on `episode_event`, and so in the bag, who commands."""
        if self._events is not None:
            self._events.publish(String(data=text))

    def stop(self) -> None:
        self._ask("stop")

    def permit(self) -> None:
        self._ask("clear_fault" if self.report.code in (StatusCode.FAULT, StatusCode.SAFETY_STOP) else "enable")

    def unlock(self) -> None:
        self._ask("unlock")

    def disable(self) -> None:
        self._ask("disable")

    def reset(self) -> None:
        self._ask("reset")

    def answer(self) -> tuple[str, bool, str] | None:
        try:
            return self._answers.get_nowait()
        except queue.Empty:
            return None

    def _ask(self, name: str) -> None:
        if not self.service(name).service_is_ready():
            self._answers.put((name, False, f"{name}: the arm's node does not answer; is it up?"))
            return
        asked = self.call(name, on=name != "disable")
        asked.add_done_callback(lambda done: self._answers.put((name, done.result().success, done.result().message)))

    def service(self, name: str) -> Any:
        return self._enable if name in ("enable", "disable") else self._triggers[name]

    def call(self, name: str, on: bool = True) -> Any:
        """Ask a service of the arm's node; the future of its answer. `on`: for `enable`."""
        request = SetBool.Request(data=on) if name in ("enable", "disable") else Trigger.Request()
        return self.service(name).call_async(request)

    # Parameters of the arm's node.

    def parameters_there(self) -> bool:
        return bool(self._get.service_is_ready() and self._set.service_is_ready())

    def parameters(self, names: Sequence[str]) -> Any:
        """The future of their values; see `number_of`."""
        return self._get.call_async(GetParameters.Request(names=list(names)))

    def set_parameter(self, name: str, value: Any) -> Any:
        return self._set.call_async(SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()]))

    def arm_limits(self, timeout_s: float) -> Limits:
        """The limits that the arm's node has now. Another thread must spin this node."""
        names = [field.name for field in fields(Limits)]
        until = time.monotonic() + timeout_s
        future = None
        while time.monotonic() < until:
            if future is None and self._get.service_is_ready():
                future = self.parameters(names)
            self.listen()
            if future is not None and future.done() and self.simulated is not None:
                found = {name: number_of(answer) for name, answer in zip(names, future.result().values, strict=True)}
                return limits_from(found)
            time.sleep(0.02)
        raise ArmError(f"waited {timeout_s:g} s for {self.get_namespace()}/arm_node; is the arm's node up (`cail up`)?")


def number_of(answer: Any) -> Any:
    """A double, or a list of them."""
    return answer.double_value if answer.type == 3 else list(answer.double_array_value)


def _qos(topic: str, needs: Mapping[str, str]) -> QoSProfile:
    """Of what a lab's tracker says: one that hears either kind, as a reliable subscription does not."""
    return THINGS_QOS if topic in needs else {"status": STATUS_QOS, "episode_event": STATE_QOS}.get(topic, _QOS)


def _not_called(data: bytes) -> None:
    """A subscription wants a callback."""
