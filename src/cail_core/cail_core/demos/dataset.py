"""Reads a dataset of demonstrations: the tables at once, the frames by column, file after file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cail_core.demos import layout
from cail_core.demos.demonstrations import Demonstrations
from cail_core.demos.episode import Episode
from cail_core.demos.features import ACTION, DONE, REQUESTED, REWARD, STATE, TRUNCATED, features_from_json
from cail_core.demos.layout import EpisodeRow
from cail_core.errors import BadInput, DatasetError


class DemoDataset:
    """A dataset folder, opened for reading. Opening reads the tables only; a writer may append meanwhile."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            aside = self.root.with_name(f"{self.root.name}.before-change")
            hint = f"; {aside} holds it as it was before a change that was cut off: rename it back" if aside.is_dir() else ""
            what = "a file" if self.root.exists() else "which does not exist"
            raise BadInput(f"expected a dataset folder, given {root}, {what}{hint}")
        self.info = layout.read_info(self.root)
        if "cail" not in self.info:
            raise DatasetError(f"{root}: another tool wrote it; bring it in with `cail demos import {root} --out NEW`")
        self.features = features_from_json(self.info.get("features"))
        for needed in (STATE, ACTION, DONE, TRUNCATED):
            if needed not in self.features:
                raise DatasetError(f"{root}: expected the feature {needed}, given {', '.join(self.features)}")
        self.rows = layout.read_episodes(self.root, self.features)

    @property
    def episodes(self) -> int:
        return len(self.rows)

    @property
    def frames(self) -> int:
        return self.rows[-1].to_index if self.rows else 0

    @property
    def task(self) -> str:
        return str(self.info["cail"]["task"])

    @property
    def text(self) -> str:
        """The task in words."""
        return str(layout.read_parquet(self.root / layout.TASKS).column("__index_level_0__")[0].as_py())

    def units(self, of: str) -> tuple[str, ...]:
        """The unit of each entry of the "observation" or the "action"; empty where nobody said."""
        given = self.info["cail"].get("units", {}).get(of, [])
        return tuple(map(str, given)) if len(given) == self.features[STATE if of == "observation" else ACTION].shape[0] else ()

    @property
    def returns(self) -> NDArray[np.float64] | None:
        """The true return of each episode; None where no rewards were recorded. Not for learners."""
        if REWARD not in self.features:
            return None
        return np.array([row.undiscounted_return for row in self.rows], dtype=np.float64)

    def column(self, name: str) -> NDArray[Any]:
        """One feature over all frames, in dataset order."""
        return self.columns([name])[name]

    def columns(self, names: list[str]) -> dict[str, NDArray[Any]]:
        """Several features over all frames; one data file is in memory at a time beside the result."""
        unknown = [name for name in names if name not in self.features]
        if unknown:
            raise BadInput(f"expected features out of {', '.join(self.features)}, given {', '.join(unknown)}")
        made = {}
        for name in names:
            feature = self.features[name]
            made[name] = np.empty((self.frames,) if feature.is_scalar else (self.frames, *feature.shape), dtype=feature.dtype)
        at = 0
        for path, rows in self.files():
            table = self._checked(path, rows, names)
            n = len(table)
            for name in names:
                made[name][at : at + n] = self.features[name].to_numpy(table.column(name))
            at += n
        return made

    def episode(self, index: int) -> Episode:
        """One episode with all its frames."""
        if not 0 <= index < self.episodes:
            raise BadInput(f"expected an episode out of 0 … {self.episodes - 1}, given {index}")
        return next(iter(self.iterate([index])))

    def iterate(self, indices: list[int] | None = None) -> Iterator[Episode]:
        """The episodes one after the other, each data file read once."""
        wanted = None if indices is None else set(indices)
        for path, rows in self.files():
            if wanted is not None and not any(row.episode_index in wanted for row in rows):
                continue
            table = self._checked(path, rows, list(self.features))
            start = rows[0].from_index
            for row in rows:
                if wanted is None or row.episode_index in wanted:
                    part = table.slice(row.from_index - start, row.length)
                    frames = {name: f.to_numpy(part.column(name)) for name, f in self.features.items()}
                    yield Episode(frames, row.final_state, row.demonstrator, row.outcome, row.rank, row.recording)

    def demonstrations(self) -> Demonstrations:
        """Everything a learner may see: pairs, successors, ends and the order of the ranked episodes.

        Where it was recorded, the action is what was asked for: a policy asks too. What an arm executed depends on how fast it
        was already moving, and standing still at the start would be learned from every first frame.
        """
        if not self.rows:
            raise DatasetError(f"{self.root} holds no episodes; record, collect or import some first")
        asked = REQUESTED if REQUESTED in self.features else ACTION
        found = self.columns([STATE, asked, DONE, TRUNCATED])
        states, actions = (found[name].reshape(self.frames, -1).astype(np.float32, copy=False) for name in (STATE, asked))
        starts = np.array([row.from_index for row in self.rows] + [self.frames], dtype=np.int64)
        successors = np.empty_like(states)
        successors[:-1] = states[1:]
        successors[starts[1:] - 1] = np.stack([row.final_state for row in self.rows])
        return Demonstrations(
            states=states,
            actions=actions,
            next_states=successors,
            terminated=found[DONE] & ~found[TRUNCATED],
            starts=starts,
            rank=np.array([row.rank or 0 for row in self.rows], dtype=np.int64),
            demonstrator=[row.demonstrator for row in self.rows],
            robot=self.info["robot_type"] or "",
        )

    def _checked(self, path: Path, rows: list[EpisodeRow], names: list[str]) -> pa.Table:
        table, n = layout.read_parquet(path, names), sum(row.length for row in rows)
        if len(table) != n:
            raise DatasetError(f"{path}: expected {n} frames, found {len(table)}; run `cail demos check {self.root}`")
        missing = [name for name in names if name not in table.column_names]
        if missing:
            raise DatasetError(f"{path}: lacks {', '.join(missing)}; run `cail demos check {self.root}`")
        return table

    def files(self) -> Iterator[tuple[Path, list[EpisodeRow]]]:
        """The data files in order, each with the episodes it holds."""
        for path, rows in groupby(self.rows, key=lambda row: row.data_path(self.root)):
            yield path, list(rows)
