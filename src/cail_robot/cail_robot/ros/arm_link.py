"""Client-side interface of an arm's node: what the desk of a recording and a policy at work need of it. No ROS here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cail_core.recording.sync import ArmSample, Vector
from cail_robot.control.state_machine import StatusCode
from cail_robot.teleop.command import Axes


@dataclass(frozen=True)
class ArmReport:
    """What the arm last said of itself."""

    state: str = "no word from the arm's node yet"
    warning: str = ""
    """What the safety filter did to the last command, where it did something."""
    position: tuple[float, ...] = ()
    gripper: float | None = None
    code: StatusCode = StatusCode.UNKNOWN
    """`state` for programs."""


class ArmLink(Protocol):
    """The arm as the desk needs it; `ArmClient` is it over ROS."""

    report: ArmReport

    def move(self, twist: Axes) -> None: ...

    def grip(self, opening: float) -> None: ...

    def stop(self) -> None:
        """Latch a stop."""
        ...

    def permit(self) -> None:
        """Clear a fault, or permit motion."""
        ...

    def reset(self) -> None:
        """Put the scene back; `answer` tells when it is done."""
        ...

    def answer(self) -> tuple[str, bool, str] | None:
        """What a service answered since the last call: which, whether it did it, its words."""
        ...


class PolicyLink(ArmLink, Protocol):
    """The arm and the scene as a deployment needs them; `ArmClient` is it over ROS."""

    needs: tuple[str, ...]

    @property
    def permitted(self) -> bool: ...

    @property
    def ready(self) -> bool: ...

    @property
    def state(self) -> str: ...

    def ages(self) -> dict[str, float]: ...

    def look(self, gripper_cmd: float | None) -> ArmSample | None: ...

    def executed(self) -> list[tuple[float, Vector]]:
        """How long ago, by its stamp, each twist was executed that came since the last call, and which, the oldest first."""
        ...

    def tell(self, text: str) -> None: ...
