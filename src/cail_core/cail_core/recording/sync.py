"""From messages to samples: what was measured, requested and executed at one instant of the arm's control loop.

Recorder, policy and environment make their samples here, so that a policy sees at run time what a dataset holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cail_core.errors import DatasetError
from cail_core.geometry import STILL
from cail_core.recording import cdr
from cail_core.recording.bag import Message
from cail_core.recording.topics import FLOAT, JOINTS, POSE, TWIST, topics_with

Vector = tuple[float, ...]
STALE_NS = 100_000_000
"""A command older than this was not what the arm acted on."""
CLOCK_STEP_NS = 50_000_000
"""Stamps that fall by more than this are of a clock that was set back."""
REMEMBERED = 1000
"""Messages of a topic that wait for their sample: those of a tracker whose clock is ahead."""
_Waiting = tuple[int, int, Vector, dict[str, float | None]]
_MISSING = "the recording has no {}: it was made without that topic"


@dataclass(frozen=True)
class ArmSample:
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
    """What the task needs, by topic: a pose as `pose` is, a twist, a number as a tuple of one."""


class TopicSynchronizer:
    """Makes samples of messages that arrive in any order within a period.

    Each `twist_executed` is a sample. It takes of every stamped topic the latest message whose stamp is not after its own.
    Messages without a stamp, such as the gripper's, count as they were last heard when `twist_executed` came. A sample is
    complete when the next one arrives (`feed`); `latest` is what can be told before that.
    """

    def __init__(self, needs: Mapping[str, str]) -> None:
        """`needs`: topic -> type of what the task looks at beside the arm (`TaskSpec.needs`)."""
        self._kinds = {name: topic.type for name, topic in topics_with(needs).items()}
        self._needs = tuple(needs)
        self._seen: dict[str, deque[tuple[int, Vector]]] = {name: deque(maxlen=REMEMBERED) for name in self._kinds}
        self._loose: dict[str, float | None] = {name: None for name, kind in self._kinds.items() if kind == FLOAT}
        self._waiting: _Waiting | None = None
        self._sent_ns: int | None = None
        self._last: ArmSample | None = None

    def feed(self, message: Message, sent_ns: int | None = None) -> ArmSample | None:
        """Take one message; the sample that it completes, if it does. `sent_ns`: when it was sent, where that is known: then one
        without a stamp that was held up on the way counts as if it had come in time."""
        name, kind = message.topic, self._kinds[message.topic]
        if name == "twist_executed":
            stamp, _, values = cdr.read_stamped(message.data, 6)
            finished, self._waiting = self._waiting, (stamp, message.sequence, values, dict(self._loose))
            self._sent_ns = sent_ns
            return self._complete(finished)
        if kind == FLOAT:
            self._loose[name] = value = cdr.read_float64(message.data)
            if self._waiting is not None and sent_ns is not None and self._sent_ns is not None and sent_ns < self._sent_ns:
                self._waiting[3][name] = value
        elif kind in (TWIST, POSE):
            stamp, _, values = cdr.read_stamped(message.data, 6 if kind == TWIST else 7)
            self._keep(name, stamp, values)
        elif kind == JOINTS:
            joints = cdr.read_joint_state(message.data)
            self._keep(name, joints.stamp_ns, joints.position)
        return None

    def _keep(self, name: str, stamp: int, values: Vector) -> None:
        if stamp < self._newest(name) - CLOCK_STEP_NS:
            self._seen[name].clear()  # its clock was set back: what it said before would count as newer for as long
        self._seen[name].append((stamp, values))

    def flush(self) -> ArmSample | None:
        """The sample that waits for its end; None where there is none."""
        finished, self._waiting = self._waiting, None
        return self._complete(finished)

    def _complete(self, waited: _Waiting | None) -> ArmSample | None:
        if waited is None:
            return None
        self._last = self._sample(*waited)
        return self._last

    def latest(self) -> ArmSample | None:
        """The newest sample whose pose has come, complete or not; None until every needed topic was heard."""
        if self._waiting is None or self._newest("ee_pose") < self._waiting[0]:
            return self._last
        try:
            self._last = self._sample(*self._waiting)
        except DatasetError:  # something was never heard yet
            return None
        return self._last

    def is_final(self, sample: ArmSample) -> bool:
        """Whether no message that is still to come can change the sample, if every topic's stamps only rise."""
        stamped = ("ee_pose", *(name for name in self._needs if self._kinds[name] != FLOAT))
        return all(self._newest(name) >= sample.stamp_ns for name in stamped)

    def _newest(self, name: str) -> int:
        return self._seen[name][-1][0] if self._seen[name] else -1

    def _sample(self, stamp: int, sequence: int, executed: Vector, loose: dict[str, float | None]) -> ArmSample:
        command = self._at("twist_cmd", stamp)
        return ArmSample(
            stamp,
            sequence,
            executed,
            command[1] if command is not None and stamp - command[0] <= STALE_NS else STILL,
            self._needed("ee_pose", stamp),
            self._value("ee_twist", stamp, STILL),
            self._value("joint_states", stamp, ()),
            self._number("gripper_state", loose),
            loose["gripper_cmd"],
            {name: (self._number(name, loose),) if self._kinds[name] == FLOAT else self._needed(name, stamp)
             for name in self._needs},
        )  # fmt: skip

    def _at(self, name: str, stamp: int) -> tuple[int, Vector] | None:
        """The latest message whose stamp is not after `stamp`; older ones are forgotten."""
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

    def _number(self, name: str, loose: Mapping[str, float | None]) -> float:
        found = loose[name] if loose[name] is not None else self._loose[name]
        if found is None:
            raise DatasetError(_MISSING.format(name))
        return found


def samples_of(messages: Iterable[Message], needs: Mapping[str, str]) -> Iterator[ArmSample]:
    """All samples of a recording."""
    making = TopicSynchronizer(needs)
    for message in messages:
        sample = making.feed(message)
        if sample is not None:
            yield sample
    last = making.flush()
    if last is not None:
        yield last
