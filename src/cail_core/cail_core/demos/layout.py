"""Where things lie in a dataset folder (LeRobotDataset v3.0), and the tables under `meta/`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cail_core.demos.features import INDEX_FEATURES, STATE, Features, features_to_json
from cail_core.demos.stats import NAMES, FeatureStats
from cail_core.errors import DatasetError, listed

VERSION = "v3.0"
FILES_PER_CHUNK = 1000
EPISODES_PER_META_FILE = 25
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
META_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
INFO, STATS, TASKS, RANKING = "meta/info.json", "meta/stats.json", "meta/tasks.parquet", "meta/ranking.json"
WRITTEN = ("data/chunk-*/file-*.parquet", "meta/episodes/chunk-*/file-*.parquet", "meta/*.json", "meta/tasks.parquet")
"""What a writer makes; everything else in the folder is the user's."""
RECORDS = b"cail"
"""Key of a data file's schema metadata: its episodes' records, so that an interrupted save can be completed from it."""


@dataclass(frozen=True)
class EpisodeRow:
    """What `meta/episodes` says of one episode."""

    episode_index: int
    length: int
    data_chunk: int
    data_file: int
    from_index: int
    demonstrator: str
    outcome: str
    undiscounted_return: float | None
    rank: int | None
    final_state: NDArray[Any]
    recording: dict[str, Any] | None = None

    @property
    def to_index(self) -> int:
        return self.from_index + self.length

    def data_path(self, root: Path) -> Path:
        return root / DATA_PATH.format(chunk_index=self.data_chunk, file_index=self.data_file)


_ROW_COLUMNS = [
    "episode_index",
    "length",
    "data/chunk_index",
    "data/file_index",
    "dataset_from_index",
    "demonstrator",
    "outcome",
    "return",
    "rank",
    "final_state",
]


def read_info(root: Path) -> dict[str, Any]:
    """`meta/info.json`, with everything in it that the readers rely on; all faults are listed."""
    path = root / INFO
    if not path.is_file():
        raise DatasetError(f"expected a dataset (a folder with {INFO}), given {root}")
    info = read_json(path)
    if not isinstance(info, dict):
        raise DatasetError(f"{path}: expected keys and values, given {type(info).__name__}")
    if info.get("codebase_version") != VERSION:
        raise DatasetError(f"{root}: expected the LeRobot dataset version {VERSION}, given {info.get('codebase_version')}")
    wanted: dict[str, Any] = {"fps": int, "total_episodes": int, "total_frames": int, "data_path": str, "features": dict}
    faults = [f"{key}: missing or not of the right kind ({info.get(key)!r})" for key, kind in wanted.items()
              if not isinstance(info.get(key), kind)]
    if not isinstance(info.setdefault("robot_type", None), (str, type(None))):
        faults.append(f"robot_type: expected text, given {info['robot_type']!r}")
    if "cail" in info and not (isinstance(info["cail"], dict) and isinstance(info["cail"].get("task"), str)):
        faults.append(f"cail: expected at least the task's name, given {info['cail']!r}")
    if faults:
        raise DatasetError(listed(str(path), faults))
    return info


def new_info(task: str, robot_type: str, fps: int, features: Features) -> dict[str, Any]:
    return {
        "codebase_version": VERSION,
        "robot_type": robot_type,
        "total_episodes": 0,
        "total_frames": 0,
        "total_tasks": 1,
        "chunks_size": FILES_PER_CHUNK,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": fps,
        "splits": {},
        "data_path": DATA_PATH,
        "video_path": None,
        "features": features_to_json(features),
        "cail": {"task": task},
    }


def tasks_table(text: str) -> pa.Table:
    """`meta/tasks.parquet`: the text is the pandas index, as LeRobot reads it."""
    index = "__index_level_0__"
    pandas = {
        "index_columns": [index],
        "column_indexes": [],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.2.0",
        "columns": [
            {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64", "metadata": None},
            {"name": None, "field_name": index, "pandas_type": "unicode", "numpy_type": "object", "metadata": None},
        ],
    }
    table = pa.table({"task_index": pa.array([0], pa.int64()), index: pa.array([text], pa.string())})
    return table.replace_schema_metadata({"pandas": json.dumps(pandas)})


def episodes_table(
    rows: Sequence[EpisodeRow], stats: Sequence[dict[str, FeatureStats]], place: tuple[int, int], text: str, features: Features
) -> pa.Table:
    """The rows of one `meta/episodes` file, which lies at `place` = (chunk, file)."""
    n = len(rows)
    columns: dict[str, pa.Array] = {
        "episode_index": pa.array([r.episode_index for r in rows], pa.int64()),
        "tasks": pa.array([[text]] * n, pa.list_(pa.string())),
        "length": pa.array([r.length for r in rows], pa.int64()),
        "data/chunk_index": pa.array([r.data_chunk for r in rows], pa.int64()),
        "data/file_index": pa.array([r.data_file for r in rows], pa.int64()),
        "dataset_from_index": pa.array([r.from_index for r in rows], pa.int64()),
        "dataset_to_index": pa.array([r.to_index for r in rows], pa.int64()),
        "demonstrator": pa.array([r.demonstrator for r in rows], pa.string()),
        "outcome": pa.array([r.outcome for r in rows], pa.string()),
        "return": pa.array([r.undiscounted_return for r in rows], pa.float64()),
        "rank": pa.array([r.rank for r in rows], pa.int64()),
        "final_state": features[STATE].to_arrow(np.stack([r.final_state for r in rows])),
        "recording": pa.array([None if r.recording is None else json.dumps(r.recording) for r in rows], pa.string()),
        "meta/episodes/chunk_index": pa.array([place[0]] * n, pa.int64()),
        "meta/episodes/file_index": pa.array([place[1]] * n, pa.int64()),
    }
    for feature in {**features, **INDEX_FEATURES}:
        for name in NAMES:
            kind = pa.int64() if name == "count" else pa.float64()
            columns[f"stats/{feature}/{name}"] = pa.array([s[feature][name] for s in stats], pa.list_(kind))
    return pa.table(columns)


def read_episodes(root: Path, features: Features) -> list[EpisodeRow]:
    """All rows of `meta/episodes`, in the order of the episodes."""
    rows: list[EpisodeRow] = []
    for path in sorted((root / "meta" / "episodes").glob("chunk-*/file-*.parquet")):
        table = read_parquet(path, [*_ROW_COLUMNS, "recording"])
        missing = [name for name in _ROW_COLUMNS if name not in table.column_names]
        if missing:
            raise DatasetError(
                f"{root}: its episodes lack {', '.join(missing)}; another tool wrote it: bring it in with `cail demos import`"
            )
        final = features[STATE].to_numpy(table.column("final_state")).reshape(-1, *features[STATE].shape)
        plain = [table.column(name).to_pylist() for name in _ROW_COLUMNS[:-1]]
        given = table.column("recording").to_pylist() if "recording" in table.column_names else [None] * len(table)
        recording = [None if text is None else json.loads(text) for text in given]
        rows += [EpisodeRow(*values) for values in zip(*plain, final, recording, strict=True)]
    return sorted(rows, key=lambda row: row.episode_index)


def read_stats(root: Path, features: Features, path: Path) -> list[dict[str, FeatureStats]]:
    """The per-episode statistics of one `meta/episodes` file."""
    table = read_parquet(path)
    every = [*features, *INDEX_FEATURES]
    columns = {(f, name): table.column(f"stats/{f}/{name}").to_pylist() for f in every for name in NAMES}
    return [
        {f: {name: np.asarray(columns[f, name][i], dtype=np.float64) for name in NAMES} for f in every} for i in range(len(table))
    ]


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """A Parquet file's columns (those of `columns` that it has), mapped into memory; a broken file is a DatasetError."""
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            chosen = None if columns is None else [c for c in columns if c in file.schema_arrow.names]
            return file.read(columns=chosen, use_threads=False)
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing") from None
    except (pa.ArrowException, OSError) as fault:
        raise DatasetError(f"{path}: empty, cut short or not Parquet ({str(fault).splitlines()[0]})") from None


def parquet_bytes(table: pa.Table) -> memoryview:
    """The table as the bytes of a Parquet file: floating-point columns plain, the rest dictionary-coded."""
    repeating = [f.name for f in table.schema if not _is_floating(f.type)]
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy", use_dictionary=repeating or False, write_statistics=repeating or False)
    return memoryview(sink.getvalue())


def _is_floating(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_nested(kind) else kind
    return bool(pa.types.is_floating(inner))


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing") from None
    except (ValueError, UnicodeDecodeError) as fault:
        raise DatasetError(f"{path}: not valid JSON ({fault})") from None
