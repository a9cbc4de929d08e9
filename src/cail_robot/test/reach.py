"""A small task over the arm's topics for the tests: bring the tool to the target. And an arm's messages without an arm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cail_core.recording import cdr
from cail_core.recording.bag import Message
from cail_core.recording.sync import ArmSample, Vector
from cail_core.recording.topics import POSE
from cail_core.tasks import TaskSpec
from cail_robot.recording.recorder import Recorder

FULL_SPEED = 0.5
RATE = 50


class ReachView:
    def begin(self, moment: ArmSample) -> None:
        self.steps = 0

    def observe(self, moment: ArmSample) -> Sequence[float]:
        return [t - x for t, x in zip(moment.things["target_pose"][:3], moment.pose[:3], strict=True)] + [moment.gripper]

    def advance(self, moment: ArmSample, executed: Vector) -> tuple[float, str | None]:
        self.steps += 1
        distance = math.dist(moment.things["target_pose"][:3], moment.pose[:3])
        return -distance, "success" if distance < 0.01 else None

    def action(self, twist: Vector, moment: ArmSample) -> Sequence[float]:
        return [v / FULL_SPEED for v in twist[:3]]

    def twist(self, action: Sequence[float]) -> Vector:
        return (*(FULL_SPEED * a for a in action), 0.0, 0.0, 0.0)

    def gripper(self, moment: ArmSample, action: Sequence[float]) -> float | None:
        return None


class Reach:
    """Registered as `reach` by `install`."""

    def __init__(self, config_file: Path | None = None) -> None:
        self.spec = TaskSpec("reach", "Bring the tool to the target.", "stick", RATE, 500, ("dx", "dy", "dz", "gripper"),
                             ("vx", "vy", "vz"), f"{FULL_SPEED} m/s", has_success=True, needs={"target_pose": POSE})  # fmt: skip

    def make_env(self, num_envs: int) -> Any:
        raise AssertionError("a recorder acts in no environment of the task")

    def mixes(self) -> dict[str, Any]:
        return {}

    def over_topics(self, rate: int) -> ReachView:
        return ReachView()


def install(folder: Path) -> None:
    """Make the task known as an installed package would: put `folder` on the path."""
    about = folder / "reach_for_tests-0.0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: reach-for-tests\nVersion: 0.0\n")
    (about / "entry_points.txt").write_text("[cail.tasks]\nreach = reach:Reach\n")


class Messages:
    """What an arm's node publishes, cycle by cycle; the same seed says the same."""

    def __init__(self, seed: int = 0, hz: int = RATE, start_ns: int = 1_700_000_000_000_000_000) -> None:
        self.period_ns = 10**9 // hz
        self.now_ns = start_ns + seed * 10**12
        self.tool = [0.4, 0.1 * math.sin(seed), 0.2]
        self.target = [0.6, -0.1, 0.2 + 0.01 * (seed % 7)]
        self.gripper = 1.0
        self.count = 0

    def cycle(self, twist: Sequence[float] = (0.0,) * 3, *, without: Sequence[str] = ()) -> Iterator[Message]:
        """One period: the arm executes `twist`, was asked for half as much again, and says where that led."""
        executed = [*twist, 0.0, 0.0, 0.0]
        self.tool = [x + v * self.period_ns * 1e-9 for x, v in zip(self.tool, executed[:3], strict=True)]
        self.now_ns += self.period_ns
        stamp = self.now_ns
        self.count += 1
        made = {
            "twist_cmd": cdr.twist_stamped(stamp - 3_000_000, "base", [1.5 * v for v in executed]),
            "gripper_state": cdr.float64(self.gripper),
            "joint_states": cdr.joint_state(stamp, ["j1", "joint_2"], [0.1, self.tool[0]], [0.0, 0.5]),
            "twist_executed": cdr.twist_stamped(stamp, "base", executed),
            "ee_twist": cdr.twist_stamped(stamp, "base", executed),
            "ee_pose": cdr.pose_stamped(stamp, "base", [*self.tool, 0.0, 1.0, 0.0, 0.0]),
            "target_pose": cdr.pose_stamped(stamp, "base", [*self.target, 0.0, 0.0, 0.0, 1.0]),
        }
        for name, data in made.items():
            if name not in without:
                yield Message(name, data, self.now_ns + 1000, self.count)

    def towards_target(self, speed: float) -> list[float]:
        offset = [t - x for t, x in zip(self.target, self.tool, strict=True)]
        size = math.hypot(*offset)
        most = min(speed, size / (self.period_ns * 1e-9))
        return [most * d / size if size else 0.0 for d in offset]


def opened(root: Path, **options: object) -> Recorder:
    return Recorder(root, Reach(), **{"robot": "stick", "demonstrator": "anna", **options})  # type: ignore[arg-type]


def bytes_of(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def record(recorder: Any, messages: Messages, cycles: int, outcome: str = "success", idle: tuple[int, int] = (0, 0)) -> Any:
    """Record one episode: idle, drive towards the target, idle, save."""
    for _ in range(15):
        feed(recorder, messages.cycle())
    recorder.start()
    for i in range(idle[0] + cycles + idle[1]):
        moving = idle[0] <= i < idle[0] + cycles
        feed(recorder, messages.cycle(messages.towards_target(0.1) if moving else (0.0, 0.0, 0.0)))
    return recorder.save(outcome)


def feed(recorder: Any, messages: Iterator[Message]) -> None:
    for message in messages:
        recorder.hear(message)
