"""A task of which nothing is known but its demonstrations: a lab's own recordings, trained on without any environment.

Names, units, rate, robot and horizon come from the dataset; the range of each recorded action is what -1 and 1 mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cail_core.demos.dataset import DemoDataset
from cail_core.demos.features import ACTION, REQUESTED, STATE, Feature
from cail_core.errors import CailError, DatasetError
from cail_core.tasks.base import DATA, BatchEnv, Demonstrator, NoEnvironment, Task, TaskSpec, get_task

NARROW = 1e-6
"""An action whose range is a smaller share of its size than this never changed: what is left is rounding."""


class DatasetTask:
    """The task of a dataset. Methods that learn from recordings alone train on it; nothing can act in it."""

    def __init__(self, dataset: DemoDataset) -> None:
        if not dataset.rows:
            raise DatasetError(f"{dataset.root} holds no episodes; record, collect or import some first")
        state, action = dataset.features[STATE], dataset.features[ACTION]
        asked = REQUESTED if REQUESTED in dataset.features else ACTION
        low, high = action_range(dataset.column(asked).reshape(-1, *action.shape))
        names, units = names_of(action, "action"), dataset.units("action")
        self.spec = TaskSpec(
            name=f"{DATA}:{dataset.task}",
            text=dataset.text,
            robot_type=dataset.info["robot_type"] or "unknown",
            fps=dataset.info["fps"],
            max_steps=max(row.length for row in dataset.rows),
            observation_names=names_of(state, "state"),
            action_names=names,
            action_scale=range_text(names, low, high, units),
            observation_units=units_text(names_of(state, "state"), dataset.units("observation")),
            action_low=low,
            action_high=high,
            action_units=units,
            own_units=True,
            has_environment=False,
        )

    def make_env(self, num_envs: int) -> BatchEnv:
        raise NoEnvironment(f"'{self.spec.name}' is known by its demonstrations alone: there is no environment to act in")

    def mixes(self) -> dict[str, Sequence[tuple[Demonstrator, float]]]:
        return {}


def task_of(dataset: DemoDataset) -> Task:
    """The task that the dataset names, where it is installed and has these observations and actions; else the dataset's own."""
    try:
        task = get_task(dataset.task)
    except CailError:
        return DatasetTask(dataset)
    fits = (task.spec.observation_names, task.spec.action_names) == (
        names_of(dataset.features[STATE], "state"), names_of(dataset.features[ACTION], "action"))
    return task if fits else DatasetTask(dataset)


def action_range(actions: NDArray[np.floating]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The least and the greatest of each action; around one that never changed, a range so narrow that it stays as it is."""
    low, high = actions.min(axis=0).astype(np.float64), actions.max(axis=0).astype(np.float64)
    size = np.maximum(np.maximum(np.abs(low), np.abs(high)), 1e-12)
    still = high - low <= NARROW * size
    middle, half = (low + high) / 2, np.where(size > 1e-9, 1e-3 * size, 1e-3)
    low, high = np.where(still, middle - half, low), np.where(still, middle + half, high)
    return tuple(map(float, low)), tuple(map(float, high))


def names_of(feature: Feature, prefix: str) -> tuple[str, ...]:
    """The names of a vector's entries; numbered ones where the dataset has none."""
    n = feature.shape[0]
    return feature.names if feature.names is not None and len(feature.names) == n else tuple(f"{prefix}_{i}" for i in range(n))


def range_text(names: Sequence[str], low: Sequence[float], high: Sequence[float], units: Sequence[str]) -> str:
    """What actions of -1 and 1 mean, for a card."""
    shown = units or [""] * len(names)
    return ", ".join(f"{name} {a:.6g} … {b:.6g}{f' {unit}' if unit else ''}"
                     for name, a, b, unit in zip(names, low, high, shown, strict=True))


def units_text(names: Sequence[str], units: Sequence[str]) -> str:
    """The units of all entries: once where they share it, else by name."""
    if not any(units):
        return ""
    if len(set(units)) == 1:
        return f"in {units[0]}"
    return ", ".join(f"{name} in {unit or '1'}" for name, unit in zip(names, units, strict=True))
