"""`ArmNode`: any arm on the topics of docs/ros.md, behind the safety filter."""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError
from dataclasses import asdict, fields
from typing import Any

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from geometry_msgs.msg import PoseStamped, TwistStamped
from rcl_interfaces.msg import FloatingPointRange, ParameterDescriptor, SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64, String
from std_srvs.srv import SetBool, Trigger

from cail_core.errors import ConfigError, listed
from cail_robot.arm import STILL, Arm, ArmState, Configured, Drawn, Restarting, Twist
from cail_robot.control.loop_timer import Pace
from cail_robot.control.safety_log import SafetyLog
from cail_robot.control.state_machine import ArmControl, Cycle, State, Status
from cail_robot.ros.params import LIMITS, flat, limits_with, nearest, number
from cail_robot.ros.rivals import Rivals
from cail_robot.ros.runtime import COMMAND_QOS, HEARD_COMMAND_QOS, STATE_QOS, STATUS_QOS, ByHand, taken
from cail_robot.safety.filter import CLIPPED
from cail_robot.safety.limits import Limits

LEVELS = {
    State.DISCONNECTED: DiagnosticStatus.ERROR,
    State.IDLE: DiagnosticStatus.OK,
    State.ENABLED: DiagnosticStatus.OK,
    State.HOLDING: DiagnosticStatus.WARN,
    State.FAULT: DiagnosticStatus.ERROR,
}
ROS_PARAMETERS = ("use_sim_time", "start_type_description_service", "qos_overrides.")
"""Of every node; rclpy's own."""
LOOK_AROUND_S = 0.1
"""How often the node looks for another arm of its name, and for a second commander where DDS does not number messages."""
FINISH_S = 0.4
"""How long a moving arm may take to come to rest when the node ends."""


class ArmNode(Node):  # type: ignore[misc]
    """Topics and services around an `ArmControl`; a thread of its own runs the control loop, paced by sleeping."""

    def __init__(self, arm: Arm, limits: Limits, *, namespace: str = "arm", name: str = "arm_node", paced: bool = True) -> None:
        super().__init__(name, namespace=namespace, automatically_declare_parameters_from_overrides=True)
        self._paced = paced
        self._given = self._take_given(paced)
        self._published = self._unpublished = 0
        self._unnumbered = False
        self._logged = ""
        self._episodes, self._events = 0, None
        configured = arm if isinstance(arm, Configured) else None
        self._limit_faults: Callable[[Limits], list[str]] = configured.limit_faults if configured else lambda limits: []
        self._settings = configured.settings_text if configured else ""
        limits = self._declare_limits(limits)
        rate = self._declare("publish_rate_hz", 100.0, "most messages per second on each topic of measurements", 1.0, 1000.0,
                             read_only=True)  # fmt: skip
        self._describe(arm)
        self._period_s, self._every = arm.period, max(1, round(1 / (rate * arm.period)))
        self._status = self.create_publisher(DiagnosticStatus, "status", STATUS_QOS)
        self._simulated = bool(getattr(arm, "simulated", False))
        self._rivals = Rivals(self)
        self._rivals.refuse()
        self._log = None if self._simulated else SafetyLog(arm.name, getattr(arm, "settings_text", ""))
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", STATE_QOS)
        self._pose = self.create_publisher(PoseStamped, "ee_pose", STATE_QOS)
        self._twist = self.create_publisher(TwistStamped, "ee_twist", STATE_QOS)
        self._executed = self.create_publisher(TwistStamped, "twist_executed", STATE_QOS)
        self._joints = self.create_publisher(JointState, "joint_states", STATE_QOS)
        self._gripper = self.create_publisher(Float64, "gripper_state", STATE_QOS)
        self.control = ArmControl(arm, limits, self.seconds, self._say, command_times_out=paced)
        self.add_on_set_parameters_callback(self._set_parameters)

        # In real time the control loop takes the commands itself, at the beginning of a period. Where time waits for commands an
        # executor wakes it; of two that wait it takes the one subscribed to first. Either way the gripper acts before the move.
        group = ByHand() if paced else None
        self._grips = self.create_subscription(Float64, "gripper_cmd", self._on_gripper, COMMAND_QOS, callback_group=group)
        self._twists = self.create_subscription(
            TwistStamped, "twist_cmd", self._on_twist, HEARD_COMMAND_QOS, callback_group=group
        )
        self.create_service(SetBool, "enable", self._on_enable)
        self.create_service(Trigger, "stop", self._on_stop)
        self.create_service(Trigger, "clear_fault", self._on_clear)
        self.create_service(Trigger, "unlock", self._on_unlock)
        self.create_service(Trigger, "reset", self._on_reset)
        self.create_timer(1.0, self._diagnose)
        self.create_timer(LOOK_AROUND_S, self._look_around)
        self.set_up()
        for name in self._given:
            self.get_logger().warning(f"there is no parameter {name}, so it changes nothing; {nearest(name)}")

        self.alive = True
        self._ending = threading.Event()
        self._heard = threading.Semaphore(0)
        self._pace = Pace(arm.period)
        self._cycles = 0
        self._received_before = 0
        if self._settings:
            self.get_logger().info(self._settings)
        self._say(self.control.status)
        self._thread = threading.Thread(target=self._loop, name="control", daemon=True)
        self._thread.start()

    periods_per_command = 1
    """Where time waits for commands: how long each of them acts."""

    def _describe(self, arm: Arm) -> None:
        """The robot's URDF, where the arm has one: for RViz, robot_state_publisher and whoever needs the names of its frames."""
        drawn = arm if isinstance(arm, Drawn) else None
        urdf = drawn.description if drawn else ""
        self._declare("robot_description", urdf, "the robot as URDF; also on the topic robot_description", read_only=True)
        if urdf:
            self._description = self.create_publisher(String, "robot_description", STATUS_QOS)
            self._description.publish(String(data=urdf))
        self._fingers = drawn.finger_joints if drawn else ()
        self._finger_travel_m = drawn.finger_travel_m if drawn else 0.0

    def set_up(self) -> None:
        """What a node for a particular arm adds, before its control loop starts."""

    # Time and the control loop.

    def seconds(self) -> float:
        """The clock of the stamps."""
        return float(self.get_clock().now().nanoseconds) * 1e-9

    def _loop(self) -> None:
        try:
            while not self._ending.is_set():
                if self._paced:
                    self._take_commands()
                    self._period()
                    self._pace.wait()
                elif self._heard.acquire(timeout=0.01) or self.control.state is State.DISCONNECTED:
                    for _ in range(self.periods_per_command):
                        self._period()
                else:
                    self.wait_for_command()
            self._come_to_rest()
        except Exception:  # a fault of this program: the arm must not be left moving, and the process must not look alive
            self.get_logger().fatal(f"the control loop ended:\n{traceback.format_exc()}")
            self.alive = False
        finally:
            self.control.close()

    def _take_commands(self) -> None:
        for message, _ in taken(self._grips):
            self._on_gripper(message)
        for message, info in taken(self._twists):
            self._on_twist(message, info)

    def _period(self) -> None:
        cycle = self.control.cycle()
        if cycle is None:
            return
        self._cycles += 1
        self.after(cycle, publish=self._cycles % self._every == 0)

    def wait_for_command(self) -> None:
        """Where time waits for commands: what goes on meanwhile."""
        self.control.run_errands()

    def _come_to_rest(self) -> None:
        self.control.brake()
        until = time.monotonic() + FINISH_S
        while time.monotonic() < until:
            cycle = self.control.cycle()
            if cycle is None or cycle.outcome.twist == STILL:
                break
            self._pace.wait()

    def finish(self) -> None:
        """Bring the arm to rest and let go of it; DDS still works, so the last status says so."""
        self._ending.set()
        self._thread.join(FINISH_S + 0.4)

    # What goes out.

    def after(self, cycle: Cycle, publish: bool) -> None:
        """After each control period."""
        if publish:
            self.publish_state(cycle.state, self.get_clock().now().to_msg(), cycle.executed)

    def publish_state(self, state: ArmState, stamp: Any, executed: Twist) -> None:
        """A state and the twist that led to it, under one stamp. The gripper, which has no stamp, goes first."""
        frame = self.control.arm.base_frame
        self.send(self._gripper, Float64(data=state.gripper))
        fingers = [state.gripper * self._finger_travel_m] * len(self._fingers)
        joints = JointState(name=[*self.control.arm.joint_names, *self._fingers], position=[*state.q, *fingers])
        joints.velocity = [*state.qdot, *[0.0] * len(fingers)]
        joints.header.stamp = stamp
        self.send(self._joints, joints)
        self.send(self._executed, stamped_twist(executed, stamp, frame))
        self.send(self._twist, stamped_twist(state.twist, stamp, frame))
        self.send(self._pose, stamped_pose(state.position, state.orientation, stamp, frame))

    def send(self, publisher: Any, message: Any) -> None:
        """Publish from the control thread; what DDS does must not end the loop."""
        try:
            publisher.publish(message)
            self._published += 1
        except Exception as fault:  # rclpy raises its own RCLError and others; the arm goes on and the count shows it
            if not self._unpublished:
                self.get_logger().error(f"cannot publish: {fault}")
            self._unpublished += 1

    def _look_around(self) -> None:
        """An arm that shares its name moves by commands meant for another one: both stop, whichever came first."""
        if found := self._rivals.hear():
            self.control.stop(f"another arm is on {self.get_namespace()}: {found}; end one of the two nodes")
        if self._unnumbered and self.count_publishers("twist_cmd") > 1:
            self.control.crowded("two publishers of commands are there, and this middleware does not tell them apart; end one")

    def _say(self, status: Status) -> None:
        message = DiagnosticStatus(level=LEVELS[status.state], name=f"{self.get_namespace()}: arm")
        message.message = f"{status.state.value}: {status.reason}"
        message.hardware_id = self.control.arm.name if hasattr(self, "control") else ""
        message.values = pairs(
            code=int(status.code),
            state=status.state.value,
            reason=status.reason,
            filter=status.verdict.value,
            filter_text=status.text,
            note=status.note,
            zero_command_awaited=status.needs_zero,
            publish_period_s=self._every * self._period_s,
            simulated=self._simulated,
            instance=self._rivals.instance,
            limits=self.control.filter.limits.text() if hasattr(self, "control") else "",
            settings=self._settings,
        )
        self.send(self._status, message)
        if message.message != self._logged:
            self._logged = message.message
            if self._log is not None and hasattr(self, "control"):
                self._log.write(status.state.value, status.reason, asdict(self.control.filter.limits))
            self.get_logger().info(message.message)

    def _diagnose(self) -> None:
        control, periods = self.control, self._pace.take()
        received, self._received_before = control.received - self._received_before, control.received
        counts = control.filter.counts
        status = control.status
        message = DiagnosticStatus(level=LEVELS[status.state], name=f"{self.get_namespace()}: control loop")
        message.message = f"{status.state.value}: {status.reason}"
        message.hardware_id = control.arm.name
        message.values = pairs(
            link="up" if control.state is not State.DISCONNECTED else "down",
            loop_rate_hz=periods.count,
            period_ms=f"{control.arm.period * 1e3:g}",
            period_p50_ms=f"{periods.p50 * 1e3:.3f}",
            period_p99_ms=f"{periods.p99 * 1e3:.3f}",
            period_max_ms=f"{periods.max * 1e3:.3f}",
            overruns=periods.overruns,
            commands_hz=received,
            commands_received=control.received,
            commands_refused=sum(control.refusals.values()),
            commands_awaiting_zero=control.not_moved_for,
            commands_clipped=sum(count for verdict, count in counts.items() if verdict in CLIPPED),
            messages_published=self._published,
            messages_not_published=self._unpublished,
            **{f"refused_{verdict.value.replace(' ', '_')}": count for verdict, count in control.refusals.items()},
            **{f"filter_{verdict.value.replace(' ', '_')}": count for verdict, count in counts.items()},
        )
        array = DiagnosticArray(status=[message])
        array.header.stamp = stamp_of(self.seconds())
        self.send(self._diagnostics, array)

    # What comes in.

    def _on_twist(self, message: Any, info: dict[str, Any]) -> None:
        v, w, header = message.twist.linear, message.twist.angular, message.header
        stamp = header.stamp.sec + header.stamp.nanosec * 1e-9
        number = info.get("publication_sequence_number")
        self._unnumbered = not number  # as of Cyclone DDS
        self.control.command((v.x, v.y, v.z, w.x, w.y, w.z), header.frame_id, stamp, number or None)
        if not self._paced:
            self._heard.release()

    def _on_gripper(self, message: Any) -> None:
        self.control.grip(message.data)

    def _on_enable(self, request: Any, response: Any) -> Any:
        if request.data:
            self._look_around()
        if request.data and self._rivals.still_there:
            response.success, response.message = False, f"another arm is on {self.get_namespace()}: {self._rivals.found}; end one"
        else:
            response.success, response.message = self.control.enable(request.data)
        return response

    def _on_stop(self, request: Any, response: Any) -> Any:
        self.control.stop("stop was called")
        response.success, response.message = True, f"{self.control.state.value}: {self.control.status.reason}"
        return response

    def _on_clear(self, request: Any, response: Any) -> Any:
        response.success, response.message = self.control.clear_fault()
        return response

    def _on_unlock(self, request: Any, response: Any) -> Any:
        response.success, response.message = self.control.clear_fault(unlock=True)
        return response

    def _on_reset(self, request: Any, response: Any) -> Any:
        """A real scene is put back by a person; an arm that can put itself back does, and says so on `episode_event`."""
        arm = self.control.arm
        if not isinstance(arm, Restarting):
            response.success = False
            response.message = "put the task back to its start by hand; this arm cannot"
            return response

        def put_back() -> None:
            arm.restart()
            self.control.start_anew()

        try:
            self.control.in_loop(put_back)
        except TimeoutError:
            response.success, response.message = False, f"{self.control.state.value}: the arm does not answer; try again"
            return response
        self._episodes += 1
        self.tell("started", self._episodes)
        response.success, response.message = True, f"the arm is back at its start: {self._episodes} episodes so far"
        return response

    def tell(self, event: str, episode: int) -> None:
        """Say on `episode_event` what became of an episode."""
        if self._events is None:
            self._events = self.create_publisher(String, "episode_event", STATE_QOS)
        text = json.dumps({"event": event, "episode": episode, "time": self.seconds()})
        self.send(self._events, String(data=text))

    # Parameters: every limit, with its type, range and description.

    def _take_given(self, paced: bool) -> dict[str, Any]:
        """What parameter files and -p say to this node, for `_declare` to judge: rclpy would stop at the first fault."""
        if paced and self.get_parameter("use_sim_time").value:
            raise ConfigError("use_sim_time: an arm in real time has the clock of this machine; leave it out, or start the "
                              "simulator with --pace commands, which publishes /clock")  # fmt: skip
        names = [name for name in self.get_parameters_by_prefix("") if not name.startswith(ROS_PARAMETERS)]
        given = {name: self.get_parameter(name).value for name in names}
        for name in names:
            self.undeclare_parameter(name)
        return given

    def _declare(
        self, name: str, value: Any, text: str, low: float | None = None, high: float | None = None, *, read_only: bool = False
    ) -> Any:
        descriptor = ParameterDescriptor(description=text, read_only=read_only)
        value = self._given.pop(name, value)
        if low is not None and high is not None:
            descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
            value = _inside(name, value, low, high)
        if isinstance(value, list) and not value:
            # An empty list has no type of its own; one that stays unset would empty every answer with others in it.
            self.declare_parameter(name, Parameter.Type.DOUBLE_ARRAY, descriptor, ignore_override=True)
            self.set_parameters([Parameter(name, Parameter.Type.DOUBLE_ARRAY, [])])
            return []
        return self.declare_parameter(name, value, descriptor, ignore_override=True).value

    def _declare_limits(self, limits: Limits) -> Limits:
        changed = {name: self._given.pop(name) for name in LIMITS if name in self._given}
        limits = limits_with(limits, changed)
        if faults := self._limit_faults(limits):
            raise ConfigError(listed("parameters of the arm node", faults))
        for field in fields(limits):
            about = field.metadata
            self._declare(field.name, flat(getattr(limits, field.name)), about["help"], about["low"], about["high"])
        self.get_logger().info(limits.text() + (f"; given as parameters: {', '.join(changed)}" if changed else ""))
        return limits

    def _set_parameters(self, parameters: Sequence[Parameter]) -> SetParametersResult:
        if self._paced and any(p.name == "use_sim_time" and p.value for p in parameters):
            return SetParametersResult(successful=False, reason="an arm in real time has the clock of this machine")
        changed = {p.name: p.value for p in parameters if p.name in LIMITS}
        if changed:
            try:
                limits = limits_with(self.control.filter.limits, changed)
                if faults := self._limit_faults(limits):
                    raise ConfigError(listed("parameters of the arm node", faults))
                self.control.set_limits(limits)
            except ConfigError as fault:
                return SetParametersResult(successful=False, reason=str(fault))
            self.get_logger().info(f"{self.control.filter.limits.text()}; changed: {', '.join(changed)}")
        return SetParametersResult(successful=True)


def _inside(name: str, value: Any, low: float, high: float) -> float:
    """The number, a whole one as one with a point; ConfigError where it is none or out of range."""
    try:
        found = number(value)
    except ValueError as fault:
        raise ConfigError(f"{name}: {fault}") from None
    if not low <= found <= high:
        raise ConfigError(f"{name}: expected {low:g} … {high:g}, given {found:g}")
    return found


def stamp_of(seconds: float) -> Time:
    nanoseconds = round(seconds * 1e9)
    return Time(sec=nanoseconds // 10**9, nanosec=nanoseconds % 10**9)


def pairs(**values: Any) -> list[KeyValue]:
    return [KeyValue(key=key, value=str(value)) for key, value in values.items()]


def stamped_twist(twist: Twist, stamp: Any, frame: str) -> TwistStamped:
    message = TwistStamped()
    message.header.stamp, message.header.frame_id = stamp, frame
    v, w = message.twist.linear, message.twist.angular
    v.x, v.y, v.z, w.x, w.y, w.z = twist
    return message


def stamped_pose(position: Sequence[float], orientation: Sequence[float], stamp: Any, frame: str) -> PoseStamped:
    message = PoseStamped()
    message.header.stamp, message.header.frame_id = stamp, frame
    p, o = message.pose.position, message.pose.orientation
    p.x, p.y, p.z = position
    o.x, o.y, o.z, o.w = orientation
    return message
