"""LeRobot v3 folders that other tools wrote: state, action and whatever numbers stand beside them; videos stay behind.

LeRobot keeps no state after an episode's last action. Where another tool wrote the folder, each episode's last frame
gives that state and its action is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from cail_core.demos import layout
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.episode import Episode, end_flags, outcome_of
from cail_core.demos.features import ACTION, DONE, INDEX_FEATURES, STATE, SUCCESS, TRUNCATED, Feature, features_from_json
from cail_core.demos.formats.source import Source
from cail_core.errors import BadInput

_ROWS = ["episode_index", "length", "data/chunk_index", "data/file_index", "dataset_from_index"]


def read(root: Path) -> Source:
    info = layout.read_info(root)
    if "cail" in info:
        dataset = DemoDataset(root)
        return Source(dataset.features, dataset.iterate, dataset.task, dataset.text, info["robot_type"], info["fps"],
                      units=info["cail"].get("units", {}))
    described = info.get("features", {})
    numbers = {
        name: f
        for name, f in described.items()
        if f.get("dtype") in ("float32", "float64", "int64", "int32", "bool")
        and len(f.get("shape", [])) == 1
        and name not in INDEX_FEATURES
    }
    for needed in (STATE, ACTION):
        if needed not in numbers:
            raise BadInput(f"{root}: expected the feature {needed}, given {', '.join(described) or 'none'}")
    features: dict[str, Feature] = {**features_from_json(numbers), DONE: Feature("bool", (1,)), TRUNCATED: Feature("bool", (1,))}
    left = [name for name in described if name not in features and name not in INDEX_FEATURES]
    notes = ["the last frame of each episode serves as its final state; its action is dropped"]
    if left:
        notes.append(f"left behind: {', '.join(left)}")
    return Source(
        features,
        lambda: _episodes(root, info, features),
        text=_text(root),
        robot_type=info.get("robot_type"),
        fps=info.get("fps"),
        notes=notes,
    )


def _episodes(root: Path, info: dict[str, Any], features: dict[str, Feature]) -> Iterator[Episode]:
    loaded: tuple[Path, pa.Table] | None = None
    starts: dict[Path, int] = {}
    rows = []
    for path in sorted((root / "meta" / "episodes").glob("chunk-*/file-*.parquet")):
        rows += layout.read_parquet(path, _ROWS).to_pylist()
    for row in sorted(rows, key=lambda r: r["episode_index"]):
        path = root / info["data_path"].format(chunk_index=row["data/chunk_index"], file_index=row["data/file_index"])
        if loaded is None or loaded[0] != path:
            loaded = path, layout.read_parquet(path)
        at = row["dataset_from_index"] - starts.setdefault(path, row["dataset_from_index"])
        part = loaded[1].slice(at, row["length"])
        if row["length"] < 2 or len(part) != row["length"]:
            raise BadInput(f"{path}: episode {row['episode_index']}: expected {max(row['length'], 2)} frames, found {len(part)}")
        stored = {name: f.to_numpy(part.column(name)) for name, f in features.items() if name in part.column_names}
        frames = {name: values[:-1] for name, values in stored.items()}
        missing = [name for name in features if name not in frames and name not in (DONE, TRUNCATED)]
        if missing:
            raise BadInput(f"{path}: misses {', '.join(missing)}")
        done_by_task = bool(stored[DONE][-2:].any()) and not bool(stored.get(TRUNCATED, [False])[-1]) if DONE in stored else False
        frames.update(end_flags(row["length"] - 1, truncated=not done_by_task))
        success = bool(stored[SUCCESS].any()) if SUCCESS in stored else None
        yield Episode(frames, stored[STATE][-1].copy(), outcome=outcome_of(success, not done_by_task))


def _text(root: Path) -> str | None:
    path = root / layout.TASKS
    if not path.exists():
        return None
    table = layout.read_parquet(path)
    name = next((n for n in ("__index_level_0__", "task") if n in table.column_names), None)
    return str(table.column(name)[0].as_py()) if name and len(table) else None
