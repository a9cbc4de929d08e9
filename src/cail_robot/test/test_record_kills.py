"""The arm's node and the desk as processes of their own, as the launch file starts them: each is killed, the other goes on."""

from __future__ import annotations

import os
import queue
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders import same_dataset, same_episode
from reach import Reach

pytest.importorskip("rclpy")

from ros_bench import node_process, own_domain, process

from cail_core.demos.check import check
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.episode import Episode
from cail_core.recording.bag import bags_of
from cail_core.recording.rebuild import rebuild
from cail_robot.recording.recorder import Recorder

own_domain()
NODE = Path(__file__).with_name("kinematic_arm.py")
KILLS = 3
PATIENCE_S = 90.0
EPISODE = "press c\nwait 0.2\npress enter\nhold {} 0.5\npress {}\n"


class Desk:
    """`cail record` driven by a script, an episode about every second; says what it prints."""

    def __init__(self, running: subprocess.Popen[str]) -> None:
        self.running = running
        self.said: list[str] = []
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.running.stdout
        for line in self.running.stdout:
            self._lines.put(line)

    def wait_for(self, *texts: str) -> str:
        """The next line with one of these in it."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            try:
                self.said.append(self._lines.get(timeout=0.1))
            except queue.Empty:
                assert self.running.poll() is None, "the desk ended: " + "".join(self.said)
                continue
            if any(text in self.said[-1] for text in texts):
                return self.said[-1]
        raise AssertionError(f"expected {texts}, the desk said: {''.join(self.said)}")


@contextmanager
def desk(root: Path, script: Path) -> Iterator[Desk]:
    with process(
        "-m", "cail_core.cli", "record", "--robot", "running", "--robot-type", "stick", "--task", "reach", "--silence", "1",
        "--demonstrator", "anna", "--input", "scripted", "--script", script, "--dataset", root,
    ) as running:  # fmt: skip
        yield Desk(running)


def kept(root: Path) -> tuple[list[Episode], dict[str, bytes]]:
    """What is saved now: episodes and bags."""
    return list(DemoDataset(root).iterate()), {path.name: path.read_bytes() for path in bags_of(root / "bags")}


def still_there(root: Path, before: tuple[list[Episode], dict[str, bytes]]) -> None:
    """Bit for bit."""
    episodes, bags = kept(root)
    assert len(episodes) >= len(before[0])
    for one, other in zip(before[0], episodes, strict=False):
        same_episode(one, other)
    assert before[1].items() <= bags.items()


def at_rest(trace: Path) -> bool:
    *_, last, _ = trace.read_text().split("\n")
    return max(abs(float(word)) for word in last.split()[1:]) < 1e-6


@pytest.fixture
def script(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Episodes without end, of a task that is installed where the desk looks."""
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{NODE.parent}")
    path = folder / "episodes.txt"
    path.write_text("wait 1\n" + "".join(EPISODE.format("up" if i % 2 else "down", "s" if i % 3 else "f") for i in range(300)))
    return path


def test_a_killed_arm_ends_the_open_episode_and_the_desk_goes_on(folder: Path, script: Path) -> None:
    rng, root = random.Random(1), folder / "demos"
    with desk(root, script) as person:
        for k in range(KILLS + 1):
            with node_process(NODE, folder / f"trace{k}") as arm:
                person.wait_for("saved episode")
                before = kept(root)
                if k == KILLS:
                    break
                time.sleep(rng.uniform(0.0, 1.0))
                arm.kill()
                arm.wait()
                # In the middle of an episode it stopped, between two the next one does not start.
                assert "is the arm's node" in person.wait_for("nothing came on", "nothing comes on")
            still_there(root, before)
        person.running.send_signal(signal.SIGINT)
        assert person.running.wait(20) == 0
    still_there(root, before)
    whole(root, folder)


def test_a_killed_desk_leaves_the_arm_at_rest_and_the_next_one_finds_everything(folder: Path, script: Path) -> None:
    rng, root, trace = random.Random(2), folder / "demos", folder / "trace"
    with node_process(NODE, trace) as arm:
        for _ in range(KILLS):
            with desk(root, script) as person:
                number = int(person.wait_for("saved episode").partition("saved episode ")[2].split()[0])
                before = kept(root)
                assert len(before[0]) == number + 1
                time.sleep(rng.uniform(0.0, 1.0))
                person.running.kill()
                person.running.wait()
            until = time.monotonic() + 10
            while not at_rest(trace):
                assert time.monotonic() < until, "the arm still moves"
                time.sleep(0.01)
            assert arm.poll() is None
            Recorder(root, Reach(), robot="stick", demonstrator="anna").close()  # as the next desk does first
            still_there(root, before)
        arm.send_signal(signal.SIGINT)
        assert arm.wait(10) == 0
    whole(root, folder)


def whole(root: Path, folder: Path) -> None:
    """The dataset is sound, and the bags say the same."""
    assert check(root) == []
    rebuild(root, folder / "again")
    same_dataset(DemoDataset(root), DemoDataset(folder / "again"))
    assert len(list((root / "bags").iterdir())) == DemoDataset(root).episodes
