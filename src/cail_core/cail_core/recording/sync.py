"""From messages to moments: what was measured, requested and executed at one instant of the arm's control loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cail_core.errors import DatasetError
from cail_core.recording import cdr
from cail_core.recording.bag import Message
from cail_core.recording.topics import JOINTS, POSE, TOPICS, TWIST

Vector = tuple[float, ...]
STILL = (0.0,) * 6
STALE_NS = 100_000_000
"""A command older than this was not what the arm acted on."""
_MISSING = "the recording has no {}: it was made without that topic"
THINGS = ("object_pose", "target_pose", "obstacle_pose")


@dataclass(frozen=True)
class Moment:
    """One period of the arm: the state reached and what was executed on the way there.

    Twists are (vx, vy, vz, wx, wy, wz) in the base frame.
    """

    stamp_ns: int
    sequence: int
    """The arm's count of its `twist_executed`; 0 where it is not known."""
    executed: Vector
    requested: Vector
    pose: Vector
    """Of the tool: x, y, z and the quaternion x, y, z, w."""
    twist: Vector
    q: Vector
    gripper: float
    gripper_cmd: float | None
    """The last opening asked for; None where nobody has asked yet."""
    things: dict[str, Vector] = field(default_factory=dict)
    """Poses of the task's things by topic, those that are published."""


class Moments:
    """Makes moments of messages that arrive in any order within a period.

    Each `twist_executed` is a moment; it is complete when the next one arrives, and takes of every stamped topic the newest
    message that is not younger. The gripper's messages have no stamp: what was last heard when `twist_executed` came counts.
    """

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[int, Vector]]] = {name: deque() for name in TOPICS}
        self._gripper: dict[str, float | None] = {"gripper_state": None, "gripper_cmd": None}
        self._waiting: tuple[int, int, Vector, dict[str, float | None]] | None = None

    def feed(self, message: Message) -> Moment | None:
        """Take one message; the moment that it completes, if it does."""
        name, kind = message.topic, TOPICS[message.topic].type
        if name == "twist_executed":
            stamp, _, values = cdr.read_stamped(message.data, 6)
            finished = self.flush()
            self._waiting = stamp, message.sequence, values, dict(self._gripper)
            return finished
        if name in self._gripper:
            self._gripper[name] = cdr.read_float64(message.data)
        elif kind in (TWIST, POSE):
            stamp, _, values = cdr.read_stamped(message.data, 6 if kind == TWIST else 7)
            self._seen[name].append((stamp, values))
        elif kind == JOINTS:
            joints = cdr.read_joint_state(message.data)
            self._seen[name].append((joints.stamp_ns, joints.position))
        return None

    def flush(self) -> Moment | None:
        """The moment that waits for its end; None where there is none."""
        if self._waiting is None:
            return None
        (stamp, sequence, executed, gripper), self._waiting = self._waiting, None
        opening = gripper["gripper_state"] if gripper["gripper_state"] is not None else self._gripper["gripper_state"]
        if opening is None:
            raise DatasetError(_MISSING.format("gripper_state"))
        command = self._at("twist_cmd", stamp)
        return Moment(
            stamp,
            sequence,
            executed,
            command[1] if command is not None and stamp - command[0] <= STALE_NS else STILL,
            self._needed("ee_pose", stamp),
            self._value("ee_twist", stamp, STILL),
            self._value("joint_states", stamp, ()),
            opening,
            gripper["gripper_cmd"],
            {name: self._needed(name, stamp) for name in THINGS if self._seen[name]},
        )

    def _at(self, name: str, stamp: int) -> tuple[int, Vector] | None:
        """The newest message that is not younger than `stamp`; older ones are forgotten."""
        seen = self._seen[name]
        while len(seen) > 1 and seen[1][0] <= stamp:
            seen.popleft()
        return seen[0] if seen and seen[0][0] <= stamp else None

    def _value(self, name: str, stamp: int, otherwise: Vector) -> Vector:
        found = self._at(name, stamp)
        return otherwise if found is None else found[1]

    def _needed(self, name: str, stamp: int) -> Vector:
        found = self._at(name, stamp) or next(iter(self._seen[name]), None)  # at the very start one may be a little younger
        if found is None:
            raise DatasetError(_MISSING.format(name))
        return found[1]


def moments_of(messages: Iterable[Message]) -> Iterator[Moment]:
    """All moments of a recording."""
    making = Moments()
    for message in messages:
        moment = making.feed(message)
        if moment is not None:
            yield moment
    last = making.flush()
    if last is not None:
        yield last
