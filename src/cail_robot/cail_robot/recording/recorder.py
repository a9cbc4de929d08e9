"""Records demonstrations: a bag per episode, and the episode in the dataset. Plain Python; `RecorderNode` puts it on ROS.

What is saved is never lost. A bag is complete on the device before its episode enters the dataset, and its name says which of
the two has happened; a killed recorder leaves at most a bag whose episode the next one adds, and the open episode's rest, which
it removes.
"""

from __future__ import annotations

import json
import shutil
import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from cail_core import __version__, durable
from cail_core.demos import layout
from cail_core.demos.features import differences, features_from_json
from cail_core.demos.writer import DemoWriter
from cail_core.errors import BadInput, CailError, listed
from cail_core.recording import cdr
from cail_core.recording.bag import FOLDER, OPEN, SAVING, BagWriter, Message, load_mcap, mark_done, stem_of
from cail_core.recording.episode_builder import EpisodeMaker, RecordableTask, Timing, Trim, episode_from_bag, features_of
from cail_core.recording.rebuild import create
from cail_core.recording.sync import TopicSynchronizer
from cail_core.recording.topics import topics_with

SILENCE_S = 2.0
"""A topic that was silent for longer is missing."""
CLOCK_JUMP_S = 1.0
LEAST_FREE_BYTES = 200 * 2**20
"""Recording does not start with less space than this on the disk."""
MEASURED_PERIODS, LEAST_PERIODS = 50, 10
"""The arm's rate is the median of so many periods, and not known from fewer."""


class RecordingRefused(CailError):
    """An episode cannot begin or cannot be saved now; the text says why."""


@dataclass(frozen=True)
class Saved:
    """What `save` has put on the device."""

    episode: int
    frames: int
    outcome: str
    bag: Path


def check_fit(root: Path, task: RecordableTask, robot: str, rate: int) -> None:
    """BadInput where the dataset that is there is one of something else."""
    info, spec = layout.read_info(root), task.spec
    has = {"task": info.get("cail", {}).get("task"), "robot": info["robot_type"], "rate": info["fps"]}
    wanted = {"task": spec.name, "robot": robot, "rate": rate}
    faults = [f"{key}: it has {has[key]}, this recording has {wanted[key]}" for key in has if has[key] != wanted[key]]
    faults += [
        fault.replace("the first", "the dataset").replace("the second", "this recording")
        for fault in differences(features_from_json(info["features"]), features_of(spec))
    ]
    if faults:
        raise BadInput(listed(f"{root} is a dataset of something else; choose another folder, or what fits it", faults))


class Recorder:
    """One dataset folder, locked. Feed it every message with `hear`; `start`, then `save` or `discard`."""

    def __init__(
        self,
        root: Path,
        task: RecordableTask,
        *,
        robot: str,
        demonstrator: str,
        rate: int | None = None,
        namespace: str = "/arm",
        trim: Trim | None = None,
        least_free_bytes: int = LEAST_FREE_BYTES,
        silence_s: float = SILENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        load_mcap()  # here, and not while messages come
        self.root, self.demonstrator = root, demonstrator
        self.rate = task.spec.fps if rate is None else rate
        self.saved: list[Saved] = []
        self.discarded = 0
        self.warning = ""
        """Why the last recording stopped by itself."""
        self._task, self._robot, self._namespace, self._trim = task, robot, namespace, trim or Trim()
        self.needs = task.spec.needs
        self.topics = topics_with(task.spec.needs)
        """What it hears: the arm's topics and those that the task needs."""
        task.over_topics(self.rate)  # a rate that the task does not go with is refused before anything is made
        self._least_free, self._silence_s, self._clock = least_free_bytes, silence_s, clock
        self._needed = [topic.name for topic in self.topics.values() if topic.needed]
        self._lock = threading.RLock()
        self._latest: dict[str, tuple[Message, float]] = {}
        self._periods: deque[int] = deque(maxlen=MEASURED_PERIODS)
        self._executed: tuple[int, float] | None = None
        self.period_ns: int | None = None
        """From one moment to the next, as the arm's node says; measured where it does not."""
        self._start_ns = 0
        self._bag: BagWriter | None = None
        self._maker: EpisodeMaker | None = None
        self._sync = TopicSynchronizer(task.spec.needs)
        self._writer: DemoWriter | None = None
        self._open()

    # The dataset and its bags.

    def _open(self) -> None:
        if (self.root / layout.INFO).exists():
            check_fit(self.root, self._task, self._robot, self.rate)
            self._writer = DemoWriter.open(self.root)
        else:
            self._writer = create(self.root, self._task.spec, self._robot, self.rate)
        try:
            self._bags = self.root / FOLDER
            durable.make_folder(self._bags)
            for leftover in self._bags.glob(f"*{OPEN}"):
                leftover.unlink()
            rows = layout.read_episodes(self.root, self._writer.features)
            self._known = {str(name) for row in rows if (name := (row.recording or {}).get("bag"))}
            for path in sorted(self._bags.glob(f"*{SAVING}"), key=stem_of):
                if stem_of(path) not in self._known:
                    self._writer.save_episode(episode_from_bag(path, self._task))
                mark_done(path)
        except BaseException:
            self._writer.close()
            raise

    def close(self) -> None:
        with self._lock:
            if self._bag is not None:
                self._drop()
            if self._writer is not None:
                self._writer.close()

    @property
    def episodes(self) -> int:
        """How many the dataset holds."""
        return 0 if self._writer is None else self._writer.episodes

    @property
    def recording(self) -> bool:
        return self._bag is not None

    @property
    def frames(self) -> int:
        """Of the open episode."""
        maker = self._maker
        return 0 if maker is None else maker.frames

    @property
    def seconds(self) -> float:
        return self.frames / self.rate

    @property
    def task_outcome(self) -> str | None:
        """The task's word on how the open episode ended, once it has."""
        maker = self._maker
        return None if maker is None else maker.outcome

    @property
    def reached_ns(self) -> int:
        """Stamp of the newest state that is in a frame of the open episode."""
        maker = self._maker
        return 0 if maker is None else maker.reached_ns

    @property
    def outcomes(self) -> Counter[str]:
        """Of what was saved in this session."""
        return Counter(saved.outcome for saved in self.saved)

    # Messages.

    def hear(self, message: Message, sent_ns: int | None = None) -> None:
        """Take a message of one of the arm's topics, recording or not; one sent before the episode began is not part of it."""
        now = self._clock()
        with self._lock:
            self._latest[message.topic] = (message, now)
            if message.topic == "episode_event" and _begins(message):
                self._latest.pop("gripper_cmd", None)  # whatever was asked for, the scene is new
                if self.recording:
                    self._stop("the scene was put back meanwhile")
            if message.topic == "twist_executed" and not self._clock_is_sound(message, now):
                return
            if self._bag is None or self._maker is None or (sent_ns is not None and sent_ns < self._start_ns):
                return
            try:
                self._bag.write(message)
                moment = self._sync.feed(message)
                if moment is not None:
                    self._maker.add(moment)
            except (CailError, OSError) as fault:
                self._stop(str(fault))

    def _clock_is_sound(self, message: Message, now: float) -> bool:
        """Stamps advance, and not faster than time itself does; a simulator's may stand still."""
        stamp, before = cdr.read_stamped(message.data, 6).stamp_ns, self._executed
        self._executed = stamp, now
        if before is None:
            return True
        step = stamp - before[0]
        if 0 < step <= (now - before[1] + CLOCK_JUMP_S) * 1e9:
            self._periods.append(step)
            return True
        self._periods.clear()
        if self.recording:
            self._stop(f"the arm's clock jumped by {step / 1e9:+.3f} s; check the computers' time service")
        return False

    def check(self) -> None:
        """Call a few times a second: a topic that falls silent ends the open episode."""
        with self._lock:
            if self.recording:
                silent = self._silent()
                if silent:
                    self._stop(f"nothing came on {', '.join(silent)} for {self._silence_s:g} s; is the arm's node still up?")

    def _silent(self) -> list[str]:
        since = self._clock() - self._silence_s
        return [f"{self._namespace}/{name}" for name in self._needed if name not in self._latest or self._latest[name][1] < since]

    def _stop(self, why: str) -> None:
        """End the open episode without saving it; what was saved before is untouched."""
        self.warning = f"recording stopped, the open episode is discarded: {why}"
        self._drop()

    # Episodes.

    def start(self) -> int:
        """Begin an episode; returns its number. Everything that is in the way is said at once."""
        with self._lock:
            if self.recording:
                raise RecordingRefused("an episode is being recorded; save or discard it first")
            faults = []
            silent = self._silent()
            if self._writer is None or self._writer.failed:
                self._reopen()
            if silent:
                faults.append(f"nothing comes on {', '.join(silent)}; is the arm's node up, and the tracker?")
            free = shutil.disk_usage(self.root).free
            if free < self._least_free:
                faults.append(f"only {free / 2**20:.0f} MB are free on the disk, {self._least_free / 2**20:.0f} MB are needed")
            if not silent and self.period_ns is None and len(self._periods) < LEAST_PERIODS:
                faults.append("the arm's rate is not known yet; try again in a moment")
            if faults:
                raise RecordingRefused(listed("recording does not start", faults))
            timing = Timing.of(self.rate, self.period_ns or round(statistics.median(self._periods)))
            self.warning = ""
            self._timing = timing
            self._maker = EpisodeMaker(self._task, timing)
            self._sync = TopicSynchronizer(self._task.spec.needs)
            self._bag = BagWriter(self._bags, f"episode-{self._next_number():05d}", self._namespace, self._task.spec.needs)
            now = self._start_ns = time.time_ns()
            for name, (message, _) in self._latest.items():  # what is published once or seldom belongs to the episode too
                if name not in ("twist_executed", "episode_event"):
                    self.hear(message._replace(received_ns=now))
            return self.episodes

    def save(self, outcome: str, why: str = "") -> Saved:
        """Put the open episode on the device, as success or failure, and what ended it; it is there when this returns."""
        with self._lock:
            bag, maker, writer = self._bag, self._maker, self._writer
            if bag is None or maker is None or writer is None:
                raise RecordingRefused("no episode is being recorded; start one first")
            last = self._sync.flush()
            if last is not None:
                maker.add(last)
            episode = maker.episode(self.demonstrator, outcome, self._trim, bag.stem, why)  # refuses one without frames
            path = bag.finish(
                {
                    "task": self._task.spec.name,
                    "robot_type": self._robot,
                    "timing": asdict(self._timing),
                    "demonstrator": self.demonstrator,
                    "outcome": outcome,
                    "why": why,
                    "trim": asdict(self._trim),
                    "cail_version": __version__,
                    "saved_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                }
            )
            self._bag = self._maker = None
            index = writer.save_episode(episode)
            saved = Saved(index, episode.length, episode.outcome, mark_done(path))
            self.saved.append(saved)
            return saved

    def discard(self) -> None:
        """Forget the open episode."""
        with self._lock:
            if not self.recording:
                raise RecordingRefused("no episode is being recorded")
            self._drop()
            self.discarded += 1

    def _drop(self) -> None:
        if self._bag is not None:
            self._bag.discard()
        self._bag = self._maker = None

    def _reopen(self) -> None:
        """After a save that ended badly: the dataset completes itself, and the bag that waits gets its episode."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self._open()

    def _next_number(self) -> int:
        names = [stem_of(path) for path in self._bags.glob("*.mcap")] + [*self._known]  # whose bags may be elsewhere
        numbers = [int(name.rpartition("-")[2]) for name in names if name.rpartition("-")[2].isdecimal()]
        return max(numbers, default=-1) + 1


def _begins(message: Message) -> bool:
    """Whether the event says that the simulator put its scene back."""
    try:
        event = json.loads(cdr.read_string(message.data))
    except ValueError:
        return False
    return isinstance(event, dict) and event.get("event") == "started" and "recording" not in event
