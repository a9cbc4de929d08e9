"""Writes demonstrations so that none is ever lost.

An episode's data file appears whole (written aside, flushed, renamed) and carries the episode's record in its schema
metadata; only then do the tables under `meta/` follow, each replaced whole. A process killed between the two leaves a
data file that the tables do not name yet; the next writer completes them from the record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cail_core import durable
from cail_core.demos import layout
from cail_core.demos.episode import Episode, faults_of
from cail_core.demos.features import INDEX_FEATURES, STATE, Features, data_schema, features_from_json
from cail_core.demos.layout import EpisodeRow
from cail_core.demos.stats import FeatureStats, episode_stats, merge_stats, stats_from_json, stats_to_json
from cail_core.errors import BadInput, DatasetError, listed

PACKED_FRAMES = 200_000
"""Frames per data file where many episodes are written at once."""


class DemoWriter:
    """Appends episodes to one dataset folder, which it holds locked; each is durable when `save_episode` returns."""

    def __init__(self, root: Path, *, _opened: bool = False) -> None:
        if not _opened:
            raise TypeError("use DemoWriter.create or DemoWriter.open")
        self.root = root
        self.failed = False
        """Whether a save did not end well; open the dataset again, which completes it."""
        self._rows: list[EpisodeRow] = []
        self._open_rows: list[EpisodeRow] = []
        self._open_stats: list[dict[str, FeatureStats]] = []
        self._stats: dict[str, FeatureStats] = {}
        self._held = ExitStack()
        self._held.enter_context(durable.locked(root))
        try:
            self._load()
        except BaseException:
            self._held.close()
            raise

    @classmethod
    def create(
        cls,
        root: Path,
        *,
        task: str,
        text: str,
        robot_type: str,
        fps: int,
        features: Features,
        about: dict[str, Any] | None = None,
        in_place: bool = False,
    ) -> DemoWriter:
        """Make an empty dataset at `root`, which must not exist or be an empty folder.

        `in_place` is for a folder that is itself being built out of sight; elsewhere the dataset appears in one step.
        """
        if fps < 1:
            raise BadInput(f"expected a rate of at least 1 frame per second, given {fps}")
        info = layout.new_info(task, robot_type, fps, features)
        info["cail"].update(about or {})
        durable.make_folder(root.absolute().parent)
        with nullcontext(root) if in_place else durable.new_folder(root) as building:
            durable.make_folder(building / "meta")
            durable.write_bytes(building / layout.TASKS, layout.parquet_bytes(layout.tasks_table(text)))
            durable.write_json(building / layout.INFO, info)
        return cls(root, _opened=True)

    @classmethod
    def open(cls, root: Path) -> DemoWriter:
        """Open an existing dataset to append to it; an interrupted save is completed first."""
        layout.read_info(root)
        return cls(root, _opened=True)

    @property
    def episodes(self) -> int:
        return len(self._rows)

    def save_episode(self, episode: Episode) -> int:
        """Store one episode and return its index; it is on the device when this returns."""
        return self._append([episode])

    def save_all(self, episodes: Iterable[Episode]) -> int:
        """Store many episodes packed into few files; returns how many. Durable when this returns, not before."""
        before, batch, frames = self.episodes, [], 0
        for episode in episodes:
            batch.append(episode)
            frames += episode.length
            if frames >= PACKED_FRAMES:
                self._append(batch)
                batch, frames = [], 0
        if batch:
            self._append(batch)
        return self.episodes - before

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> DemoWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _append(self, episodes: Sequence[Episode]) -> int:
        if self.failed:
            raise DatasetError(f"{self.root}: the last save did not end well; open the dataset again, which completes it")
        first = self.episodes
        faults = [f"episode {first + i}: {fault}" for i, e in enumerate(episodes) for fault in faults_of(e, self.features)]
        if faults:
            raise BadInput(listed("these demonstrations cannot be stored", faults))
        chunk, file = self._next_data_file
        columns = [self._columns(e, first + i, from_index) for i, (e, from_index) in enumerate(self._starts(episodes))]
        records = [
            {
                "demonstrator": e.demonstrator,
                "outcome": e.outcome,
                "rank": e.rank,
                "length": e.length,
                "final_state": e.final_state.tolist(),
                **({} if e.recording is None else {"recording": e.recording}),
            }
            for e in episodes
        ]
        self._write_data(chunk, file, columns, records)
        try:
            self._index(episodes, columns, chunk, file)
        except BaseException:
            self.failed = True
            raise
        return first

    def _starts(self, episodes: Sequence[Episode]) -> Iterable[tuple[Episode, int]]:
        at = self._rows[-1].to_index if self._rows else 0
        for episode in episodes:
            yield episode, at
            at += episode.length

    def _columns(self, episode: Episode, index: int, from_index: int) -> dict[str, NDArray[Any]]:
        n = episode.length
        frame = np.arange(n, dtype=np.int64)
        return {
            **{
                name: episode.frames[name].reshape(-1) if f.is_scalar else episode.frames[name]
                for name, f in self.features.items()
            },
            "timestamp": (frame / self.info["fps"]).astype(np.float32),
            "frame_index": frame,
            "episode_index": np.full(n, index, np.int64),
            "index": from_index + frame,
            "task_index": np.zeros(n, np.int64),
        }

    def _write_data(
        self, chunk: int, file: int, columns: Sequence[dict[str, NDArray[Any]]], records: list[dict[str, Any]]
    ) -> None:
        schema = data_schema(self.features)
        arrays = [
            feature.to_arrow(np.concatenate([c[name] for c in columns]))
            for name, feature in {**self.features, **INDEX_FEATURES}.items()
        ]
        schema = schema.with_metadata({**schema.metadata, layout.RECORDS: json.dumps(records)})
        path = self.root / layout.DATA_PATH.format(chunk_index=chunk, file_index=file)
        durable.make_folder(path.parent)
        durable.write_bytes(path, layout.parquet_bytes(pa.Table.from_arrays(arrays, schema=schema)))

    def _index(self, episodes: Sequence[Episode], columns: Sequence[dict[str, NDArray[Any]]], chunk: int, file: int) -> None:
        """Let the tables under meta/ name the episodes of data file (chunk, file)."""
        first = self.episodes
        for i, (episode, from_index) in enumerate(list(self._starts(episodes))):
            stats = {name: episode_stats(values) for name, values in columns[i].items()}
            if len(self._open_rows) >= layout.EPISODES_PER_META_FILE:
                self._write_open_rows()
                self._open_rows, self._open_stats = [], []
                self._meta_file += 1
            row = EpisodeRow(
                first + i,
                episode.length,
                chunk,
                file,
                from_index,
                episode.demonstrator,
                episode.outcome,
                episode.undiscounted_return,
                episode.rank,
                episode.final_state,
                episode.recording,
            )
            self._rows.append(row)
            self._open_rows.append(row)
            self._open_stats.append(stats)
            self._stats = {name: merge_stats([self._stats[name], s]) for name, s in stats.items()} if self._stats else stats
        self._write_open_rows()
        self._write_totals()

    def _write_open_rows(self) -> None:
        place = divmod(self._meta_file, layout.FILES_PER_CHUNK)
        path = self.root / layout.META_PATH.format(chunk_index=place[0], file_index=place[1])
        durable.make_folder(path.parent)
        table = layout.episodes_table(self._open_rows, self._open_stats, place, self._text, self.features)
        durable.write_bytes(path, layout.parquet_bytes(table))

    def _write_totals(self) -> None:
        durable.write_json(self.root / layout.STATS, stats_to_json(self._stats))
        self.info.update(
            total_episodes=self.episodes,
            total_frames=self._rows[-1].to_index if self._rows else 0,
            splits={"train": f"0:{self.episodes}"} if self._rows else {},
        )
        durable.write_json(self.root / layout.INFO, self.info)

    @property
    def _next_data_file(self) -> tuple[int, int]:
        if not self._rows:
            return 0, 0
        return divmod(max(r.data_chunk * layout.FILES_PER_CHUNK + r.data_file for r in self._rows) + 1, layout.FILES_PER_CHUNK)

    def _load(self) -> None:
        self.info = layout.read_info(self.root)
        if "cail" not in self.info:
            raise DatasetError(f"{self.root}: another tool wrote it; bring it in with `cail demos import`")
        self.features = features_from_json(self.info["features"])
        self._text = str(layout.read_parquet(self.root / layout.TASKS).column("__index_level_0__")[0].as_py())
        durable.remove_leftovers(self.root, layout.WRITTEN)
        self._rows = layout.read_episodes(self.root, self.features)
        meta_files = sorted((self.root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))
        self._meta_file = max(len(meta_files) - 1, 0)
        for path in meta_files:
            self._open_stats = layout.read_stats(self.root, self.features, path)
            if len(self._rows) != self.info["total_episodes"]:  # a save was cut off before the totals
                self._add_stats(self._open_stats)
        self._open_rows = self._rows[len(self._rows) - len(self._open_stats) :]
        if self._rows and not self._stats:
            self._stats = stats_from_json(layout.read_json(self.root / layout.STATS))
        self._complete_interrupted_save()

    def _add_stats(self, stats: Sequence[dict[str, FeatureStats]]) -> None:
        parts = [*([self._stats] if self._stats else []), *stats]
        self._stats = {name: merge_stats([part[name] for part in parts]) for name in parts[0]}

    def _complete_interrupted_save(self) -> None:
        """Let the tables name what the newest data file holds: a kill may have come before them, or between two of them."""
        chunk, file = self._next_data_file
        path = self.root / layout.DATA_PATH.format(chunk_index=chunk, file_index=file)
        named = 0
        if self._rows and not path.exists():
            chunk, file = self._rows[-1].data_chunk, self._rows[-1].data_file
            path = self._rows[-1].data_path(self.root)
            named = sum((row.data_chunk, row.data_file) == (chunk, file) for row in self._rows)
        if path.exists() and len(self._records(path)) > named:
            episodes = self._episodes_in(path)[named:]
            columns = [self._columns(e, self.episodes + i, at) for i, (e, at) in enumerate(self._starts(episodes))]
            self._index(episodes, columns, chunk, file)
        elif len(self._rows) != self.info["total_episodes"]:
            self._write_totals()

    @staticmethod
    def _records(path: Path) -> list[dict[str, Any]]:
        try:
            records: list[dict[str, Any]] = json.loads((pq.read_schema(path).metadata or {}).get(layout.RECORDS, b"[]"))
        except (pa.ArrowException, OSError, ValueError):
            return []  # a damaged file: `check` says so, and opening for writing must not make it worse
        return records

    def _episodes_in(self, path: Path) -> list[Episode]:
        table = layout.read_parquet(path)
        records = self._records(path)
        episodes, at = [], 0
        dtype = self.features[STATE].dtype
        for record in records:
            part = table.slice(at, record["length"])
            frames = {name: f.to_numpy(part.column(name)) for name, f in self.features.items()}
            episodes.append(
                Episode(
                    frames,
                    np.asarray(record["final_state"], dtype=dtype),
                    record["demonstrator"],
                    record["outcome"],
                    record["rank"],
                    record.get("recording"),
                )
            )
            at += record["length"]
        return episodes
