"""An arm in a hundred lines. For one of your own, put its driver's calls where this one integrates."""

from __future__ import annotations

import argparse

from cail_core.config import find_config, load_config
from cail_robot.arm import STILL, Arm, ArmError, ArmState, Twist
from cail_robot.robot import Bringup
from cail_robot.safety.limits import Limits

HOME = (0.5, 0.0, 0.3)
DOWN = (1.0, 0.0, 0.0, 0.0)
"""The tool points down, as a quaternion x, y, z, w."""
GRIPPER_S = 0.3
"""From open to closed."""


class MyArm:
    """The control loop calls all of it in one thread, once every `period`; the safety filter has been over every twist."""

    name = "my arm"
    base_frame = "my_arm_base"
    joint_names = ("x", "y", "z")
    simulated = True
    period = 0.01

    def __init__(self) -> None:
        self._connected = False
        self._time = 0.0
        self._opening = self._wanted = 1.0
        self.restart()

    def connect(self) -> None:
        """Reach the arm; ArmError where it does not answer. Called again after a failure."""
        self._connected = True

    def read(self) -> ArmState:
        if not self._connected:
            raise ArmError("my arm is not connected; is it switched on?")
        x, y, z = self._position
        return ArmState(
            time=self._time,  # the arm's own clock: one that stands still is a dead link
            position=(x, y, z),
            orientation=DOWN,
            twist=self._twist,
            q=(x, y, z),
            qdot=self._twist[:3],
            gripper=self._opening,
        )

    def send_twist(self, twist: Twist) -> None:
        """Move with this velocity for one period. A real arm must come to rest by itself where no further call follows."""
        self._time += self.period
        self._twist = twist
        self._position = [p + v * self.period for p, v in zip(self._position, twist[:3], strict=True)]
        most = self.period / GRIPPER_S
        self._opening += max(-most, min(most, self._wanted - self._opening))

    def send_gripper(self, opening: float) -> None:
        self._wanted = opening

    def stop(self) -> None:
        """As fast as the arm can."""
        self._twist = STILL

    def recover(self) -> None:
        """Begin to leave a fault of the arm's own; this one has none."""

    def close(self) -> None:
        self._connected = False

    def restart(self) -> None:
        """What the service `reset` does. Leave it out for a real arm: a person puts the scene back there."""
        self._position, self._twist, self._wanted = list(HOME), STILL, 1.0


class MyBringup(Bringup):
    """My arm on the arm's topics, until Ctrl-C."""

    def limits(self, args: argparse.Namespace) -> Limits:
        return load_config(Limits, find_config(args.limits or "my_arm"))

    def arm(self, args: argparse.Namespace) -> Arm:
        return MyArm()
