"""Kills a process by SIGKILL at every single step it takes on disk, and looks at what is left.

Run as a program with the name of a job. The program itself stays single-threaded and only forks: one child does the job
and dies at step k (in the middle of its bytes, where the step is a write), another looks at the folder. Steps are the
calls of `os` that `cail_core.durable` makes; there are no others, which the job's last, unharmed run proves by its count.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from builders import episode, fast_folder, features, same_episode, write

from cail_core import durable
from cail_core.demos.check import check
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.edit import delete, set_ranking
from cail_core.demos.writer import DemoWriter
from cail_core.ranking.ranks import provenance

LIKE = features()
EPISODES = [episode(3 + i, i, LIKE, truncated=i % 2 == 0) for i in range(5)]
STEPS = ("open", "write", "replace", "rename", "mkdir", "unlink")
"""The calls that change what is on disk; between two of them a kill leaves the same state as at the next one."""
NOTHING_NEW = 42


def die_at(k: int, half: bool) -> None:
    """From here on, the k-th step on disk is the last; a write gets half of its bytes out before."""
    count = 0

    def guard(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            if count == k:
                if half and name != "write":
                    os._exit(NOTHING_NEW)
                if half:
                    real(args[0], bytes(args[1])[: max(1, len(args[1]) // 2)])
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
            return real(*args, **kwargs)

        return step

    for name in STEPS:
        setattr(os, name, guard(name, getattr(os, name)))
    exchange = durable._exchange
    durable._exchange = guard("exchange", exchange)


def in_child(work: Callable[[], None]) -> int:
    """The wait status of a forked child that does `work`."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


class Save:
    """Three episodes are in; two more are saved one after the other."""

    def prepare(self, root: Path) -> None:
        write(root, EPISODES[:3], LIKE)

    def work(self, root: Path, report: Path) -> None:
        descriptor = os.open(report, os.O_WRONLY | os.O_CREAT)
        with DemoWriter.open(root) as writer:
            for one in EPISODES[3:]:
                writer.save_episode(one)
                os.pwrite(descriptor, str(writer.episodes).encode(), 0)

    def look(self, root: Path, report: Path) -> None:
        saved = int(report.read_text() or 3) if report.exists() else 3
        found = DemoDataset(root)
        assert saved <= found.episodes <= saved + 1, (saved, found.episodes)
        for one, other in zip(EPISODES, found.iterate(), strict=False):
            same_episode(one, other)
        with DemoWriter.open(root) as writer:
            writer.save_episode(EPISODES[0])
            total = writer.episodes
        assert check(root) == []
        healed = DemoDataset(root)
        assert healed.episodes == total >= saved + 1
        for one, other in zip([*EPISODES[: total - 1], EPISODES[0]], healed.iterate(), strict=True):
            same_episode(one, other)
        assert not list(root.rglob(f"*{durable.TEMPORARY}"))


class Create(Save):
    """A dataset is made and gets two episodes."""

    def prepare(self, root: Path) -> None:
        """Nothing is there yet."""

    def work(self, root: Path, report: Path) -> None:
        write(root, EPISODES[:2], LIKE)

    def look(self, root: Path, report: Path) -> None:
        if root.exists():
            found = DemoDataset(root)
            for one, other in zip(EPISODES, found.iterate(), strict=False):
                same_episode(one, other)
            DemoWriter.open(root).close()
            assert check(root) == []
        else:
            write(root, EPISODES[:2], LIKE)
            assert not [p for p in root.parent.iterdir() if p.name.endswith(".building")]


class Change:
    """A change leaves the dataset as it was or as it shall be, nothing between."""

    def prepare(self, root: Path) -> None:
        write(root, EPISODES, LIKE)

    def work(self, root: Path, report: Path) -> None:
        delete(root, [1, 3])

    def look(self, root: Path, report: Path) -> None:
        found = DemoDataset(root)
        expected = EPISODES if found.episodes == 5 else [EPISODES[0], EPISODES[2], EPISODES[4]]
        for one, other in zip(expected, found.iterate(), strict=True):
            same_episode(one, other)
        assert check(root) == []


class Rank(Change):
    def work(self, root: Path, report: Path) -> None:
        set_ranking(root, {0: 1, 4: 2}, provenance("test"))

    def look(self, root: Path, report: Path) -> None:
        ranks = [row.rank for row in DemoDataset(root).rows]
        assert ranks in ([None] * 5, [1, None, None, None, 2]), ranks
        assert check(root) == []


JOBS = {"save": Save(), "create": Create(), "delete": Change(), "rank": Rank()}


def main(name: str) -> int:
    job: Any = JOBS[name]
    failures = k = 0
    with fast_folder() as scratch:
        assert in_child(lambda: job.prepare(Path(scratch, "start"))) == 0
        while True:
            statuses = []
            for half in (False, True):
                place = Path(tempfile.mkdtemp(dir=scratch))
                root, report = place / "demos", place / "report"
                if Path(scratch, "start").exists():
                    shutil.copytree(Path(scratch, "start"), root)

                def doomed(root: Path = root, report: Path = report, half: bool = half, k: int = k) -> None:
                    die_at(k, half)
                    job.work(root, report)

                statuses.append(in_child(doomed))
                if os.waitstatus_to_exitcode(statuses[-1]) == NOTHING_NEW:
                    shutil.rmtree(place)
                    continue
                failed = in_child(lambda root=root, report=report: job.look(root, report)) != 0  # type: ignore[misc]
                if failed:
                    print(f"{name}: killed at step {k}{' half way' if half else ''}: see above", flush=True)
                failures += failed
                shutil.rmtree(place)
            if statuses == [0, 0]:  # the job is done in fewer than k steps
                break
            assert all(os.waitstatus_to_exitcode(s) in (-signal.SIGKILL, NOTHING_NEW) for s in statuses), statuses
            k += 1
    print(f"{name}: {k} steps, {failures} failures")
    return 1 if failures or k < 10 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
