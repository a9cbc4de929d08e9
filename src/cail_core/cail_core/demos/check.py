"""Validates a dataset folder from the tables down to every number; all faults are listed at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cail_core import durable
from cail_core.demos import layout
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.episode import faults_of
from cail_core.demos.features import data_schema
from cail_core.demos.stats import stats_from_json
from cail_core.errors import CailError, DatasetError


def interrupted(dataset: DemoDataset) -> bool:
    """Whether a save was cut off before the tables followed; opening the dataset for writing completes it.

    While another process holds the dataset, it is simply not done saving.
    """
    if durable.is_locked(dataset.root):
        return False
    named = {row.data_path(dataset.root) for row in dataset.rows}
    return dataset.episodes != dataset.info["total_episodes"] or any(p not in named for p in _data_files(dataset.root))


def check(root: Path) -> list[str]:
    """All faults of the dataset at `root`; empty where it is sound."""
    try:
        dataset = DemoDataset(root)
    except CailError as fault:
        return [str(fault)]
    faults = _tables(dataset)
    schema = data_schema(dataset.features)
    for path, rows in dataset.files():
        numbers = (
            f"episodes {rows[0].episode_index} … {rows[-1].episode_index}"
            if len(rows) > 1
            else f"episode {rows[0].episode_index}"
        )
        try:
            table = layout.read_parquet(path)
        except DatasetError as fault:
            faults.append(f"{numbers}: {fault}")
            continue
        wrong = [f.name for f in schema if f.name not in table.column_names or table.schema.field(f.name).type != f.type]
        if wrong:
            faults.append(f"{numbers}: {path.name}: missing or of another type: {', '.join(wrong)}")
            continue
        expected = sum(row.length for row in rows)
        if len(table) != expected:
            faults.append(f"{numbers}: {path.name}: expected {expected} frames, found {len(table)}")
            continue
        index = table.column("index").to_numpy()
        episode = table.column("episode_index").to_numpy()
        if not np.array_equal(index, np.arange(rows[0].from_index, rows[-1].to_index)) or not np.array_equal(
            episode, np.repeat([row.episode_index for row in rows], [row.length for row in rows])
        ):
            faults.append(f"{numbers}: {path.name}: index or episode_index do not follow the tables")
        for row, held in zip(rows, dataset.iterate([row.episode_index for row in rows]), strict=True):
            faults += [f"episode {row.episode_index}: {fault}" for fault in faults_of(held, dataset.features)]
            if row.undiscounted_return != held.undiscounted_return:
                faults.append(
                    f"episode {row.episode_index}: the table says return {row.undiscounted_return}, "
                    f"its rewards sum to {held.undiscounted_return}"
                )
    return faults


def _tables(dataset: DemoDataset) -> list[str]:
    faults = []
    rows = dataset.rows
    if [row.episode_index for row in rows] != list(range(len(rows))):
        faults.append("meta/episodes: expected the episodes 0, 1, 2, … once each")
    at = 0
    for row in rows:
        if row.from_index != at:
            faults.append(f"episode {row.episode_index}: expected to start at frame {at}, the table says {row.from_index}")
        at = row.from_index + row.length
    if interrupted(dataset):
        faults.append(f"a save was cut off before the tables followed; `cail demos check {dataset.root} --repair` completes it")
    elif durable.is_locked(dataset.root):
        pass  # being written: the totals follow
    elif dataset.info["total_frames"] != dataset.frames:
        faults.append(f"meta/info.json: says {dataset.info['total_frames']} frames, the episodes have {dataset.frames}")
    elif rows:
        try:
            stats = stats_from_json(layout.read_json(dataset.root / layout.STATS))
            counts = {int(table["count"][0]) for table in stats.values()}
            if counts != {dataset.frames} or not set(dataset.features) <= set(stats):
                faults.append("meta/stats.json: does not cover all frames and features")
        except (CailError, KeyError, TypeError, ValueError, AttributeError) as fault:
            faults.append(f"meta/stats.json: cannot be read ({fault})")
    try:
        layout.read_parquet(dataset.root / layout.TASKS).column("__index_level_0__")
    except (CailError, KeyError, IndexError) as fault:
        faults.append(f"meta/tasks.parquet: cannot be read ({fault})")
    return faults


def _data_files(root: Path) -> list[Path]:
    return sorted((root / "data").glob("chunk-*/file-*.parquet"))
