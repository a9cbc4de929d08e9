"""Minari datasets in their HDF5 layout: `data/main_data.hdf5` with `episode_N/…` and `data/metadata.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cail_core import durable
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.episode import Episode, outcome_of
from cail_core.demos.features import ACTION, REWARD, STATE, TRUNCATED, Feature
from cail_core.demos.formats import hdf5
from cail_core.demos.formats.source import STANDARD, Source, from_passport, passport, plain_features
from cail_core.errors import BadInput

DATA, METADATA = "main_data.hdf5", "metadata.json"
_VERSION = "0.5.0"  # the oldest Minari whose layout this is; newer ones read it


def find(given: Path) -> Path | None:
    """The folder with the data of a Minari dataset: given itself, its parent, or a dataset's id in Minari's own folder."""
    local = Path(os.environ.get("MINARI_DATASETS_PATH", Path.home() / ".minari" / "datasets"))
    for folder in (given, given / "data", local / given / "data"):
        if (folder / METADATA).is_file():
            return folder
    return None


def read(folder: Path) -> Source:
    try:
        metadata = json.loads((folder / METADATA).read_text(encoding="utf-8"))
    except ValueError as fault:
        raise BadInput(f"{folder / METADATA}: not valid JSON ({fault})") from None
    if metadata.get("data_format", "hdf5") != "hdf5":
        raise BadInput(f"{folder}: expected Minari's hdf5 format, given {metadata['data_format']}; convert it with Minari first")
    path = folder / DATA
    with hdf5.opened(path) as file:
        names = hdf5.numbered(name for name in file if name.startswith("episode_"))
        if not names:
            raise BadInput(f"{path}: holds no episodes")
        first, state_names = _episode(file[names[0]], names[0])

    def episodes() -> Iterator[Episode]:
        with hdf5.opened(path) as file:
            for name in names:
                yield _episode(file[name], name)[0]

    if "cail" in metadata:
        return from_passport(metadata["cail"], episodes)
    features = plain_features(first.frames[STATE], first.frames[ACTION], first.frames.get(REWARD), state_names)
    name = str(metadata.get("dataset_id", folder.name))
    return Source(features, episodes, name, metadata.get("description") or name, robot_type=name)


def write(dataset: DemoDataset, path: Path) -> None:
    """A folder that `minari.MinariDataset(path / "data")` opens, or `minari.load_dataset` once under Minari's own folder."""
    others = [name for name in dataset.features if name not in STANDARD]
    with durable.new_folder(path) as building:
        data = building / "data"
        data.mkdir()
        with hdf5.created(data / DATA) as file:
            for i, episode in enumerate(dataset.iterate()):
                group = file.create_group(f"episode_{i}")
                group.attrs.update({"id": i, "total_steps": episode.length})
                group["observations"] = np.concatenate([episode.frames[STATE], episode.final_state[None]])
                group["truncations"] = episode.frames[TRUNCATED]
                group["terminations"] = episode.frames["next.done"] & ~episode.frames[TRUNCATED]
                group.create_group("infos")
                hdf5.put_episode(group, episode, others)
                if REWARD not in episode.frames:
                    group["rewards"] = np.zeros(episode.length)  # Minari has no episodes without rewards
        durable.write_json(
            data / METADATA,
            {
                "total_episodes": dataset.episodes,
                "total_steps": dataset.frames,
                "data_format": "hdf5",
                "observation_space": _box(dataset.features[STATE], np.inf),
                "action_space": _box(dataset.features[ACTION], np.inf),
                "dataset_id": f"cail/{dataset.task}-v0",
                "minari_version": _VERSION,
                "description": dataset.text,
                "cail": passport(dataset),
            },
        )


def _box(feature: Feature, bound: float) -> str:
    n = feature.shape[0]
    return json.dumps({"type": "Box", "dtype": feature.dtype, "shape": [n], "low": [-bound] * n, "high": [bound] * n})


def _episode(group: Any, name: str) -> tuple[Episode, list[str] | None]:
    missing = [key for key in ("observations", "actions", "terminations", "truncations") if key not in group]
    if missing:
        raise BadInput(f"{name}: misses {', '.join(missing)}")
    values, names = hdf5.observation(group["observations"], f"{name}/observations")
    if len(values) < 2:
        raise BadInput(f"{name}: expected at least one transition")
    states, final = hdf5.states_with_final(values)
    terminated = hdf5.ended(group, "terminations", name, len(states))
    episode = hdf5.episode(group, name, states, final, truncated=not terminated)
    if episode.outcome == "unknown" and "infos" in group and "success" in group["infos"]:
        episode.outcome = outcome_of(bool(np.ravel(group["infos"]["success"][()])[-1]), not terminated)
    return episode, names
