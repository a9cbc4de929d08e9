"""Client-side interface of an arm's node: what the desk of a recording and a policy at work need of it. No ROS here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cail_core.recording.sync import ArmSample, Vector
from cail_robot.control.state_machine import StatusCode
from cail_robot.teleop.command import NOWHERE, Axes

LET_GO_S = 1.0
"""So long the arm's node may take to answer that nobody commands any more."""


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

    @property
    def simulated(self) -> bool | None:
        """What the arm says of itself; None until it has said something."""
        ...

    def move(self, twist: Axes) -> None: ...

    def grip(self, opening: float) -> None: ...

    def stop(self) -> None:
        """Latch a stop."""
        ...

    def permit(self) -> None:
        """Clear a fault, or permit motion."""
        ...

    def unlock(self) -> None:
        """End a protective stop, power on, release brakes: only after a person has looked."""
        ...

    @property
    def note(self) -> str:
        """What is wrong although the arm can move, such as a gripper that does not answer."""
        ...

    def disable(self) -> None:
        """Nobody commands any more: motion needs a new permission."""
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

    @property
    def wrong_frames(self) -> list[str]:
        """Which poses are not of the arm's base frame, and of which."""
        ...

    def look(self, gripper_cmd: float | None) -> ArmSample | None: ...

    def executed(self) -> list[tuple[float, Vector]]:
        """How long ago, by its stamp, each twist was executed that came since the last call, and which, the oldest first."""
        ...

    def tell(self, text: str) -> None: ...


def let_go(link: ArmLink, *, latch: bool, sleep: Callable[[float], None] = time.sleep) -> bool:
    """At a commander's end: zero, then motion disabled, or where somebody broke off a latched stop. Whether the arm said so.

    The service is waited for: a process that ends with its request still in a queue would leave the arm enabled.
    """
    while link.answer() is not None:
        pass  # of what was asked before
    link.move(NOWHERE)
    if latch:
        link.stop()
    else:
        link.disable()
    for _ in range(round(LET_GO_S / 0.01)):
        if (answer := link.answer()) is not None and answer[0] in ("stop", "disable"):
            return answer[1]
        sleep(0.01)
    return False
