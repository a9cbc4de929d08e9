"""Where cells run: processes of this machine, or a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Protocol

from cail_core.errors import BadInput, CailError, MissingDependency, how_to_add
from cail_core.machine import cores

Cell = Any
"""A piece of work that can be pickled: what it is, its `work` knows."""
Work = Callable[[Cell, Path], Any]
RETRIES = 10  # a cell whose worker died goes on after its checkpoint, on whichever machine is free


class Engine(Protocol):
    def run(self, work: Work, cells: Sequence[Cell], out: Path) -> Iterator[tuple[Cell, Any]]:
        """Do `work` for every cell; gives each with its result, in whatever order they end."""
        ...


class LocalEngine:
    """A process per core; with one, this process."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or cores()

    def run(self, work: Work, cells: Sequence[Cell], out: Path) -> Iterator[tuple[Cell, Any]]:
        if self.workers == 1 or len(cells) < 2:
            yield from ((cell, work(cell, out)) for cell in cells)
            return
        os.environ["OMP_NUM_THREADS"] = "1"
        with ProcessPoolExecutor(min(self.workers, len(cells)), mp_context=multiprocessing.get_context("spawn"),
                                 initializer=_end_with_parent, initargs=(os.getpid(),)) as pool:
            jobs = {pool.submit(work, cell, out): cell for cell in cells}
            try:
                for job in as_completed(jobs):
                    yield jobs[job], job.result()
            except BrokenProcessPool:
                raise CailError("a worker process died, perhaps for lack of memory; the same command goes on where it stopped, "
                                "--workers with a smaller number needs less") from None


def _end_with_parent(parent: int) -> None:
    """A worker of a killed parent would wait for its next cell for ever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class RayEngine:
    """One cell, one Ray task. `out` must be storage that all machines see under the same path."""

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise MissingDependency(f"--engine ray needs Ray; {how_to_add('ray')}") from None
        self._ray = ray
        self._judged: Any = None
        self._stored: Any = None
        local: dict[str, Any] = {} if address else {"num_cpus": workers or cores(), "include_dashboard": False,
                                                    "_node_ip_address": "127.0.0.1"}
        try:
            ray.init(address=address or "local", ignore_reinit_error=True, log_to_driver=False, **local)
        except (ConnectionError, ValueError) as fault:
            raise BadInput(f"--address: expected a running Ray cluster, given {address} ({' '.join(str(fault).split())[:200]}); "
                           "`ray start --head` starts one") from None

    def run(self, work: Work, cells: Sequence[Cell], out: Path) -> Iterator[tuple[Cell, Any]]:
        task = self._ray.remote(work)
        given = {"num_cpus": 1, "max_retries": RETRIES}
        waiting = {task.options(name=cell.key, **given).remote(cell, out.resolve()): cell for cell in cells}
        while waiting:
            ready, _ = self._ray.wait(list(waiting), num_returns=1)
            for reference in ready:
                yield waiting.pop(reference), self._ray.get(reference)

    def judge(self, judge: Callable[[dict[str, float]], float], settings: Sequence[dict[str, float]]) -> Sequence[float]:
        """One task for each of several settings (`cail_core.training.tune.Judges`)."""
        if self._judged is not judge:
            self._judged, self._stored = judge, self._ray.put(judge)
        task: Any = self._ray.remote(lambda stored, values: stored(values))

        def start(values: dict[str, float]) -> Any:
            name = " ".join(f"{name} {value:.3g}" for name, value in values.items())
            return task.options(name=name, num_cpus=1, max_retries=RETRIES).remote(self._stored, values)

        found: list[float] = self._ray.get([start(values) for values in settings])
        return found

    def close(self) -> None:
        self._ray.shutdown()
