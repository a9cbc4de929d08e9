"""A simulated arm in a PyBullet world: velocity motors on every joint, driven so that the tool follows a velocity.

The tool tracks an integrated reference through a damped inverse of the Jacobian; it points down unless it is told to turn. Joint
speeds and angles stay inside the model's limits. Nothing but motors moves the arm, and nothing but friction holds what it grips.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from cail_core.tasks.pick_place_avoid import Vec

Doubles = NDArray[np.float64]
Rows = tuple[tuple[float, ...], ...]
Quaternion = tuple[float, float, float, float]
"""x, y, z, w."""


@dataclass(frozen=True)
class ArmModel:
    """A robot as its URDF has it."""

    name: str
    urdf: str
    """Path among PyBullet's model files."""
    joints: tuple[int, ...]
    joint_names: tuple[str, ...]
    tool_link: int
    home: tuple[float, ...]
    """Joint angles with the tool pointing down over the table; also what the redundant joint is drawn to."""
    tool_down: Quaternion
    """The tool's orientation that is kept."""
    max_force: tuple[float, ...]
    max_joint_speed: tuple[float, ...]
    joint_low: tuple[float, ...]
    joint_high: tuple[float, ...]
    fingers: tuple[int, int]
    finger_travel_m: float
    finger_speed: float
    grip_force: float


PANDA = ArmModel(
    name="Franka Panda",
    urdf="franka_panda/panda.urdf",
    joints=(0, 1, 2, 3, 4, 5, 6),
    joint_names=tuple(f"panda_joint{i}" for i in range(1, 8)),
    tool_link=11,
    home=(-0.14, 0.36, -0.14, -2.0, 0.06, 2.36, 0.5),
    tool_down=(1.0, 0.0, 0.0, 0.0),
    max_force=(87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0),
    max_joint_speed=(2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61),
    joint_low=(-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973),
    joint_high=(2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973),
    fingers=(9, 10),
    finger_travel_m=0.04,
    finger_speed=0.2,
    grip_force=20.0,
)

TRACKING_GAIN = 10.0
"""1/s: how fast the tool catches up with its reference."""
TURNING_GAIN = 10.0
DAMPING = 1e-4
_DAMPING = DAMPING * np.eye(6)
_ORIGIN = [0.0, 0.0, 0.0]
LEASH_M = 0.02
"""The reference never runs further ahead of the tool than this, so that an arm that was held up does not leap."""


class SimArm:
    """One arm in one world. Reading costs PyBullet calls, so a decision reads once (`read`) and the rest is arithmetic."""

    def __init__(self, p: ModuleType, client: int, model: ArmModel, urdf: str, *, visible: bool) -> None:
        self.model = model
        self._p, self._client = p, client
        flags = p.URDF_ENABLE_CACHED_GRAPHICS_SHAPES if visible else p.URDF_IGNORE_VISUAL_SHAPES
        self.body: int = p.loadURDF(urdf, useFixedBase=True, flags=flags, physicsClientId=client)
        self._movable = [*model.joints, *model.fingers]
        self._forces = {1: [*model.max_force, model.grip_force, model.grip_force]}
        """What PyBullet is told for calls of so many ticks (`send`)."""
        self._still = [0.0] * len(self._movable)
        # The hand's rack and pinion: one motor moves both fingers by the same amount.
        gear = p.createConstraint(self.body, model.fingers[0], self.body, model.fingers[1], p.JOINT_GEAR, [1, 0, 0], [0, 0, 0],
                                  [0, 0, 0], physicsClientId=client)
        p.changeConstraint(gear, gearRatio=-1, erp=0.5, maxForce=500.0, physicsClientId=client)
        for finger in model.fingers:  # the pads of the URDF are so soft that they sink into what they hold
            p.changeDynamics(self.body, finger, contactStiffness=1e6, contactDamping=1e3, physicsClientId=client)
        self._home = np.array(model.home)
        self._reference: Vec = (0.0, 0.0, 0.0)
        self._facing = model.tool_down
        self.tool: Vec = (0.0, 0.0, 0.0)
        self.orientation = model.tool_down
        self.q: tuple[float, ...] = model.home
        self.opening = 1.0
        self.gripper_speed = model.finger_speed
        self.commanded = self._still
        self._angles: list[float] = []

    def put(self, tool: Vec, opening: float) -> None:
        """Place the arm, at rest, with the tool there; only for the start of an episode."""
        q, self._facing = self._home, self.model.tool_down
        fingers = [opening * self.model.finger_travel_m] * 2
        for _ in range(30):
            self._set(q, fingers)
            self.read()
            error = np.array([*np.subtract(tool, self.tool), *self._lean()])
            if float(np.abs(error).max()) < 1e-6:
                break
            jacobian = self.jacobian()
            q = q + jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + 1e-8 * np.eye(6), error)
        self._reference, self.commanded = self.tool, self._still
        self.send(self._still)

    def resume(self) -> None:
        """Go on from a state that the world was put back to."""
        self.read()
        self._reference, self._facing, self.commanded = self.tool, self.model.tool_down, self._still

    def _set(self, q: Doubles, fingers: list[float]) -> None:
        angles = [[angle] for angle in (*q.tolist(), *fingers)]
        self._p.resetJointStatesMultiDof(self.body, self._movable, angles, [[0.0]] * len(angles), physicsClientId=self._client)

    def read(self) -> None:
        """Take over what the simulator says: tool, joint angles, opening."""
        p = self._p
        angles = self._angles = [state[0] for state in p.getJointStates(self.body, self._movable, self._client)]
        link = p.getLinkState(self.body, self.model.tool_link, 0, 1, self._client)  # no velocity, but forward kinematics
        self.tool, self.orientation = link[4], link[5]
        self.q = tuple(angles[:-2])
        self.opening = min(1.0, max(0.0, (angles[-2] + angles[-1]) / (2 * self.model.finger_travel_m)))

    def jacobian(self) -> Doubles:
        """6 × joints at the angles last read: linear on top, angular below."""
        return np.array(self._jacobian())[:, : len(self.model.joints)]

    def _jacobian(self, ahead_s: float = 0.0) -> Rows:
        """The same with the fingers, as PyBullet gives it, where the joints are in `ahead_s` if they go on as commanded."""
        angles = [angle + ahead_s * speed for angle, speed in zip(self._angles, self.commanded, strict=True)]
        linear, angular = self._p.calculateJacobian(self.body, self.model.tool_link, _ORIGIN, angles, self._still, self._still,
                                                    self._client)
        rows: Rows = linear + angular
        return rows

    def _wish(self, velocity: Vec, dt: float, turning: Vec) -> list[float]:
        """The tool's twist for the next `dt` seconds, what it lags behind its reference included; moves the reference on."""
        (rx, ry, rz), (tx, ty, tz) = self._reference, self.tool
        behind = (rx - tx, ry - ty, rz - tz)
        lag = math.hypot(*behind)
        if lag > LEASH_M:
            rx, ry, rz = (t + b * LEASH_M / lag for t, b in zip(self.tool, behind, strict=True))
        vx, vy, vz = velocity
        self._reference = (rx + vx * dt, ry + vy * dt, rz + vz * dt)
        if turning != (0.0, 0.0, 0.0):
            self._facing = _turned(self._facing, turning, dt)
        lean = self._lean()
        return [
            vx + TRACKING_GAIN * (rx - tx), vy + TRACKING_GAIN * (ry - ty), vz + TRACKING_GAIN * (rz - tz),
            turning[0] + TURNING_GAIN * lean[0], turning[1] + TURNING_GAIN * lean[1], turning[2] + TURNING_GAIN * lean[2],
        ]  # fmt: skip

    def _move(self, speeds: list[float], closing: bool, dt: float, ticks: int) -> None:
        """The joints, slowed down together to the limit of the fastest and none into its end stop, and the fingers."""
        model = self.model
        over = 1.0
        for speed, most in zip(speeds, model.max_joint_speed, strict=True):
            over = max(over, abs(speed) / most)
        self.commanded = [min(max(speed / over, (low - angle) / dt), (high - angle) / dt)
                          for speed, angle, low, high in zip(speeds, self.q, model.joint_low, model.joint_high, strict=True)]
        finger = -self.gripper_speed if closing else self.gripper_speed
        self.commanded += (finger, finger)
        self.send(self.commanded, ticks)

    def send(self, speeds: list[float], ticks: int = 1) -> None:
        """Set the motors of joints and fingers to these speeds, for a call of the engine that lets `ticks` pass.

        PyBullet turns a force into the impulse of a whole call and then allows that much in each of its ticks: told the plain
        force, a hand that is stepped ten ticks at a time would grip ten times as hard.
        """
        forces = self._forces.get(ticks)
        if forces is None:
            forces = self._forces[ticks] = [force / ticks for force in self._forces[1]]
        self._p.setJointMotorControlArray(self.body, self._movable, self._p.VELOCITY_CONTROL, targetVelocities=speeds,
                                          forces=forces, physicsClientId=self._client)

    def _lean(self) -> Vec:
        """The rotation vector from the tool's orientation to its reference f, for small angles: 2 · vec(f q⁻¹)."""
        dx, dy, dz, dw = self._facing
        x, y, z, w = self.orientation
        ex, ey, ez = dx * w - dw * x + dz * y - dy * z, dy * w - dw * y + dx * z - dz * x, dz * w - dw * z + dy * x - dx * y
        sign = 2.0 if dw * w + dx * x + dy * y + dz * z >= 0.0 else -2.0
        return sign * ex, sign * ey, sign * ez


def drive_all(arms: Sequence[SimArm], velocities: Sequence[Vec], closing: Sequence[bool], dt: float, ticks: int,
              turning: Vec = (0.0, 0.0, 0.0)) -> None:
    """Set the motors so that the tools move with these velocities (m/s) for `dt` seconds, one call of the engine of `ticks`; the
    states were read before. The arms are of one model, each in its world; each moves the same, bit for bit, however many others
    there are.

    The Jacobian is that of the middle of the way: taken at its beginning the tool would lag behind a straight line by as much as
    a step is long, and an arm that is driven in other steps would be another arm. A step of the engine leaves little of Python in
    the processor's cache: done for all arms between two steps, this costs less than arm by arm.
    """
    home = arms[0].model.home
    wish = np.array([arm._wish(velocity, dt, turning) for arm, velocity in zip(arms, velocities, strict=True)])[..., None]
    jacobian = np.array([arm._jacobian(0.5 * dt) for arm in arms])[:, :, : len(home)]
    # the redundant joint is drawn to the posture of `home` at 1/s
    posture = np.array([[rest - angle for rest, angle in zip(home, arm.q, strict=True)] for arm in arms])[..., None]
    across = jacobian.transpose(0, 2, 1)
    effort = np.linalg.solve(jacobian @ across + _DAMPING, wish - jacobian @ posture)
    speeds = (posture + across @ effort)[..., 0]
    for arm, moving, close in zip(arms, speeds.tolist(), closing, strict=True):
        arm._move(moving, close, dt, ticks)


def _turned(q: Quaternion, w: Vec, dt: float) -> Quaternion:
    """The orientation `q` after turning with the angular velocity `w` (rad/s, base frame) for `dt`."""
    x, y, z, s = q
    a, b, c = (0.5 * dt * v for v in w)
    turned = (x + a * s + b * z - c * y, y + b * s + c * x - a * z, z + c * s + a * y - b * x, s - a * x - b * y - c * z)
    norm = math.hypot(*turned)
    return turned[0] / norm, turned[1] / norm, turned[2] / norm, turned[3] / norm
