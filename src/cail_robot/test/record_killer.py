"""Kills a recorder with SIGKILL at 50 random moments and looks at what is left.

Run as a program, which stays single-threaded and only forks: one child records, the next one looks.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from builders import fast_folder, same_dataset
from reach import Messages, Reach, install, record

from cail_core.demos.check import check
from cail_core.demos.dataset import DemoDataset
from cail_core.recording.bag import bags_of, read_about
from cail_core.recording.rebuild import rebuild
from cail_robot.recording.recorder import Recorder

KILLS = 50


def number_on(report: Path) -> int:
    return int(report.read_text() or 0) if report.exists() else 0


def work(root: Path, report: Path) -> None:
    """Record episode after episode; each depends on its number alone. Says how many were saved."""
    recorder = open_recorder(root)
    descriptor = os.open(report, os.O_WRONLY | os.O_CREAT)
    while True:
        k = recorder.episodes
        record(recorder, Messages(k), 4 + k % 9, "success" if k % 3 else "failure")
        os.pwrite(descriptor, str(recorder.episodes).encode(), 0)


def open_recorder(root: Path) -> Recorder:
    return Recorder(root, Reach(), robot="stick", demonstrator="anna")


def look(root: Path, report: Path) -> None:
    """Every episode that was said to be saved is there, and at most one more; bags and dataset agree."""
    saved = number_on(report)
    recorder = open_recorder(root)
    recorder.close()
    dataset = DemoDataset(root)
    assert saved <= dataset.episodes <= saved + 1, (saved, dataset.episodes)
    names = [f"episode-{k:05d}" for k in range(dataset.episodes)]
    assert [row.recording["bag"] for row in dataset.rows if row.recording] == names
    assert [path.name for path in sorted((root / "bags").iterdir())] == [f"{name}.mcap" for name in names]
    report.write_text(str(dataset.episodes))


def compare(root: Path, report: Path, scratch: Path) -> None:
    """The folder that was killed 50 times holds bit for bit what an undisturbed one holds."""
    episodes = number_on(report)
    whole = scratch / "whole"
    recorder = open_recorder(whole)
    for k in range(episodes):
        record(recorder, Messages(k), 4 + k % 9, "success" if k % 3 else "failure")
    recorder.close()
    assert check(root) == []
    same_dataset(DemoDataset(root), DemoDataset(whole))
    for one, other in zip(bags_of(root / "bags"), bags_of(whole / "bags"), strict=True):
        about, about_other = read_about(one), read_about(other)
        about.pop("saved_at"), about_other.pop("saved_at")
        assert about == about_other
    rebuild(root, scratch / "again")
    same_dataset(DemoDataset(root), DemoDataset(scratch / "again"))
    print(f"{episodes} episodes after {KILLS} kills, none lost")


def in_child(job: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            job()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid


def main() -> int:
    rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    failures = 0
    with fast_folder() as folder:
        scratch = Path(tempfile.mkdtemp(dir=folder))
        install(scratch)
        sys.path.insert(0, str(scratch))
        root, report = scratch / "demos", scratch / "report"
        for _ in range(KILLS):
            enough = number_on(report) + rng.randint(0, 1)
            child = in_child(lambda: work(root, report))
            while number_on(report) < enough:
                time.sleep(0.005)
            time.sleep(rng.uniform(0.0, 0.15))
            os.kill(child, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
            failures += os.waitpid(in_child(lambda: look(root, report)), 0)[1] != 0
        failures += os.waitpid(in_child(lambda: compare(root, report, scratch)), 0)[1] != 0
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
