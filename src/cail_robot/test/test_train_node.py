"""The training node as a process of its own, over real DDS: what it says, that it stops and goes on, and what it trains."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy")

from ros_bench import environment, own_domain

from cail_core.cli import main
from cail_robot.ros.operator import wait_for
from cail_robot.ros.runtime import STATE_QOS, STATUS_QOS, join
from cail_robot.ros.train_node import NUMBERS, Progress

own_domain()
STEPS = 20_000
CHECKPOINT = 5 * 500
"""Steps between two checkpoints with the settings below."""
RESULTS = ("policy/policy.safetensors", "confidence.parquet", "metrics.csv", "ranked.csv")
NODE = "import sys; from cail_robot.ros.train_node import main; sys.exit(main())"
UNHURRIED = """
import sys, time
from cail_robot.ros import train_node
told = train_node.Trainer._watch
def watch(self, done, steps, metrics):
    told(self, done, steps, metrics)
    while not self._asked and self._broadcast._node._progress.get_subscription_count() == 0:
        time.sleep(0.01)
    time.sleep(1.5 * train_node.PUBLISH_PERIOD_S)
train_node.Trainer._watch = watch
sys.exit(train_node.main())
"""
"""Goes on once it is heard, and each phase lasts long enough to be told: the rest of a run can be shorter than discovery."""
WITHOUT_ROS_AFTER = """
import sys, rclpy
from cail_robot.ros import train_node
told = train_node.Trainer._watch
def watch(self, done, steps, metrics):
    told(self, done, steps, metrics)
    if done:
        rclpy.try_shutdown()
train_node.Trainer._watch = watch
sys.exit(train_node.main())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With ranked demonstrations, and settings of `cail` with little work in an iteration."""
    made = tmp_path_factory.mktemp("training")
    demos = str(made / "demos")
    assert main(["demos", "collect", "--task", "pointmass", "--mix", "paper", "--episodes", "20", "--out", demos]) == 0
    assert main(["demos", "rank", demos, "--by", "return", "--fraction", "0.3"]) == 0
    (made / "small.yaml").write_text(
        "checkpoint_every: 5\noffline_confidence: {steps: 5, batch_size: 100}\ndiscriminator: {updates: 2, batch_size: 100}\n"
        "ppo: {rollout_steps: 500, num_envs: 10, epochs: 2, minibatch: 250}\n"
    )
    return made


def arguments(folder: Path, out: str, *more: str) -> list[str]:
    return ["--task", "pointmass", "--demos", str(folder / "demos"), "--config", str(folder / "small.yaml"), "--seed", "3",
            "--steps", str(STEPS), "--out", str(folder / out), *more]  # fmt: skip


class Running:
    """A node at work; killed at the end if it still lives."""

    def __init__(self, words: list[str], program: str = NODE) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", program, *words], env=environment(), text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def end(self) -> tuple[int, str]:
        """The exit code and what it said on stderr."""
        _, said = self.process.communicate(timeout=300)
        return self.process.returncode, said


class Listener:
    """Hears all that a training says."""

    def __init__(self) -> None:
        from diagnostic_msgs.msg import DiagnosticArray
        from std_msgs.msg import Float64MultiArray, String

        self.context, self.node, self.executor = join("listener", "training")
        self.progress: list[dict[str, Any]] = []
        self.numbers: list[Any] = []
        self.diagnostics: list[Any] = []
        node = self.node
        node.create_subscription(String, "progress", lambda m: self.progress.append(json.loads(m.data)), STATUS_QOS)
        node.create_subscription(Float64MultiArray, "numbers", self.numbers.append, STATUS_QOS)
        node.create_subscription(DiagnosticArray, "/diagnostics", self.diagnostics.append, STATE_QOS)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def _spin(self) -> None:
        while not self._ending.is_set():
            self.executor.spin_once(timeout_sec=0.05)

    def close(self) -> None:
        import rclpy

        self._ending.set()
        self._thread.join()
        self.executor.shutdown()
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)

    def phase(self, phase: str, *, after: int = 0) -> dict[str, Any]:
        """The first message of a phase; `after` so many messages that do not count."""

        def heard() -> dict[str, Any] | None:
            return next((progress for progress in self.progress[after:] if progress["phase"] == phase), None)

        found: dict[str, Any] = wait_for(heard, f"the phase {phase}", 180.0)
        return found


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def test_stopped_before_the_first_checkpoint_it_ends_at_once_and_says_that_it_starts_anew(
    folder: Path, listener: Listener
) -> None:
    """The way to a checkpoint can be minutes long; without any there is nothing to wait for."""
    command = arguments(folder, "early")
    with Running(command, UNHURRIED) as first:
        listener.phase("training")
        first.process.send_signal(signal.SIGINT)
        stopped = listener.phase("stopped")
        code, said = first.end()
    assert code == 0, said
    assert stopped["step"] < CHECKPOINT
    assert stopped["message"] == "no checkpoint had been reached: the same command starts anew"
    assert "stopping" not in {progress["phase"] for progress in listener.progress}
    assert not (folder / "early" / "checkpoint.safetensors").exists()


def test_a_run_that_is_complete_is_said_to_be(folder: Path, listener: Listener) -> None:
    command = [*arguments(folder, "short"), "--report", "false"]
    command[command.index("--steps") + 1] = "500"
    for _ in range(2):
        with Running(command, UNHURRIED) as node:
            done = listener.phase("done", after=len(listener.progress))
            assert node.end()[0] == 0
    assert "the run was complete before, with 500 steps" in done["message"]
    assert Progress("t", "m", 0, "o", "training", 500, 500, math.nan, 0.0).text() == "training: step 500 of 500"


def test_stopped_twice_and_gone_on_with_it_trains_what_cail_train_trains(folder: Path, listener: Listener) -> None:
    assert main(["train", *arguments(folder, "whole")]) == 0
    command = arguments(folder, "run")
    with Running(command, UNHURRIED) as first:
        begun = listener.phase("training")
        wait_for(lambda: listener.progress[-1]["step"] > CHECKPOINT, "the first checkpoint, and the way to the next")
        first.process.send_signal(signal.SIGINT)
        stopping = listener.phase("stopping")
        stopped = listener.phase("stopped")
        code, said = first.end()
    assert code == 0, said
    assert stopping["message"].startswith("at the next checkpoint")
    assert stopped["message"] == "the same command goes on from the last checkpoint"
    assert begun["steps"] == STEPS
    assert (begun["task"], begun["method"], begun["seed"]) == ("pointmass", "cail", 3)
    assert 0 < stopped["step"] < STEPS
    assert stopped["step"] % CHECKPOINT == 0  # it went on to a checkpoint, and nothing after it is lost
    assert len((folder / "run" / "metrics.csv").read_text().splitlines()) == 1 + stopped["step"] // 500

    heard = len(listener.progress)
    with Running(command, UNHURRIED) as second:
        resumed = listener.phase("training", after=heard)
        second.process.send_signal(signal.SIGINT)
        wait_for(lambda: listener.progress[-1]["phase"] in ("stopping", "stopped"), "the first SIGINT to be seen")
        second.process.send_signal(signal.SIGTERM)
        assert second.end()[0] == 0
    assert resumed["step"] >= stopped["step"]

    heard = len(listener.progress)
    with Running([*command, "--report", "false"], UNHURRIED) as third:
        done = listener.phase("done", after=heard)
        code, said = third.end()
    assert code == 0, said
    assert done["step"] == STEPS
    assert done["eta_s"] == 0
    for name in RESULTS:
        assert (folder / "run" / name).read_bytes() == (folder / "whole" / name).read_bytes(), name
    assert (folder / "whole" / "report.html").exists()
    assert not (folder / "run" / "report.html").exists()

    steps = [p["step"] for p in listener.progress[heard:]]
    assert steps == sorted(steps)
    measured = [p for p in listener.progress if p["phase"] == "training" and p["steps_per_s"] is not None]
    assert measured
    assert all(p["eta_s"] == pytest.approx((p["steps"] - p["step"]) / p["steps_per_s"]) for p in measured)
    last = listener.numbers[-1]
    assert last.layout.dim[0].label.split(",") == list(NUMBERS)
    assert dict(zip(NUMBERS, last.data, strict=True))["step"] == STEPS
    status = listener.diagnostics[-1].status[0]
    assert (status.name, status.hardware_id) == ("training", str(folder / "run"))
    assert status.message.startswith("done: policy: ")
    assert {pair.key: pair.value for pair in status.values}["step"] == str(STEPS)


def test_the_training_goes_on_without_ros_and_ends_with_policy_and_report(folder: Path) -> None:
    with Running(arguments(folder, "alone", "--steps", "5000"), WITHOUT_ROS_AFTER) as node:
        code, said = node.end()
    assert code == 0, said
    assert said.count("progress is no longer published") == 1
    assert (folder / "alone" / "policy" / "policy.safetensors").exists()
    assert (folder / "alone" / "report.html").exists()


@pytest.mark.parametrize(("words", "told"), [
    (["--seed", "odd"], "expected a whole number of 0 or more, given 'odd'"),
    (["--method", "cial"], "expected a method out of"),
    (["--demos", "nowhere"], "nowhere"),
])  # fmt: skip
def test_bad_input_is_one_line_and_leaves_nothing(folder: Path, words: list[str], told: str) -> None:
    with Running(arguments(folder, "never", *words)) as node:
        code, said = node.end()
    lines = [line for line in said.splitlines() if "train_node: " in line]
    assert code == 2, said
    assert len(lines) == 1, said
    assert told in lines[0]
    assert "Traceback" not in said
    assert not (folder / "never").exists()


def test_what_is_not_known_is_null_in_json_and_nan_in_numbers() -> None:
    progress = Progress("pointmass", "bc", 0, "run", phase="training", step=50, steps=100, metrics={"outer_loss": 0.5})
    assert progress.values() | {"metrics": {}} == {
        "task": "pointmass", "method": "bc", "seed": 0, "out": "run", "phase": "training", "step": 50, "steps": 100,
        "return": None, "outer_loss": 0.5, "confidence_spread": None, "steps_per_s": None, "eta_s": None, "message": "",
        "metrics": {},
    }  # fmt: skip
    step, steps, returned, outer, *rest = progress.numbers()
    assert (step, steps, outer) == (50.0, 100.0, 0.5)
    assert all(map(math.isnan, [returned, *rest]))
    assert os.linesep not in progress.text()
