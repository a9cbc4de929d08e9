"""For tests of deployments over real DDS: a tracker, an arm that moves as told, a policy for it, and what is heard of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from builders import fast_folder
from reach import install
from reach_policy import START, near_guard, write_policy
from ros_bench import node_process

from cail_robot.ros.operator import Operator, wait_for
from cail_robot.ros.runtime import STATE_QOS

HERE = Path(__file__).parent
DEPLOY = ("-m", "cail_core.cli", "deploy", "--robot", "running", "--robot-type", "panda_sim")
PATIENCE_S = 90.0


class Tracker:
    """Says where the target is, 50 times a second, while it is on."""

    def __init__(self, operator: Operator) -> None:
        from geometry_msgs.msg import PoseStamped

        self._message, self._node = PoseStamped, operator.node
        self._publisher = operator.node.create_publisher(PoseStamped, "target_pose", STATE_QOS)
        self.target = (START[0] + 0.1, START[1], START[2])
        self.on = True
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(0.02):
            if self.on:
                message = self._message()
                message.header.stamp, message.header.frame_id = self._node.get_clock().now().to_msg(), "base"
                p = message.pose.position
                p.x, p.y, p.z = self.target
                message.pose.orientation.w = 1.0
                self._publisher.publish(message)

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


@contextmanager
def with_policy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the task `reach` installed for child processes, and its policy `p`."""
    with fast_folder() as made:
        install(Path(made, "site"))
        path = os.pathsep.join([str(Path(made, "site")), str(HERE), os.environ.get("PYTHONPATH", "")])
        monkeypatch.setenv("PYTHONPATH", path)
        write_policy(Path(made, "p"), near_guard())
        yield Path(made)


@contextmanager
def scene() -> Iterator[tuple[Operator, Tracker, Any]]:
    with node_process(HERE / "reach_policy.py") as arm, Operator() as operator:
        tracker = Tracker(operator)
        try:
            yield operator, tracker, arm
        finally:
            tracker.end()


def executed(operator: Operator) -> tuple[float, float]:
    """The newest executed velocity along x and y."""
    v = operator.heard["twist_executed"][-1].twist.linear
    return round(v.x, 4), round(v.y, 4)


def drives(operator: Operator) -> None:
    wait_for(lambda: operator.heard["twist_executed"] and executed(operator)[0] > 1e-3, "the policy to drive", PATIENCE_S)


def said(deploy: Any) -> str:
    """All that it printed until its end, with single spaces."""
    text, _ = deploy.communicate(timeout=PATIENCE_S)
    return "\n".join(" ".join(line.split()) for line in str(text).splitlines())


def settings(folder: Path, **changes: float) -> list[object]:
    """Options for a test machine that may be very busy."""
    patient = {"arm_max_age_s": 30.0, "things_max_age_s": 30.0, "lost_after_s": 60.0, **changes}
    file = folder / f"settings-{len(list(folder.iterdir()))}.yaml"
    file.write_text("".join(f"{name}: {value}\n" for name, value in patient.items()))
    return ["--config", file, "--silence", 60]


def until_said(deploy: Any, text: str) -> None:
    """Read what it prints until that comes."""
    heard = []
    for line in deploy.stdout:
        heard.append(line)
        if text in line:
            return
    raise AssertionError(f"expected {text!r}, it said:\n{''.join(heard)}")
