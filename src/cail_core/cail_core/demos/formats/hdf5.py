"""What the HDF5 formats share: opening, reading an observation that may be a group of named ones, episode attributes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from cail_core import durable
from cail_core.demos.episode import Episode, end_flags
from cail_core.demos.features import ACTION, REWARD, STATE
from cail_core.demos.formats.source import as_scalars, as_vectors, joined, record
from cail_core.errors import BadInput

OTHERS = "cail"
"""Group of an episode that holds the features which the format has no place for."""


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The file for reading; a missing or broken one is a BadInput."""
    try:
        file = h5py.File(path, "r")
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except OSError as fault:
        raise BadInput(f"{path}: empty, cut short or not HDF5 ({str(fault).splitlines()[0]})") from None
    with file:
        yield file


@contextmanager
def created(path: Path) -> Iterator[Any]:
    """A new file that appears whole or not at all. It is built in memory: HDF5 crashes where the disk fills up under it."""
    with durable.new_file(path) as temporary:
        with h5py.File(path.name, "w", driver="core", backing_store=False) as file:
            yield file
            file.flush()
            image = file.id.get_file_image()
        temporary.write_bytes(image)


def observation(node: Any, name: str) -> tuple[NDArray[Any], list[str] | None]:
    """An array, or the arrays of a group side by side in the order of their names; with a name for each number."""
    if isinstance(node, h5py.Dataset):
        return as_vectors(name, node[()]), None
    parts = {}
    for key in sorted(node):
        values = node[key]
        if isinstance(values, h5py.Dataset) and values.ndim <= 2:  # images and nested groups are no state
            parts[key] = as_vectors(f"{name}/{key}", values[()])
    if not parts:
        raise BadInput(f"{name}: expected at least one vector, given {', '.join(node) or 'nothing'}")
    return joined(parts)


def array(group: Any, key: str, name: str) -> NDArray[Any]:
    """The array `key` of an episode's group."""
    if not isinstance(group[key], h5py.Dataset) or group[key].ndim == 0:
        raise BadInput(f"{name}/{key}: expected an array with a row per step")
    return np.asarray(group[key][()])


def ended(group: Any, key: str, name: str, rows: int) -> bool:
    """Whether the flag `key` is set on the last of `rows` steps."""
    return bool(as_scalars(f"{name}/{key}", array(group, key, name), rows)[-1])


def episode(
    group: Any, name: str, states: NDArray[Any], final: NDArray[Any], *, truncated: bool, rows: int | None = None
) -> Episode:
    """An episode from its states and an HDF5 group with actions, rewards and, from our own export, the rest.

    `rows` is how many steps the group holds where that is not the number of states.
    """
    n, stored = len(states), rows or len(states)
    actions = as_vectors(f"{name}/actions", array(group, "actions", name), stored)[:n]
    frames = {STATE: states, ACTION: actions, **end_flags(n, truncated=truncated)}
    if "rewards" in group:
        frames[REWARD] = as_scalars(f"{name}/rewards", array(group, "rewards", name), stored)[:n]
    if OTHERS in group:
        frames.update({feature: group[OTHERS][feature][()] for feature in group[OTHERS]})
    facts = group.attrs
    return Episode(
        frames,
        final,
        str(facts.get("demonstrator", "unknown")),
        str(facts.get("outcome", "unknown")),
        int(facts.get("rank", 0)) or None,
    )


def put_episode(group: Any, episode: Episode, others: list[str]) -> None:
    """Actions, rewards, the features without a place of their own, and the episode's facts."""
    group["actions"] = episode.frames[ACTION]
    if REWARD in episode.frames:
        group["rewards"] = episode.frames[REWARD]
    for feature in others:
        group[f"{OTHERS}/{feature}"] = episode.frames[feature]
    group.attrs.update(record(episode))


def numbered(names: Any) -> list[str]:
    """demo_0, demo_1, …, demo_10 in the order of their numbers."""
    return sorted(names, key=lambda name: (int(digits) if (digits := "".join(filter(str.isdigit, name))) else -1, name))


def states_with_final(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """T + 1 states as the T states acted in and the one after the last action."""
    return values[:-1], np.array(values[-1])
