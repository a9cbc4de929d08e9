"""A UR5e on the PyBullet table behind the control box: bottle, obstacle and target as in the task `ur5e`.

The box's targets drive velocity motors, so the arm lags a little, grips by friction, and can run into things: the box then stops
protectively.
"""

from __future__ import annotations

import numpy as np

from cail_robot.robots.ur5e.kinematics import Vector
from cail_sim.bullet.engine import load_pybullet
from cail_sim.bullet.world import World, spread
from cail_sim.tasks.ur5e import UR5E, UR5e
from cail_sim.ursim.motion import CYCLE_S

TRACKING = 60.0
"""1/s: how fast the joints catch up with the box's target."""
COLLISION_N = 30.0
"""A contact of the arm with more than this is a collision; the fingers may touch the bottle as they like."""
FULL_SPEED = UR5E.finger_speed


class TableArm:
    """The plant with physics."""

    def __init__(self, seed: int = 0, *, window: bool = False) -> None:
        task = UR5e()
        self._config = task.config.world
        self.world = World(UR5E, task.config.world, task.config.task, visible=window, window=window)
        self._p, self._client = load_pybullet(), self.world.client
        assert self.world.tick_s == CYCLE_S
        self.world.take(1)
        self._movable = [*UR5E.joints, *UR5E.fingers]
        self._names = {
            self.world.table: "the table",
            self.world.obstacle: "the obstacle",
            self.world.platform: "the platform",
            self.world.bottle: "the bottle",
        }
        self._wanted, self._speed = 1.0, 1.0
        self.holding = False
        self.world.begin(spread(self._config, np.random.default_rng(seed).random(7).tolist(), grasped=False))
        self.q: Vector = self.world.arm.q
        self.qd: Vector = (0.0,) * 6
        self.opening = 1.0

    def drive(self, q: Vector, qd: Vector, dt: float) -> None:
        p, client, body = self._p, self._client, self.world.arm.body
        speeds = [v + TRACKING * (target - now) for target, now, v in zip(q, self.q, qd, strict=True)]
        away = self._wanted - self.opening
        finger = min(max(away * UR5E.finger_travel_m / dt, -FULL_SPEED * self._speed), FULL_SPEED * self._speed)
        self.world.arm.send([*speeds, finger, finger])
        p.stepSimulation(client)
        states = p.getJointStates(body, self._movable, physicsClientId=client)
        self.q = tuple(state[0] for state in states[:6])
        self.qd = tuple(state[1] for state in states[:6])
        self.opening = min(1.0, max(0.0, (states[6][0] + states[7][0]) / (2 * UR5E.finger_travel_m)))
        self.holding = away < -0.02 and abs(states[6][1]) < 0.2 * FULL_SPEED * self._speed

    def move_gripper(self, opening: float, speed: float) -> None:
        self._wanted, self._speed = opening, speed

    def collision(self) -> str | None:
        for contact in self._p.getContactPoints(bodyA=self.world.arm.body, physicsClientId=self._client):
            _, _, other, link, _, _, _, _, _, force, *_ = contact
            if force > COLLISION_N and not (other == self.world.bottle and link in UR5E.fingers):
                return f"the arm runs into {self._names.get(other, 'itself')} with {force:.0f} N"
        return None

    def things(self) -> dict[str, list[float]]:
        names = ("object", "obstacle", "target")
        return {name: [*at, *turned] for name, (at, turned) in zip(names, self.world.poses(), strict=True)}

    def put_back(self, seed: int) -> None:
        """Bottle, obstacle and target at the start of an episode; the arm stays where it is."""
        start = spread(self._config, np.random.default_rng(seed).random(7).tolist(), grasped=False)
        self.world.put_things(start)

    def close(self) -> None:
        self.world.close()
