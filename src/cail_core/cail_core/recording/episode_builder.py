"""From moments to a demonstration: the task says what was observed, what it cost and how it ended."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cail_core.demos.episode import Episode, end_flags
from cail_core.demos.features import ACTION, REQUESTED, REWARD, STATE, SUCCESS, Features, frame_features
from cail_core.errors import BadInput, DatasetError
from cail_core.recording.bag import read_about, read_messages, stem_of
from cail_core.recording.sync import ArmSample, Vector, samples_of
from cail_core.tasks import Task, TaskSpec, get_task

BY_TASK = ("dropped", "collided")
"""Outcomes that only the task itself gives: the episode was not broken off."""


class TopicView(Protocol):
    """A task seen through the arm's topics and those of `TaskSpec.needs`; one episode after another."""

    def begin(self, moment: ArmSample) -> None:
        """An episode starts as `moment` shows it."""
        ...

    def observe(self, moment: ArmSample) -> Sequence[float]:
        """The numbers that a policy sees."""
        ...

    def advance(self, moment: ArmSample, executed: Vector) -> tuple[float, str | None]:
        """The reward for having executed this twist and come to `moment`, and how the episode ended, if it did."""
        ...

    def action(self, twist: Vector, moment: ArmSample) -> Sequence[float]:
        """The action, 1 = full speed, that this twist is."""
        ...


@runtime_checkable
class ActingView(TopicView, Protocol):
    """A task that a policy can act in through the topics."""

    def twist(self, action: Sequence[float]) -> Vector:
        """The twist that an action in [-1, 1] asks for at the speed that the task is learned at."""
        ...

    def gripper(self, moment: ArmSample, action: Sequence[float]) -> float | None:
        """The opening to command together with this action, 0 closed … 1 open; None where the task has no gripper."""
        ...


@runtime_checkable
class RecordableTask(Task, Protocol):
    """A task that can be recorded from the arm's topics."""

    def over_topics(self, rate: int) -> TopicView:
        """The task as the topics show it, `rate` frames a second."""
        ...


@dataclass(frozen=True)
class Trim:
    """Which idle frames at the ends of an episode stay out of the dataset; the bag keeps all."""

    on: bool = False
    speed: float = 0.002
    """m/s or rad/s: below it the arm is idle."""
    margin_s: float = 0.2
    """So much stillness stays at each end."""


@dataclass(frozen=True)
class Timing:
    """How moments, which the arm's control loop paces, become frames."""

    rate: int
    """Frames a second."""
    moments_per_frame: int
    period_ns: int
    """From one moment to the next."""

    @classmethod
    def of(cls, rate: int, period_ns: int) -> Timing:
        """Whole moments per frame for an arm that publishes every `period_ns`; BadInput where they do not fit."""
        hz = 1e9 / period_ns
        per_frame = max(1, round(hz / rate))
        if abs(hz / per_frame - rate) > 0.1 * rate:
            raise BadInput(
                f"expected a rate that divides the arm's {hz:.0f} Hz, given {rate}; "
                f"for example {round(hz / per_frame)} or {round(hz / (per_frame + 1))}"
            )
        return cls(rate, per_frame, round(1e9 / (rate * per_frame)))


def recordable(name: str, config: Path | None = None) -> RecordableTask:
    task = get_task(name, config)
    if not isinstance(task, RecordableTask):
        raise BadInput(f"expected a task that can be seen through an arm's topics, (one with over_topics), given '{name}'")
    return task


def features_of(spec: TaskSpec) -> Features:
    return frame_features(spec.observation_names, spec.action_names, success=spec.has_success, requested=True)


class EpisodeMaker:
    """Collects one episode moment by moment; the same moments make the same episode, live or from a bag."""

    def __init__(self, task: RecordableTask, timing: Timing) -> None:
        self._view, self._spec, self._timing = task.over_topics(timing.rate), task.spec, timing
        self._states, self._actions, self._requested, self._rewards = array("f"), array("f"), array("f"), array("f")
        self._activity = array("f")  # the greatest speed in each frame, for trimming
        self._first: ArmSample | None = None
        self._frame: list[ArmSample] = []
        self._last: ArmSample | None = None
        self.frames = self.after_end = 0
        self.reached_ns = 0
        """Stamp of the state that the last whole frame led to."""
        self.late = self.lost = 0
        """Moments that came more than half a period late; moments that never came, by the arm's own count."""
        self.outcome: str | None = None
        """The task's own word on how it ended."""

    def add(self, moment: ArmSample) -> None:
        if self._last is not None:
            self.late += moment.stamp_ns - self._last.stamp_ns > 1.5 * self._timing.period_ns
            if self._last.sequence:
                self.lost += max(0, moment.sequence - self._last.sequence - 1)
        self._last = moment
        if self._first is None:
            self._first = moment
            self._view.begin(moment)
            self._states.extend(self._view.observe(moment))
            return
        self._frame.append(moment)
        if len(self._frame) == self._timing.moments_per_frame:
            self._end_frame(self._first, self._frame)
            self._first, self._frame = moment, []

    def _end_frame(self, first: ArmSample, moved: Sequence[ArmSample]) -> None:
        """A frame goes from `first` to the last of `moved`, by what was executed on the way."""
        reached = moved[-1]
        self.reached_ns = reached.stamp_ns
        if self.outcome is not None:
            self.after_end += 1
            self.frames += 1
            return
        executed, requested = _mean([m.executed for m in moved]), _mean([m.requested for m in moved])
        reward, self.outcome = self._view.advance(reached, executed)
        self._actions.extend(self._view.action(executed, first))
        self._requested.extend(self._view.action(requested, first))
        self._rewards.append(reward)
        self._states.extend(self._view.observe(reached))
        grips = first.gripper_cmd != reached.gripper_cmd or abs(first.gripper - reached.gripper) > 1e-3
        self._activity.append(math.inf if grips else max(map(abs, (*executed, *requested))))
        self.frames += 1

    def episode(self, demonstrator: str, outcome: str, trim: Trim, bag: str, why: str = "") -> Episode:
        """The demonstration; `outcome` is the word of who commanded. A person's, success or failure, the task makes more precise;
        a deployment has been told by the task already, and that stands.

        `why`: what ended it, where that was neither the task nor the time.
        """
        n = len(self._rewards)
        if n == 0:
            raise DatasetError("the episode has no frames yet; drive first, or discard it")
        start, end = self._kept(trim, n)
        states = np.array(self._states, dtype=np.float32).reshape(n + 1, -1)
        frames: dict[str, Any] = {
            STATE: states[start:end],
            ACTION: np.array(self._actions, dtype=np.float32).reshape(n, -1)[start:end],
            REQUESTED: np.array(self._requested, dtype=np.float32).reshape(n, -1)[start:end],
            REWARD: np.array(self._rewards, dtype=np.float32)[start:end],
        }
        succeeded = outcome == "success"
        if outcome == "failure" and self.outcome not in (None, "success"):
            outcome = self.outcome or outcome
        by_task = outcome in BY_TASK or (self.outcome is not None and self.outcome != "timeout")
        frames.update(end_flags(end - start, truncated=not (by_task or succeeded)))
        if self._spec.has_success:
            frames[SUCCESS] = np.zeros(end - start, dtype=bool)
            frames[SUCCESS][-1] = succeeded
        about = {
            "bag": bag,
            "frames": self.frames,
            "trimmed": [start, n - end],
            "after_end": self.after_end,
            "late": self.late,
            "lost": self.lost,
            "task_outcome": self.outcome,
            **({"why": why} if why else {}),
        }
        return Episode(frames, states[end].copy(), demonstrator, outcome, recording=about)

    def _kept(self, trim: Trim, n: int) -> tuple[int, int]:
        """First and one past the last frame that go into the dataset."""
        if not trim.on:
            return 0, n
        active = np.flatnonzero(np.array(self._activity) > trim.speed)
        if len(active) == 0:
            return 0, n
        margin = round(trim.margin_s * self._timing.rate)
        return max(0, int(active[0]) - margin), min(n, int(active[-1]) + 1 + margin)


def episode_from_bag(path: Path, task: RecordableTask, trim: Trim | None = None) -> Episode:
    """The demonstration that the bag holds, as it was saved; or trimmed otherwise."""
    about = about_episode(path)
    maker = EpisodeMaker(task, Timing(**about["timing"]))
    try:
        for moment in samples_of(read_messages(path, task.spec.needs), task.spec.needs):
            maker.add(moment)
    except (struct.error, UnicodeDecodeError) as fault:
        raise DatasetError(f"{path}: a message is not what its topic's type says ({fault})") from None
    return maker.episode(about["demonstrator"], about["outcome"], trim or Trim(**about["trim"]), stem_of(path),
                         about.get("why", ""))


def about_episode(path: Path) -> dict[str, Any]:
    """What the bag says of its episode and dataset."""
    about = read_about(path)
    missing = [key for key in ("task", "robot_type", "timing", "demonstrator", "outcome", "trim") if key not in about]
    if missing:
        raise DatasetError(f"{path}: does not say {', '.join(missing)}: another tool recorded it")
    return about


def _mean(twists: Sequence[Vector]) -> Vector:
    if len(twists) == 1:
        return twists[0]
    return tuple(float(sum(values) / len(twists)) for values in zip(*twists, strict=True))
