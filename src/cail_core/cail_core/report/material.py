"""Reads what a report is made of: run folders and the demonstrations they were trained on."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cail_core.config import read_yaml
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.layout import read_parquet
from cail_core.errors import BadInput, CailError, listed
from cail_core.policy import PolicyRunner, load_policy
from cail_core.tasks.base import DATA, GYM
from cail_core.training.run import ANOTHER_WAY, CONFIDENCE, CONFIG, METRICS, RANKED

Floats = NDArray[np.float64]
VIDEOS = (".mp4", ".webm", ".gif")


@dataclass(frozen=True)
class RankedEpisode:
    """One row of `ranked.csv`: what a person said of an episode and what the learner makes of it."""

    episode: int
    rank: int
    learned_return: float


@dataclass
class RunFolder:
    """A run as it lies on disk. What is not there yet is None, empty, or a sentence in `missing`."""

    folder: Path
    task: str
    method: str
    seed: int
    steps: int
    config: dict[str, Any]
    name: str = ""
    curves: dict[str, Floats] = field(default_factory=dict)
    policy: PolicyRunner | None = None
    confidence: NDArray[np.float32] | None = None
    ranked: list[RankedEpisode] = field(default_factory=list)
    dataset: DemoDataset | None = None
    videos: list[Path] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def another_way(self) -> list[int]:
        """Trusted episodes that the policy did not learn from, since they go another way than most."""
        return [] if self.policy is None else list(self.policy.card.provenance.get(ANOTHER_WAY, []))

    @property
    def trained(self) -> int:
        """The steps so far; it may have ended before the last one."""
        return int(self.curves["steps"][-1]) if self.curves else 0

    @property
    def learned_confidence(self) -> bool:
        """Whether its confidences differ at all; methods without confidence give every pair 1."""
        return self.confidence is not None and float(np.ptp(self.confidence)) > 1e-3


def read_runs(folders: Sequence[Path], demos: Path | None = None) -> list[RunFolder]:
    """All runs of one report; whatever is wrong with any of them is said at once."""
    runs, faults = [], []
    for folder in folders:
        try:
            runs.append(read_run(folder, demos))
        except CailError as fault:
            faults.append(str(fault))
    if faults:
        raise BadInput(faults[0] if len(faults) == 1 else listed("cannot report these runs", faults))
    if len({run.task for run in runs}) > 1:
        tasks = ", ".join(f"{run.folder}: {run.task}" for run in runs)
        raise BadInput(f"expected runs of one task, given {tasks}; make a report for each task")
    for run in runs:
        run.name = run.method if [r.method for r in runs].count(run.method) == 1 else f"{run.method} · {_short(run, runs)}"
    return runs


def _short(run: RunFolder, runs: Sequence[RunFolder]) -> str:
    """What tells a run from others of the same method."""
    if len({r.seed for r in runs if r.method == run.method}) == [r.method for r in runs].count(run.method):
        return f"seed {run.seed}"
    return str(run.folder)


def read_run(folder: Path, demos: Path | None = None) -> RunFolder:
    """The run in `folder`; BadInput lists everything in it that cannot be read."""
    if not (folder / CONFIG).is_file():
        found = "a folder without one" if folder.is_dir() else "a file" if folder.exists() else "nothing there"
        raise BadInput(f"{folder}: expected a run folder of `cail train` (with {CONFIG}), found {found}")
    config = read_yaml(folder / CONFIG)
    wanted = {"task": str, "method": str, "seed": int, "steps": int, "settings": dict}
    wrong = [f"{CONFIG}: expected {key} ({kind.__name__}), given {config.get(key) if isinstance(config, dict) else config!r}"
             for key, kind in wanted.items() if not isinstance(config, dict) or not isinstance(config.get(key), kind)]
    if wrong:
        raise BadInput(listed(f"{folder} is damaged or no run of `cail train`", wrong))
    run = RunFolder(folder, config["task"], config["method"], config["seed"], config["steps"], config)
    faults: list[str] = []
    for part, read in ((METRICS, _read_curves), (CONFIDENCE, _read_confidence), (RANKED, _read_ranked), ("policy", _read_policy)):
        if not (folder / part).exists():
            if part != RANKED:
                run.missing.append(f"{run.folder.name}/{part} is not there: the run has not reached its first checkpoint yet")
            continue
        try:
            read(run, folder / part)
        except (CailError, ValueError, KeyError) as fault:
            faults.append(f"{part}: {fault}" if part not in str(fault) else str(fault))
    if faults:
        raise BadInput(listed(f"{folder} is damaged; `cail train` into another folder makes it anew", faults))
    run.videos = sorted(p for p in folder.iterdir() if p.suffix.lower() in VIDEOS)
    _attach_dataset(run, demos)
    return run


def _read_curves(run: RunFolder, path: Path) -> None:
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if rows and "steps" not in rows[0]:
        raise ValueError("expected a column 'steps'")
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            if number == len(rows) + 1:  # a run that is being trained: its last line may be half there
                rows.pop()
                break
            raise ValueError(f"line {number} does not have the columns of the first line")
    if rows:
        run.curves = {name: np.array([float(row[name] or "nan") for row in rows]) for name in rows[0]}


def _read_confidence(run: RunFolder, path: Path) -> None:
    table = read_parquet(path, ["episode_index", "frame_index", "confidence"])
    values = table.column("confidence").to_numpy().astype(np.float32)
    if not np.isfinite(values).all():
        raise ValueError("holds NaN or infinite numbers")
    run.confidence = values


def _read_ranked(run: RunFolder, path: Path) -> None:
    with open(path, newline="", encoding="utf-8") as file:
        run.ranked = [RankedEpisode(int(row["episode_index"]), int(row["rank"]), float(row["learned_return"]))
                      for row in csv.DictReader(file)]


def _read_policy(run: RunFolder, path: Path) -> None:
    run.policy = load_policy(path)


def _attach_dataset(run: RunFolder, demos: Path | None) -> None:
    """The demonstrations, from where the run says they were; a run without them still gives a report."""
    name = str(run.config.get("demos") or "demonstrations")
    says = run.config.get("demos_from_here")
    places = [demos] if demos is not None else [
        *([Path(os.path.normpath(run.folder / str(says)))] if says else []), run.folder.parent / name, Path(name)]
    found = next((place for place in places if (place / "meta" / "info.json").is_file()), None)
    if found is None:
        if demos is not None:
            raise BadInput(f"expected --demos to be a dataset folder, given {demos}")
        run.missing.append(f"the demonstrations '{name}' were not found; `cail report {run.folder} --demos D` finds them")
        return
    dataset = DemoDataset(found)
    # Acted out over the topics it is the same task, and so it is without its environment; a Gymnasium one may train on anything.
    if run.task not in (dataset.task, f"{dataset.task}-ros", f"{DATA}:{dataset.task}") and not run.task.startswith(f"{GYM}:"):
        raise BadInput(f"{found} holds demonstrations of '{dataset.task}', {run.folder} was trained for '{run.task}'; "
                       "give --demos D")
    if run.confidence is not None and len(run.confidence) != dataset.frames:
        run.missing.append(f"{found} has {dataset.frames} frames, the run was trained on {len(run.confidence)}: the "
                           "demonstrations have changed since, so that nothing can be said about them")
        return
    if dataset.demonstrations().digest() != run.config.get("demonstrations"):
        run.missing.append(f"{found} has changed since the training (frames or ranks); what is shown of it is as it is now")
    run.dataset = dataset
