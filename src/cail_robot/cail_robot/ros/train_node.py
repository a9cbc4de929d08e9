"""The executable `train_node`: trains as `cail train` does, and says on ROS's topics how far it is.

The training has the main thread, the node a thread of its own. Whatever happens to ROS there, the training goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_msgs.msg import Float64MultiArray, MultiArrayDimension, String

from cail_core.cli import Parser, say
from cail_core.commands.train import add_arguments, train_as_asked
from cail_core.errors import CailError
from cail_core.launch_words import spoken
from cail_core.report.make import report_after_training
from cail_robot.ros.runtime import STATE_QOS, STATUS_QOS, start

NUMBERS = ("step", "steps", "return", "outer_loss", "confidence_spread", "steps_per_s", "eta_s")
"""What `/training/numbers` holds, in this order; NaN where there is none (cloning has no return)."""
PUBLISH_PERIOD_S = 0.2
RATE_WINDOW_S = 60.0
LOG_EVERY_S = 10.0
LAST_WORD_S = 2.0
"""So long the end waits for subscribers to have the last message."""
LEAVE_S = 30.0
"""So long the end waits for ROS altogether."""
UNCOUNTED = ("preparing", "report")
"""Phases that tell no step."""
LEVELS = {"stopped": DiagnosticStatus.WARN, "failed": DiagnosticStatus.ERROR}


@dataclass(frozen=True)
class Progress:
    """How far the training is."""

    task: str
    method: str
    seed: int
    out: str
    phase: str = "preparing"
    """preparing, training, stopping, report; at the end done, stopped or failed."""
    step: int = 0
    steps: int = 0
    steps_per_s: float = math.nan
    eta_s: float = math.nan
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The newest value of every number in metrics.csv."""
    message: str = ""

    def numbers(self) -> list[float]:
        known = {**self.metrics, "step": self.step, "steps": self.steps, "steps_per_s": self.steps_per_s, "eta_s": self.eta_s}
        return [float(known.get(name, math.nan)) for name in NUMBERS]

    def values(self) -> dict[str, Any]:
        """All of it for JSON, which has no NaN."""
        numbers = dict(zip(NUMBERS, self.numbers(), strict=True)) | {"step": self.step, "steps": self.steps}
        all_of_it = {**asdict(self), **numbers, "metrics": dict(self.metrics)}
        return json.loads(json.dumps(all_of_it), parse_constant=lambda _: None)  # type: ignore[no-any-return]

    def text(self) -> str:
        if self.message or not self.steps:
            return f"{self.phase}: {self.message}" if self.message else self.phase
        known = math.isfinite(self.steps_per_s) and math.isfinite(self.eta_s)
        rate = f", {self.steps_per_s:.0f} steps/s, {self.eta_s:.0f} s left" if known else ""
        shown = "".join(f", {name.replace('_', ' ')} {self.metrics[name]:.2f}" for name in NUMBERS if name in self.metrics)
        return f"{self.phase}: step {self.step} of {self.steps}{rate}{shown}"


class TrainingNode(Node):  # type: ignore[misc]
    """Publishes the newest `progress`: when it changes, and once a second on /diagnostics."""

    def __init__(self, progress: Progress) -> None:
        super().__init__("trainer", namespace="training")
        self.progress = progress
        self._said: Progress | None = None
        self._logged_at = 0.0
        self._phase_since = time.monotonic()
        self._progress = self.create_publisher(String, "progress", STATUS_QOS)
        self._numbers = self.create_publisher(Float64MultiArray, "numbers", STATUS_QOS)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", STATE_QOS)
        self.create_timer(PUBLISH_PERIOD_S, self.publish)
        self.create_timer(1.0, self._diagnose)

    def publish(self) -> None:
        progress, before = self.progress, self._said
        if progress is before:
            return
        self._said = progress
        self._progress.publish(String(data=json.dumps(progress.values())))
        message = Float64MultiArray(data=progress.numbers())
        message.layout.dim = [MultiArrayDimension(label=",".join(NUMBERS), size=len(NUMBERS), stride=len(NUMBERS))]
        self._numbers.publish(message)
        now = time.monotonic()
        if progress.phase == "failed":
            return  # the one line on stderr says it
        if before is None or before.phase != progress.phase:
            self._phase_since = now
        if before is None or before.phase != progress.phase or now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            self.get_logger().info(progress.text())

    def _still_here(self) -> None:
        """A phase without numbers, such as preparing, says now and then that it goes on."""
        now = time.monotonic()
        if self.progress is self._said and self.progress.phase in UNCOUNTED and now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            self.get_logger().info(f"{self.progress.phase}: {now - self._phase_since:.0f} s so far")

    def _diagnose(self) -> None:
        self._still_here()
        p = self.progress
        status = DiagnosticStatus(
            level=LEVELS.get(p.phase, DiagnosticStatus.OK), name="training", message=p.text(), hardware_id=p.out,
            values=[KeyValue(key=key, value="" if value is None else str(value))
                    for key, value in p.values().items() if key != "metrics"],
        )  # fmt: skip
        message = DiagnosticArray(status=[status])
        message.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(message)

    def last_word(self) -> None:
        """Publish what is left to say, and wait until those who listen have it."""
        self.publish()
        self._diagnose()
        until = time.monotonic() + LAST_WORD_S
        for publisher in (self._progress, self._numbers, self._diagnostics):
            publisher.wait_for_all_acked(Duration(seconds=max(0.0, until - time.monotonic())))


class Broadcast:
    """The node in a thread of its own. A fault of ROS ends the broadcast, with a warning, and nothing else."""

    def __init__(self, progress: Progress, arguments: list[str]) -> None:
        start(arguments)
        self._node = TrainingNode(progress)
        self._ending = threading.Event()
        self._lost = False
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    @property
    def progress(self) -> Progress:
        progress: Progress = self._node.progress
        return progress

    def tell(self, **changes: Any) -> None:
        self._node.progress = replace(self.progress, **changes)

    def _spin(self) -> None:
        try:
            executor = SingleThreadedExecutor()
            executor.add_node(self._node)
            while not self._ending.is_set():
                executor.spin_once(timeout_sec=PUBLISH_PERIOD_S)
            self._node.last_word()
        except Exception as fault:  # of many kinds, and none of them is the training's
            self._lost = True
            say(f"train_node: warning: progress is no longer published ({type(fault).__name__}: {fault}); the training goes on")

    def close(self) -> None:
        self._ending.set()
        self._thread.join(LEAVE_S)
        if not self._thread.is_alive() and not self._lost:
            self._node.destroy_node()
            rclpy.try_shutdown()


class Trainer:
    """The training of one run: what it tells, and how it is asked to end."""

    def __init__(self, args: argparse.Namespace, broadcast: Broadcast) -> None:
        self._args, self._broadcast = args, broadcast
        self._asked = self._left = False
        self._training = self._trained = False
        self._checkpoints: list[int] = []
        self._written = self._step_before = 0
        self._metrics: dict[str, float] = {}
        self._past: deque[tuple[float, int]] = deque()

    def run(self) -> int:
        args, tell = self._args, self._broadcast.tell
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        try:
            train_as_asked(args, watch=self._watch, stop=lambda: self._asked)
            self._training = False
            progress = self._broadcast.progress
            if progress.step < progress.steps:
                raise KeyboardInterrupt
            if args.report == "true":
                tell(phase="report", eta_s=0.0)
                report_after_training(args.out, args.demos)
            before = "" if self._trained else f"; the run was complete before, with {progress.step} steps, and is as it was"
            tell(phase="done", eta_s=0.0, message=f"policy: {args.out / 'policy'}{before}")
            return 0
        except KeyboardInterrupt:
            tell(phase="stopped", eta_s=math.nan, message="the same command goes on from the last checkpoint"
                 if self._has_checkpoint() else "no checkpoint had been reached: the same command starts anew")  # fmt: skip
            return 0
        except Exception as fault:
            tell(phase="failed", eta_s=math.nan, message=str(fault))
            if not isinstance(fault, (CailError, OSError)):
                raise
            say(spoken(f"train_node: {fault}"))
            return 2
        finally:
            self._left = True

    def _on_signal(self, number: int, frame: object) -> None:
        """Once: go on to the next checkpoint and end there. Again, or where there is nothing to go on from: end now."""
        if self._left:
            return
        if self._asked or not self._training or not self._has_checkpoint():
            self._left = True
            raise KeyboardInterrupt
        self._asked = True
        self._broadcast.tell(phase="stopping", message=f"at the next checkpoint{self._due()}; once more: now, at the last one")

    def _checkpoint(self) -> Path:
        from cail_core.training.run import CHECKPOINT  # here, since it brings torch: the node is up before that is loaded

        out: Path = self._args.out
        return out / CHECKPOINT

    def _has_checkpoint(self) -> bool:
        return self._checkpoint().is_file()

    def _due(self) -> str:
        """When the next checkpoint is, as far as those so far tell."""
        progress = self._broadcast.progress
        if len(self._checkpoints) < 2 or not math.isfinite(progress.steps_per_s):
            return ""
        step = min(2 * self._checkpoints[-1] - self._checkpoints[-2], progress.steps)
        return f", step {step}, in about {max(0.0, (step - progress.step) / progress.steps_per_s):.0f} s"

    def _watch(self, done: int, steps: int, metrics: Mapping[str, float]) -> None:
        self._training = True
        self._trained |= bool(metrics)
        self._remember_checkpoint(done, bool(metrics))
        self._metrics |= {name: value for name, value in metrics.items() if not math.isnan(value)}
        now = time.monotonic()
        self._past.append((now, done))
        while now - self._past[0][0] > RATE_WINDOW_S and len(self._past) > 2:
            self._past.popleft()
        seconds, made = now - self._past[0][0], done - self._past[0][1]
        rate = made / seconds if made else math.nan
        about: dict[str, Any] = {"phase": "stopping"} if self._asked else {"phase": "training", "message": ""}
        self._broadcast.tell(**about, step=done, steps=steps, metrics=dict(self._metrics), steps_per_s=rate,
                             eta_s=(steps - done) / rate if made else math.nan)


    def _remember_checkpoint(self, done: int, moved: bool) -> None:
        """The steps at which checkpoints were written, as seen when the next iteration has ended."""
        try:
            written = self._checkpoint().stat().st_mtime_ns
        except OSError:
            return
        if moved and written != self._written:
            self._checkpoints = [*self._checkpoints[-1:], self._step_before]
        self._written, self._step_before = written, done


def main(argv: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    ours = words[: words.index("--ros-args")] if "--ros-args" in words else words
    parser = Parser(prog="train_node", description="Train as `cail train` does and publish the progress. SIGINT or SIGTERM: "
                    "on to the next checkpoint, then end; a second one, or without any checkpoint so far: end at once. The same "
                    "command goes on.")  # fmt: skip
    add_arguments(parser)
    parser.add_argument("--report", choices=("true", "false"), default="true", help="write RUN/report.html; default: true")
    args = parser.parse_args(ours)
    broadcast = Broadcast(Progress(args.task, args.method, args.seed, str(args.out)), [parser.prog, *words[len(ours) :]])
    try:
        return Trainer(args, broadcast).run()
    finally:
        broadcast.close()
