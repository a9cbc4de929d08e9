"""`RosArmEnv`: any task that is seen through topics as a Gymnasium environment, whatever arm is behind them.

What is observed, what it costs and how it ends is the task's own view of the topics, as in a recording and a deployment. A
decision ends when the arm's stamps have advanced by its length, so one rule serves an arm in real time and a simulator whose time
waits for commands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from cail_core.cli import say
from cail_core.errors import BadInput
from cail_core.geometry import STILL
from cail_core.recording.episode_builder import ActingView, RecordableTask, recordable
from cail_core.recording.sync import ArmSample
from cail_core.tasks import BatchEnv, Demonstrator, Step, TaskSpec
from cail_core.tasks.base import Array, metres_per_second
from cail_robot.arm import ArmError
from cail_robot.control.speed_scaling import Slower

PATIENCE_S = 30.0
"""How long the arm's node may be silent before that is an error; discovery on a busy machine takes seconds."""
POLL_S = 0.0003
ZEROS = 30
"""So often, within that time, a zero command is repeated."""
JITTER = 0.2
"""Share of a decision by which the stamp of its last state may be early: an arm in real time is not exact."""


class RosArmEnv(gymnasium.Env[Array, Array]):
    """One arm on the topics of docs/ros.md. The first `reset` enables motion; the operator can stop it at any time."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  Gymnasium's own name

    def __init__(self, task: RecordableTask, *, namespace: str = "/arm") -> None:
        spec = task.spec
        view, speed = task.over_topics(spec.fps), metres_per_second(spec.action_scale)
        if not isinstance(view, ActingView) or speed is None:
            raise BadInput(f"task: '{spec.name}' cannot be acted in over topics: it needs twist and gripper in its view, and an"
                           f" action_scale such as 0.5 m/s, given {spec.action_scale}")  # fmt: skip
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (spec.observation_dim,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (spec.action_dim,), np.float32)
        self._view, self._decision_s = view, 1.0 / spec.fps
        self._link = _Link(namespace, spec.needs)
        allowed = self._link.parameter("max_linear_speed")
        slower = speed / allowed if allowed is not None and allowed < speed else 1.0
        if slower > 1.0:
            say(
                f"cail: the arm's limit is {allowed:g} m/s where the task's actions mean up to {speed:g} m/s: it moves"
                f" slower than the policy was trained for, and the time limit is {slower:.2g} times as long"
            )
        limits = spec.limits
        self._slower = Slower(1.0 / slower, speed, limits.get("max_linear_acceleration", 0.0),
                              limits.get("max_linear_jerk", 0.0), self._decision_s)
        self._max_steps, self._steps = round(spec.max_steps * slower), 0
        self._sample: ArmSample | None = None
        self._opening: float | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._link.set_seed(seed)
        self._link.permit_motion()
        self._opening, self._steps = None, 0
        self._sample = self._link.restart()
        self._view.begin(self._sample)
        self._slower.begin()
        return self._observation(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        if self._sample is None:
            raise BadInput("reset the environment before the first step")
        wish = [min(1.0, max(-1.0, float(a))) for a in action]
        opening = self._view.gripper(self._sample, wish)
        if opening is not None and opening != self._opening:
            self._link.client.grip(opening)
            self._opening = opening
        twist = self._slower.twist(self._view.twist(wish))
        self._sample = self._link.move(twist, self._decision_s, self._opening)
        self._steps += 1
        reward, outcome = self._view.advance(self._sample, self._sample.executed)
        truncated = outcome is None and self._steps >= self._max_steps
        info = {"outcome": "timeout" if truncated else outcome, "success": outcome == "success"}
        return self._observation(), reward, outcome is not None, truncated, info

    def close(self) -> None:
        self._link.close()

    def _observation(self) -> Array:
        assert self._sample is not None
        return np.array(self._view.observe(self._sample), dtype=np.float32)


class _Link:
    """An `ArmClient` that waits; spun by whoever calls, so nothing runs in the background."""

    def __init__(self, namespace: str, needs: Mapping[str, str]) -> None:
        from cail_robot.ros.runtime import join  # first: it says how to add rclpy where it is missing

        # isort: split
        from cail_robot.ros.arm_client import ArmClient

        self._namespace = namespace
        self._enabled = False
        self._context, self.client, self._executor = join("arm_env", namespace, ArmClient, needs=needs, simulated_only=True)
        try:
            self._until(lambda: self.client.sample(final=True) and self.client.values,
                        f"{', '.join(self.client.needs)} and status on {namespace}")  # fmt: skip
        except ArmError:
            self.close()
            raise

    def close(self) -> None:
        """Motion is not left permitted with nobody to command it."""
        if self._enabled and self.client.service("disable").service_is_ready():
            self._wait(self.client.call("disable", on=False).done, 1.0)
        self._executor.shutdown(timeout_sec=0)
        self.client.destroy_node()
        self._context.try_shutdown()

    # What is asked for.

    def parameter(self, name: str) -> float | None:
        """A number among the node's parameters; None where it has no such parameter."""
        self._until(self.client.parameters_there, "the parameters of the arm's node")
        answer = self._answer(self.client.parameters([name])).values
        return answer[0].double_value if answer and answer[0].type == 3 else None

    def set_seed(self, seed: int) -> None:
        """Tell a simulator which episodes come next; a real arm has no such parameter."""
        self._until(self.client.parameters_there, "the parameters of the arm's node")
        self._answer(self.client.set_parameter("seed", seed))

    def permit_motion(self) -> None:
        """Enabled, and started by a zero command; refused in a fault, which a person clears."""
        self.client.listen()
        if self.client.simulated is not True:
            raise ArmError(
                f"{self._namespace}: expected a simulated arm, found a real one; nobody could stop a policy here: cail deploy"
            )
        if self.client.permitted:
            return
        self._call("enable")
        self._enabled = True
        # One at a time: where time waits for commands, a second one would be a moment of the next episode.
        for _ in range(ZEROS):
            self.client.move(STILL, stamp=self.client.stamp)
            self._wait(lambda: self.client.permitted, PATIENCE_S / ZEROS)
            if self.client.permitted:
                return
        raise ArmError(f"{self._namespace}: {self.client.report.state}; the arm takes no zero command")

    def restart(self) -> ArmSample:
        """Put the task back to its start; the first sample of the episode."""
        self.client.listen()
        self.client.events.clear()
        self._call("reset")
        self._until(lambda: self._started() is not None, "episode_event 'started'")
        return self._sample_from(self._started() or 0.0, None, "the first moment of the episode")

    def _started(self) -> float | None:
        return next((event["time"] for event in self.client.events if event.get("event") == "started"), None)

    def move(self, twist: Sequence[float], seconds: float, gripper_cmd: float | None) -> ArmSample:
        """Command a twist, wait until the arm's stamps have advanced by `seconds`; the sample that this led to."""
        self.permit_motion()
        end = self.client.stamp + seconds
        self.client.move(twist, stamp=self.client.stamp)  # its newest own: its clock may be a simulator's
        return self._sample_from(end - JITTER * seconds, gripper_cmd, "the arm's next state")

    def _sample_from(self, stamp: float, gripper_cmd: float | None, what: str) -> ArmSample:
        """The first sample that is not older than `stamp`, and that nothing can change any more."""

        def there() -> bool:
            found = self.client.sample(final=True)
            return found is not None and found.stamp_ns >= (stamp - 1e-6) * 1e9

        self._until(there, what)
        sample: ArmSample | None = self.client.look(gripper_cmd)
        assert sample is not None
        return sample

    def _call(self, name: str) -> None:
        self._until(self.client.service(name).service_is_ready, f"the service {name}")
        answer = self._answer(self.client.call(name))
        if not answer.success:
            raise ArmError(f"{self._namespace}: {answer.message}")

    def _answer(self, future: Any) -> Any:
        self._until(future.done, "an answer of the arm's node")
        return future.result()

    def _until(self, done: Callable[[], Any], what: str) -> None:
        self._wait(done, PATIENCE_S)
        if not done():
            missing = [name for name, age in self.client.ages().items() if age == float("inf")]
            raise ArmError(
                f"waited {PATIENCE_S:g} s for {what} (never heard: {', '.join(missing) or 'none'}); is the arm's node running"
                f" (`cail up`), in this ROS_DOMAIN_ID? Its status: {self.client.report.state}"
            )

    def _wait(self, done: Callable[[], Any], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not done() and time.monotonic() < until:
            self.client.listen()
            self._executor.spin_once(timeout_sec=0)
            time.sleep(POLL_S)


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
    """A task acted out over the topics, by the arm that is on them. Register `partial(OverRos, "NAME")` as `NAME-ros`."""

    def __init__(self, base: str, config_file: Path | None = None) -> None:
        self._task = recordable(base, config_file)
        spec = self._task.spec
        self.spec = TaskSpec(**{**vars(spec), "name": f"{spec.name}-ros", "most_envs": 1, "on_arm": True})

    def one(self) -> RosArmEnv:
        return RosArmEnv(self._task)

    def make_env(self, num_envs: int) -> BatchEnv:
        if num_envs != 1:
            raise BadInput(f"one arm is one environment, given {num_envs}; set ppo.num_envs to 1 in the method's config")
        return _Single(self.one())

    def mixes(self) -> dict[str, Sequence[tuple[Demonstrator, float]]]:
        return self._task.mixes()
