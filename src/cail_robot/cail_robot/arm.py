"""The arm contract: what a robot arm, real or simulated, gives to `ArmNode` and to the in-process environments.

Positions in metres, angles in radians, twists as (vx, vy, vz, wx, wy, wz) of the tool point in the arm's base frame (REP 103).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cail_core.errors import CailError
from cail_core.geometry import STILL, Quaternion, Twist
from cail_core.geometry import Vector3 as Vector

if TYPE_CHECKING:
    from cail_robot.safety.limits import Limits

__all__ = [
    "STILL", "Arm", "ArmError", "ArmMode", "ArmState", "Configured",
    "Drawn", "Quaternion", "Restarting", "Twist", "Vector", "state_dict",
]  # fmt: skip


class ArmError(CailError):
    """The arm cannot be reached or refuses; the text says why and the way out."""


class ArmMode(enum.Enum):
    """What the arm itself says about moving. The node's states (`control.state_machine`) are built on it."""

    READY = "ready"
    BLOCKED = "blocked"
    """Waits for a person or another system, such as a safeguard stop or remote control being off; see `faults`."""
    FAULT = "fault"
    """A protective or emergency stop, or a broken link; see `faults`. `recover` may leave it."""
    RECOVERING = "recovering"


class ArmState(NamedTuple):
    """One measurement."""

    time: float
    """Seconds on the arm's own clock. It must advance: a state that repeats its time is a dead link."""
    position: Vector
    """Tool point in the base frame."""
    orientation: Quaternion
    twist: Twist
    """Measured tool velocity."""
    q: tuple[float, ...]
    qdot: tuple[float, ...]
    gripper: float
    """Opening, 0 closed … 1 open."""
    mode: ArmMode = ArmMode.READY
    faults: tuple[str, ...] = ()
    """Texts for people; empty when READY."""
    locked: bool = False
    """Leaving this fault unlocks a protective stop, powers on or releases brakes: that takes more than clearing a fault."""
    notes: tuple[str, ...] = ()
    """What a person should know although the arm can move, such as a gripper that does not answer."""
    jacobian: NDArray[np.float64] | None = None
    """6 x joints, maps qdot to `twist`; None where the arm does not know it. The joint limits of the filter need it."""
    safety_stop: bool = False
    """Whether the arm's own safety system has stopped it, such as a protective stop: it may well have been driven into that."""


@runtime_checkable
class Arm(Protocol):
    """Any arm. One thread calls all of it, every `period` seconds, so no method may block longer than that, but `connect`."""

    name: str
    """For people and for `status`, such as "UR5e at 192.168.1.10"."""
    base_frame: str
    """The `frame_id` of poses and twists."""
    joint_names: tuple[str, ...]
    simulated: bool
    """Whether no person can be hurt by it. An arm that does not say so is a real one."""
    period: float
    """Control period the arm wants, seconds; `send_twist` is called once in each."""

    def connect(self) -> None:
        """Reach the arm, at rest; ArmError if it does not answer. May be called again after a failure."""
        ...

    def read(self) -> ArmState:
        """The newest state; ArmError when the link is gone."""
        ...

    def send_twist(self, twist: Twist) -> None:
        """Move the tool with this velocity for one period; a simulated arm advances its world by one period here.

        The arm must come to rest by itself if no further call follows.
        """
        ...

    def send_gripper(self, opening: float) -> None:
        """Start to move the gripper to this opening, 0 closed … 1 open."""
        ...

    def stop(self) -> None:
        """Come to rest as fast as the arm can by itself; called when motion ends for good or something is wrong."""
        ...

    def recover(self) -> None:
        """Begin to leave a fault of the arm's own; returns at once, `read` shows RECOVERING and then READY or FAULT."""
        ...

    def close(self) -> None:
        """Stop, release the link. May be called twice and after a failed `connect`."""
        ...


@runtime_checkable
class Drawn(Protocol):
    """An arm that can be shown."""

    description: str
    """Its URDF."""
    finger_joints: tuple[str, ...]
    finger_travel_m: float
    """How far each finger goes from closed to open."""


@runtime_checkable
class Configured(Protocol):
    """An arm with settings of its own."""

    settings_text: str
    """What it goes by, in a line for people."""

    def limit_faults(self, limits: Limits) -> list[str]:
        """What is wrong with limits that it should move within."""
        ...


@runtime_checkable
class Restarting(Arm, Protocol):
    """A simulated arm that the service `reset` can put back."""

    def restart(self) -> None:
        """To the start of an episode, at rest; the clock goes on. Called between two periods."""
        ...


def state_dict(state: ArmState) -> dict[str, Any]:
    """The state as plain values, for logs."""
    shown = {name: getattr(state, name) for name in state._fields if name != "jacobian"}
    return shown | {"mode": state.mode.value}
