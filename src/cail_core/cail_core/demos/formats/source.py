"""What every reader of a foreign format gives, and what every writer puts beside it so that nothing is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cail_core.demos.dataset import DemoDataset
from cail_core.demos.episode import Episode
from cail_core.demos.features import (
    ACTION,
    DONE,
    REWARD,
    STATE,
    TRUNCATED,
    Feature,
    Features,
    features_from_json,
    features_to_json,
)
from cail_core.demos.layout import EpisodeRow
from cail_core.errors import BadInput

STANDARD = (STATE, ACTION, REWARD, DONE, TRUNCATED)
"""The features that every format has a place of its own for; the others travel beside them."""


@dataclass
class Source:
    """Demonstrations to be imported: `episodes` reads them one after the other."""

    features: Features
    episodes: Callable[[], Iterator[Episode]]
    task: str | None = None
    text: str | None = None
    robot_type: str | None = None
    fps: int | None = None
    recorded: bool = False
    """By this project: robot and rate are what it says, whatever the task's usual ones are."""
    notes: list[str] = field(default_factory=list)
    units: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Of the numbers of "observation" and "action", where the source says so."""


def passport(dataset: DemoDataset) -> str:
    """What the other formats have no place for, as JSON: read back by `from_passport`."""
    return json.dumps(
        {
            "task": dataset.task,
            "text": dataset.text,
            "robot_type": dataset.info["robot_type"],
            "fps": dataset.info["fps"],
            "features": features_to_json(dataset.features),
            "units": dataset.info["cail"].get("units", {}),
        }
    )


def from_passport(text: str | bytes, episodes: Callable[[], Iterator[Episode]]) -> Source:
    known = json.loads(text)
    features = features_from_json(known["features"])

    def ours() -> Iterator[Episode]:
        for episode in episodes():  # a format may have had to add a column, such as rewards where there were none
            episode.frames = {name: values for name, values in episode.frames.items() if name in features}
            yield episode

    return Source(features, ours, known["task"], known["text"], known["robot_type"], known["fps"], units=known.get("units", {}))


def record(episode: Episode | EpisodeRow) -> dict[str, Any]:
    """The episode's own facts, for formats that keep attributes per episode."""
    return {"demonstrator": episode.demonstrator, "outcome": episode.outcome, "rank": episode.rank or 0}


def as_vectors(name: str, values: NDArray[Any], length: int | None = None) -> NDArray[Any]:
    """`values` as (frames, numbers) in single or double precision; anything else is a BadInput."""
    if values.dtype.kind not in "fiub":
        raise BadInput(f"{name}: expected numbers, given {values.dtype}")
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[1] == 0:
        raise BadInput(f"{name}: expected the shape (frames, numbers), given {values.shape}")
    if length is not None and len(values) != length:
        raise BadInput(f"{name}: expected {length} rows, given {len(values)}")
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float32)


def as_scalars(name: str, values: NDArray[Any], length: int) -> NDArray[Any]:
    """`values` as (frames,) in single or double precision."""
    vectors = as_vectors(name, values, length)
    if vectors.shape[1] != 1:
        raise BadInput(f"{name}: expected one number a row, given {vectors.shape[1]}")
    return vectors[:, 0]


def plain_features(
    state: NDArray[Any],
    action: NDArray[Any],
    reward: NDArray[Any] | None,
    state_names: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
) -> dict[str, Feature]:
    """The features of an import from the arrays of its first episode."""

    def names(given: Sequence[str] | None, prefix: str, n: int) -> tuple[str, ...]:
        return tuple(given) if given is not None and len(given) == n else tuple(f"{prefix}_{i}" for i in range(n))

    made = {
        STATE: Feature(str(state.dtype), (state.shape[1],), names(state_names, "state", state.shape[1])),
        ACTION: Feature(str(action.dtype), (action.shape[1],), names(action_names, "action", action.shape[1])),
    }
    if reward is not None:
        made[REWARD] = Feature(str(reward.dtype), (1,))
    made[DONE] = made[TRUNCATED] = Feature("bool", (1,))
    return made


def joined(parts: Mapping[str, NDArray[Any]]) -> tuple[NDArray[Any], list[str]]:
    """Several named observations side by side as one state vector, with a name for each number."""
    names = [key if parts[key].shape[1] == 1 else f"{key}_{i}" for key in parts for i in range(parts[key].shape[1])]
    return np.concatenate([parts[key] for key in parts], axis=1), names
