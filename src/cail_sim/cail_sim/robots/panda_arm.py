"""`PandaArm`: the simulated Panda as any arm (`cail_robot.arm.Arm`), with the table, the bottle and the obstacle around it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cail_core.tasks.pick_place_avoid import PickPlaceAvoidConfig, Scene
from cail_robot.arm import STILL, ArmError, ArmState, Twist
from cail_sim.bullet.description import panda_urdf
from cail_sim.bullet.world import World, spread
from cail_sim.tasks.env import CONTROL_TICKS
from cail_sim.tasks.panda import Panda


class PandaArm:
    """Time passes in `send_twist` alone, `ticks` of the physics each, by default a control period. The hand keeps pointing down:
    turning is ignored."""

    simulated = True

    def __init__(self, task: Panda, ticks: int = CONTROL_TICKS, *, window: bool = False) -> None:
        self.task = task
        self.config: PickPlaceAvoidConfig = replace(task.config.task, ticks_per_decision=ticks)
        self.name = f"simulated {task.model.name}"
        self.base_frame = "panda_link0"
        self.joint_names = task.model.joint_names
        self.finger_joints = ("panda_finger_joint1", "panda_finger_joint2")
        self.finger_travel_m = task.model.finger_travel_m
        self.period = self.config.decision_s
        self.time = 0.0
        self.closing = task.grasped
        self._window = window
        self._world: World | None = None
        self._twist: Twist = STILL
        self._qdot: tuple[float, ...] = (0.0,) * len(self.joint_names)

    @property
    def description(self) -> str:
        return panda_urdf()

    def connect(self) -> None:
        """Build the world; the thread that does it is the one that may use it."""
        if self._world is None:
            self._world = World(self.task.model, self.task.config.world, self.config, window=self._window, visible=self._window)
            self.restart(np.random.default_rng(0))

    def restart(self, rng: np.random.Generator) -> Scene:
        """Put the task to a start drawn from the next seven draws of `rng`. The clock goes on."""
        scene = self.world.begin(spread(self.task.config.world, rng.random(7).tolist(), grasped=self.task.grasped))
        self.closing = self.task.grasped
        self._twist, self._qdot = STILL, (0.0,) * len(self.joint_names)
        self.time += self.period
        return scene

    @property
    def world(self) -> World:
        if self._world is None:
            raise ArmError("the simulated Panda is not connected; call connect first")
        return self._world

    def read(self) -> ArmState:
        arm = self.world.arm
        return ArmState(self.time, arm.tool, arm.orientation, self._twist, arm.q, self._qdot, arm.opening)

    def send_twist(self, twist: Twist) -> None:
        arm, dt = self.world.arm, self.period
        tool, q = arm.tool, arm.q
        self.world.advance((twist[0], twist[1], twist[2]), self.closing)
        self.time += dt
        vx, vy, vz = ((after - before) / dt for after, before in zip(arm.tool, tool, strict=True))
        self._twist = (vx, vy, vz, 0.0, 0.0, 0.0)
        self._qdot = tuple((after - before) / dt for after, before in zip(arm.q, q, strict=True))

    def send_gripper(self, opening: float) -> None:
        self.closing = opening < 0.5

    def stop(self) -> None:
        """Without `send_twist` no time passes, so nothing moves."""

    def recover(self) -> None:
        """Has no faults of its own."""

    def close(self) -> None:
        if self._world is not None:
            self._world.close()
            self._world = None
