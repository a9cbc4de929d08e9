"""Which frames a scripted demonstrator showed badly on purpose: what a confidence is measured against.

Scripted people know when they lapse. `collect(..., truth=True)` keeps that beside the dataset, in `NAME.truth.json` next to the
folder `NAME`: for measurements alone. Nothing that learns opens it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cail_core import durable
from cail_core.errors import BadInput, DatasetError

Flags = NDArray[np.bool_]


@runtime_checkable
class Marking(Protocol):
    """A demonstrator's policy that knows whether its last action was bad."""

    @property
    def bad(self) -> bool: ...


@dataclass(frozen=True)
class BadThroughout:
    """The policy of somebody whose every action is bad."""

    policy: Callable[[NDArray[np.float32]], NDArray[np.float32]]
    bad: bool = True

    def __call__(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.policy(observation)


def path_of(dataset: Path) -> Path:
    return dataset.with_name(f"{dataset.name}.truth.json")


class TruthWriter:
    """Written before each episode is saved, so that a dataset never has an episode of which the truth is not kept."""

    def __init__(self, dataset: Path, episodes: int) -> None:
        """`episodes`: how many the dataset holds already."""
        self._path = path_of(dataset)
        self._stretches: list[list[list[int]]] = []
        self._lengths: list[int] = []
        if episodes:
            held = _content(self._path) if self._path.is_file() else {"bad": [], "lengths": []}
            if len(held["bad"]) < episodes:
                raise BadInput(f"{dataset} was collected without keeping which frames are bad; expected that of {episodes} "
                               f"episodes in {self._path}, given {len(held['bad'])}; collect anew into another --out")
            self._stretches, self._lengths = held["bad"][:episodes], held["lengths"][:episodes]

    def add(self, bad: Flags) -> None:
        self._stretches.append(stretches(bad))
        self._lengths.append(len(bad))
        durable.write_bytes(self._path, json.dumps({"lengths": self._lengths, "bad": self._stretches}).encode())


def stretches(bad: Flags) -> list[list[int]]:
    """[first, behind the last] of each run of bad frames."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], bad.astype(np.int8), [0]])))
    return [[int(a), int(b)] for a, b in zip(edges[::2], edges[1::2], strict=True)]


def read(dataset: Path, lengths: Sequence[int]) -> Flags:
    """Which frames are bad, in dataset order; `lengths` are those of the dataset's episodes."""
    path = path_of(dataset)
    held = _content(path)
    if held["lengths"] != list(lengths):
        raise DatasetError(f"{path}: expected the frames of {len(lengths)} episodes as {dataset} has them, given those of "
                           f"{len(held['lengths'])} others; the dataset was changed since")
    bad = [np.zeros(length, dtype=bool) for length in held["lengths"]]
    for flags, found in zip(bad, held["bad"], strict=True):
        for first, end in found:
            flags[first:end] = True
    return np.concatenate(bad)


def _content(path: Path) -> dict[str, Any]:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        if len(held["lengths"]) != len(held["bad"]):
            raise ValueError("lengths and bad differ")
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise DatasetError(f"{path}: expected which frames are bad, as `cail demos collect --truth` writes it "
                           f"({fault})") from None
    return dict(held)
