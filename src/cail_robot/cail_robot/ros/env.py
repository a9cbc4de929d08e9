"""`RosArmEnv`: pick-place-avoid as a Gymnasium environment over the arm's topics, whatever arm is behind them.

Observation, reward, reflex and outcomes are those of `cail_core.tasks.pick_place_avoid`, computed here from the topics. A
decision ends when the arm's stamps have advanced by its length, so one rule serves an arm in real time and a simulator whose
time waits for commands.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from cail_core.cli import say
from cail_core.errors import BadInput
from cail_core.tasks import BatchEnv, Demonstrator, Step, TaskSpec, get_task
from cail_core.tasks.base import Array
from cail_core.tasks.pick_place_avoid import Outcome, PickPlaceAvoid, PickPlaceAvoidConfig, Scene, Vec
from cail_robot.arm import ArmError
from cail_robot.control.speed_scaling import Slower

PATIENCE_S = 30.0
"""How long the arm's node may be silent before that is an error; discovery on a busy machine takes seconds."""
ZEROS = 30
"""So often, within that time, a zero command is repeated."""
JITTER = 0.2
"""Share of a decision by which the stamp of its last state may be early: an arm in real time is not exact."""
POSES = ("ee_pose", "object_pose", "obstacle_pose", "target_pose")


class RosArmEnv(gymnasium.Env[Array, Array]):
    """One arm on the topics of docs/ros.md. The first `reset` enables motion; the operator can stop it at any time."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  Gymnasium's own name

    def __init__(
        self, spec: TaskSpec, config: PickPlaceAvoidConfig, max_ticks: int, *, grasped: bool, namespace: str = "/arm"
    ) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (spec.observation_dim,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (spec.action_dim,), np.float32)
        self._explicit = spec.action_dim == 4
        self._grasped = grasped
        self._link = _Link(namespace)
        allowed = self._link.parameter("max_linear_speed")
        slower = config.max_speed / allowed if allowed is not None and allowed < config.max_speed else 1.0
        if slower > 1.0:
            say(
                f"cail: the arm's limit is {allowed:g} m/s where the task's actions mean up to {config.max_speed:g} m/s: it moves"
                f" slower than the policy was trained for, and the time limit is {slower:.2g} times as long"
            )
        limits = spec.limits
        self._slower = Slower(1.0 / slower, config.max_speed, limits.get("max_linear_acceleration", 0.0),
                              limits.get("max_linear_jerk", 0.0), config.decision_s)
        self._task = PickPlaceAvoid(config, round(max_ticks * slower))
        self._scene: Scene | None = None
        self._closing: bool | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._link.set_seed(seed)
        self._link.permit_motion()
        self._link.restart()
        self._scene = self._link.scene()
        self._task.begin(self._scene, closing=self._grasped)
        self._slower.begin()
        self._closing = None
        return self._observation(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        if self._scene is None:
            raise BadInput("reset the environment before the first step")
        wish = [min(1.0, max(-1.0, float(a))) for a in action]
        closing = self._task.gripper(self._scene, wish[3] if self._explicit else None)
        if closing != self._closing:
            self._link.grip(0.0 if closing else 1.0)
            self._closing = closing
        speed = self._task.config.max_speed
        x, y, z, *_ = self._slower.twist((wish[0] * speed, wish[1] * speed, wish[2] * speed, 0.0, 0.0, 0.0))
        self._link.move((x, y, z), self._task.config.decision_s)
        self._scene = self._link.scene()
        reward, outcome = self._task.advance(self._scene, self._link.executed())
        info = {"outcome": outcome.value if outcome else None, "success": outcome is Outcome.SUCCESS}
        truncated = outcome is Outcome.TIMEOUT
        return self._observation(), reward, outcome is not None and not truncated, truncated, info

    def close(self) -> None:
        self._link.close()

    def _observation(self) -> Array:
        assert self._scene is not None
        return np.array(self._task.observe(self._scene), dtype=np.float32)


class _Link:
    """The topics and services that the environment needs; spun by whoever calls, so nothing runs in the background."""

    def __init__(self, namespace: str) -> None:
        from diagnostic_msgs.msg import DiagnosticStatus
        from geometry_msgs.msg import PoseStamped, TwistStamped
        from rcl_interfaces.srv import GetParameters, SetParameters
        from std_msgs.msg import Float64, String
        from std_srvs.srv import SetBool, Trigger

        from cail_robot.ros.runtime import COMMAND_QOS, STATE_QOS, STATUS_QOS, join  # says how to add rclpy where it is missing

        self._namespace = namespace
        self._enabled = False
        self._context, self._node, self._executor = join("arm_env", namespace)
        self._newest: dict[str, tuple[Any, float, int]] = {}  # topic -> message, its stamp, when it was sent
        self._before = 0  # when the ee_pose before the newest was sent
        self._executed: list[Any] = []
        self._events: list[dict[str, Any]] = []
        self._status: dict[str, str] = {}
        for name in POSES:
            self._node.create_subscription(PoseStamped, name, self._keep(name), STATE_QOS)
        self._node.create_subscription(TwistStamped, "twist_executed", self._keep("twist_executed"), STATE_QOS)
        self._node.create_subscription(Float64, "gripper_state", self._keep("gripper_state"), STATE_QOS)
        self._node.create_subscription(String, "episode_event", self._on_event, STATE_QOS)
        self._node.create_subscription(DiagnosticStatus, "status", self._on_status, STATUS_QOS)
        self._gripper_cmd = self._node.create_publisher(Float64, "gripper_cmd", COMMAND_QOS)
        self._twist_cmd = self._node.create_publisher(TwistStamped, "twist_cmd", COMMAND_QOS)
        self._float, self._twist = Float64, TwistStamped
        self._enable, self._set_bool = self._node.create_client(SetBool, "enable"), SetBool.Request
        self._reset, self._trigger = self._node.create_client(Trigger, "reset"), Trigger.Request
        self._set, self._set_request = self._node.create_client(SetParameters, "arm_node/set_parameters"), SetParameters.Request
        self._get, self._get_request = self._node.create_client(GetParameters, "arm_node/get_parameters"), GetParameters.Request
        try:
            self._until(lambda: self._complete(0.0) and self._status, f"{', '.join(POSES)} and status on {namespace}")
        except ArmError:
            self.close()
            raise

    def close(self) -> None:
        """Motion is not left permitted with nobody to command it."""
        if self._enabled and self._enable.service_is_ready():
            future = self._enable.call_async(self._set_bool(data=False))
            self._spin(future.done, 1.0)
        self._executor.shutdown(timeout_sec=0)
        self._node.destroy_node()
        self._context.try_shutdown()

    # What is heard.

    def _keep(self, name: str) -> Callable[[Any, dict[str, Any]], None]:
        def keep(message: Any, info: dict[str, Any]) -> None:
            stamp = message.header.stamp.sec + message.header.stamp.nanosec * 1e-9 if hasattr(message, "header") else 0.0
            if name == "ee_pose" and name in self._newest:
                self._before = self._newest[name][2]
            if name == "twist_executed":
                self._executed.append(message.twist.linear)
            self._newest[name] = message, stamp, info["source_timestamp"]

        return keep

    def _on_event(self, message: Any) -> None:
        self._events.append(json.loads(message.data))

    def _on_status(self, message: Any) -> None:
        self._status = {pair.key: pair.value for pair in message.values}

    def _stamp(self) -> float:
        return self._newest["ee_pose"][1]

    def _complete(self, stamp: float) -> bool:
        """The arm's state of one period is here, and nothing is older than `stamp`.

        The gripper has no stamp: it is sent just before. A simulator stamps the task's things as the arm's state, a lab's tracker
        has its own times.
        """
        if not all(name in self._newest for name in (*POSES, "twist_executed", "gripper_state")):
            return False
        (_, reached, sent), executed = self._newest["ee_pose"], self._newest["twist_executed"][1]
        same_period = executed == reached and self._before < self._newest["gripper_state"][2] <= sent
        return same_period and min(self._newest[name][1] for name in POSES) >= stamp - 1e-6

    def scene(self) -> Scene:
        tool, bottle, obstacle, target = (self._newest[name][0].pose for name in POSES)
        return Scene(
            _position(tool), _position(bottle), _up(bottle), _position(obstacle), _up(obstacle), _position(target),
            self._newest["gripper_state"][0].data,
        )  # fmt: skip

    def executed(self) -> Vec:
        """The mean velocity of the control periods since the last command."""
        n = len(self._executed)
        return sum(v.x for v in self._executed) / n, sum(v.y for v in self._executed) / n, sum(v.z for v in self._executed) / n

    # What is asked for.

    def parameter(self, name: str) -> float | None:
        """A number among the node's parameters; None where it has no such parameter."""
        answer = self._ask(self._get, self._get_request(names=[name])).values
        return answer[0].double_value if answer and answer[0].type == 3 else None

    def set_seed(self, seed: int) -> None:
        """Tell a simulator which episodes come next; a real arm has no such parameter."""
        from rclpy.parameter import Parameter

        self._ask(self._set, self._set_request(parameters=[Parameter("seed", value=seed).to_parameter_msg()]))

    def permit_motion(self) -> None:
        """Enabled, and started by a zero command; refused in a fault, which a person clears."""
        if self._status.get("simulated") != "True":
            raise ArmError(
                f"{self._namespace}: expected a simulated arm, found a real one; nobody could stop a policy here: cail deploy"
            )
        if self._permitted():
            return
        answer = self._ask(self._enable, self._set_bool(data=True))
        if not answer.success:
            raise ArmError(f"{self._namespace}: {answer.message}")
        self._enabled = True
        # One at a time: where time waits for commands, a second one would be a moment of the next episode.
        for _ in range(ZEROS):
            self._send((0.0, 0.0, 0.0))
            self._spin(self._permitted, PATIENCE_S / ZEROS)
            if self._permitted():
                return
        raise ArmError(f"{self._namespace}: {self._status['state']}: {self._status['reason']}; the arm takes no zero command")

    def _permitted(self) -> bool:
        return self._status["state"] == "ENABLED" and self._status["zero_command_awaited"] == "False"

    def restart(self) -> None:
        """Put the task back to its start, and wait until its first moment is seen."""
        self._events.clear()
        answer = self._ask(self._reset, self._trigger())
        if not answer.success:
            raise ArmError(f"{self._namespace}: {answer.message}")
        self._until(lambda: any(event["event"] == "started" for event in self._events), "episode_event 'started'")
        begun = next(event["time"] for event in self._events if event["event"] == "started")
        self._until(lambda: self._complete(begun), "the first moment of the episode")

    def grip(self, opening: float) -> None:
        self._gripper_cmd.publish(self._float(data=opening))

    def move(self, velocity: Vec, seconds: float) -> None:
        """Command a velocity and wait until the arm's stamps have advanced by `seconds`."""
        self.permit_motion()
        end = self._stamp() + seconds
        self._executed.clear()
        self._send(velocity)
        self._until(lambda: self._complete(end - JITTER * seconds), "the arm's next state")

    def _send(self, velocity: Vec) -> None:
        """The stamp is the arm's newest own: its clock may be a simulator's."""
        pose = self._newest["ee_pose"][0]
        message = self._twist()
        message.header = pose.header
        v = message.twist.linear
        v.x, v.y, v.z = velocity
        self._twist_cmd.publish(message)

    def _ask(self, client: Any, request: Any) -> Any:
        self._until(client.service_is_ready, f"the service {client.srv_name}")
        future = client.call_async(request)
        self._until(future.done, f"an answer of {client.srv_name}")
        return future.result()

    def _until(self, done: Callable[[], Any], what: str) -> None:
        self._spin(done, PATIENCE_S)
        if not done():
            missing = [name for name in (*POSES, "twist_executed", "gripper_state") if name not in self._newest]
            raise ArmError(
                f"waited {PATIENCE_S:g} s for {what} (never heard: {', '.join(missing) or 'none'}); is the arm's node running"
                f" (`cail up sim`), in this ROS_DOMAIN_ID? Its status: {self._status.get('state', 'none')}"
                f" {self._status.get('reason', '')}"
            )

    def _spin(self, done: Callable[[], Any], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not done() and time.monotonic() < until:
            self._executor.spin_once(timeout_sec=0.05)


def _position(pose: Any) -> Vec:
    return pose.position.x, pose.position.y, pose.position.z


def _up(pose: Any) -> Vec:
    """The z axis of the pose's frame."""
    o = pose.orientation
    return 2.0 * (o.x * o.z + o.w * o.y), 2.0 * (o.y * o.z - o.w * o.x), 1.0 - 2.0 * (o.x * o.x + o.y * o.y)


class _Single:
    """A Gymnasium environment as a batch of one, which starts its next episode by itself."""

    num_envs = 1

    def __init__(self, env: RosArmEnv) -> None:
        self._env = env

    def reset(self, seed: int) -> Array:
        return self._env.reset(seed=seed)[0][None]

    def step(self, action: Array) -> Step:
        reached, reward, terminated, truncated, info = self._env.step(action[0])
        observation = self._env.reset()[0] if terminated or truncated else reached
        flags = (np.array([flag]) for flag in (terminated, truncated, info["success"]))
        return Step(observation[None], reached[None], np.array([reward], dtype=np.float32), *flags)

    def close(self) -> None:
        self._env.close()


class OverRos:
    """A pick-place-avoid task acted out over the topics, by the arm that is on them."""

    base: str

    def __init__(self, config_file: Path | None = None) -> None:
        self._task: Any = get_task(self.base, config_file)
        spec: TaskSpec = self._task.spec
        self.spec = TaskSpec(**{**vars(spec), "name": f"{spec.name}-ros", "most_envs": 1, "on_arm": True})

    def one(self) -> RosArmEnv:
        config = self._task.config
        return RosArmEnv(self.spec, config.task, self._task.max_ticks, grasped=self._task.grasped)

    def make_env(self, num_envs: int) -> BatchEnv:
        if num_envs != 1:
            raise BadInput(f"one arm is one environment, given {num_envs}; set ppo.num_envs to 1 in the method's config")
        return _Single(self.one())

    def mixes(self) -> dict[str, Sequence[tuple[Demonstrator, float]]]:
        mixes: dict[str, Sequence[tuple[Demonstrator, float]]] = self._task.mixes()
        return mixes


class PandaOverRos(OverRos):
    base = "panda"


class PandaCarryOverRos(OverRos):
    base = "panda-carry"
