"""The simulator on the arm's topics: `ArmNode` on a `PandaArm`, with the task's things, `reset` and `episode_event`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import TimeoutError
from typing import Any

import numpy as np

from cail_core.tasks.pick_place_avoid import Outcome, PickPlaceAvoid
from cail_core.tasks.pick_place_avoid.topics import NEEDS
from cail_robot.control.state_machine import Cycle
from cail_robot.ros.arm_node import ArmNode, stamp_of, stamped_pose
from cail_robot.ros.runtime import STATE_QOS
from cail_robot.safety.limits import Limits
from cail_sim.robots.panda_arm import PandaArm

EVENTS = {
    Outcome.SUCCESS: "succeeded",
    Outcome.DROPPED: "dropped",
    Outcome.COLLIDED: "collided",
    Outcome.TIMEOUT: "timed out",
}
REPEAT_S = 0.1
"""Where time waits for commands, the present is said again this often, for those who join."""


class SimNode(ArmNode):
    """In real time, or (`paced` False) with a clock that advances by one period for every command that comes."""

    def __init__(self, arm: PandaArm, limits: Limits, *, seed: int = 0, paced: bool = True, namespace: str = "arm") -> None:
        self._panda = arm
        self._seed = seed
        self._rng = np.random.default_rng((seed, 0))
        self._referee: PickPlaceAvoid | None = None
        self._episode = 0
        self._said_at = 0.0
        self.periods_per_command = round(arm.task.config.task.decision_s / arm.period)
        super().__init__(arm, limits, namespace=namespace, paced=paced)

    def set_up(self) -> None:
        from geometry_msgs.msg import PoseStamped
        from rosgraph_msgs.msg import Clock
        from std_msgs.msg import String

        self._declare("seed", self._seed, "setting it decides the episodes that the next resets begin")
        self._events, self._event = self.create_publisher(String, "episode_event", STATE_QOS), String
        self._things = [self.create_publisher(PoseStamped, name, STATE_QOS) for name in NEEDS]
        self._ticking, self._tick = None if self._paced else self.create_publisher(Clock, "/clock", STATE_QOS), Clock

    def seconds(self) -> float:
        return super().seconds() if self._paced else self._panda.time

    def after(self, cycle: Cycle, publish: bool) -> None:
        """The state that the period led to, and whether it ended the episode."""
        if publish:
            self._say_all()
        if self._referee is not None:
            scene = self._panda.world.scene()
            self._referee.gripper(scene, -1.0 if self._panda.closing else 1.0)
            _, outcome = self._referee.advance(scene, cycle.outcome.motion.linear)
            if outcome is not None:
                self._referee = None
                self._tell(EVENTS[outcome])

    def wait_for_command(self) -> None:
        super().wait_for_command()
        if time.monotonic() - self._said_at > REPEAT_S:
            self._say_all()

    def _say_all(self) -> None:
        """The arm and the task's things as they are now, with one stamp."""
        stamp = stamp_of(self.seconds())
        self._said_at = time.monotonic()
        if self._ticking is not None:
            self.send(self._ticking, self._tick(clock=stamp))
        things = self._panda.world.poses()
        for publisher, (position, orientation) in zip(self._things, things, strict=True):
            self.send(publisher, stamped_pose(position, orientation, stamp, self._panda.base_frame))
        self.publish_state(self._panda.read(), stamp, self.control.filter.motion.twist)

    def _tell(self, event: str) -> None:
        self.send(self._events, self._event(data=json.dumps({"event": event, "episode": self._episode, "time": self.seconds()})))

    def _restart(self) -> None:
        scene = self._panda.restart(self._rng)
        self.control.start_anew()
        self._referee = PickPlaceAvoid(self._panda.config, self._panda.task.max_ticks)
        self._referee.begin(scene, closing=self._panda.closing)
        self._episode += 1
        self._tell("started")
        self._say_all()

    def _on_reset(self, request: Any, response: Any) -> Any:
        try:
            self.control.in_loop(self._restart)
            response.success, response.message = True, f"the scene was put back: {self._episode} started so far"
        except TimeoutError:
            response.success, response.message = False, f"{self.control.state.value}: the simulator does not answer; try again"
        return response

    def _set_parameters(self, parameters: Sequence[Any]) -> Any:
        result = super()._set_parameters(parameters)
        for parameter in parameters:
            if parameter.name == "seed" and result.successful:
                self._rng = np.random.default_rng((parameter.value, 0))
        return result
