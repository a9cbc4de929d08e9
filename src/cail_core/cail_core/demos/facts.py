"""What a person wants to know of a demonstration to judge it: how it ended, how long, how smooth, where it went."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cail_core.demos.dataset import DemoDataset
from cail_core.demos.features import ACTION, STATE
from cail_core.errors import CailError
from cail_core.tasks import TaskSpec, get_task

Positions = NDArray[np.float64]


@dataclass(frozen=True)
class Facts:
    """The dimensions of quality side by side, none of them added up."""

    outcome: str
    frames: int
    seconds: float
    path_length: float
    roughness: float
    """Mean change of the action from frame to frame; 0 is perfectly smooth."""
    clearance: float | None
    """Smallest distance to what must be kept clear of, where the task has such a thing."""
    path: Positions
    """The way as seen from above, with the state after the last action."""
    things: dict[str, tuple[float, float]]
    """Where the task's things stood at first, by name."""


def view_of(dataset: DemoDataset) -> TaskSpec | None:
    """The dataset's task, if it is installed and says what is to be seen; else the first two numbers are drawn."""
    try:
        spec = get_task(dataset.task).spec
    except CailError:
        return None
    return spec if spec.view is not None and spec.observation_names == dataset.features[STATE].names else None


def facts_of(dataset: DemoDataset, index: int, spec: TaskSpec | None) -> Facts:
    """The facts of one episode; `spec` as `view_of` gives it."""
    episode = dataset.episode(index)
    n = episode.length
    states = np.concatenate([episode.frames[STATE].reshape(n, -1), episode.final_state[None]]).astype(np.float64)
    changes = np.diff(episode.frames[ACTION].reshape(n, -1).astype(np.float64), axis=0)
    path, clearance, things = states[:, [0, min(1, states.shape[1] - 1)]], None, {}
    if spec is not None and spec.view is not None:
        view = spec.view
        path = spec.place(view.position[:2], states)
        clear = [thing for thing in view.things if thing.keep_clear]
        distances = [np.linalg.norm(path - spec.place(t.at[:2], states), axis=1) - t.radius_m - view.radius_m for t in clear]
        clearance = float(min(d.min() for d in distances)) if distances else None
        things = {thing.name: _first(spec.place(thing.at[:2], states)) for thing in view.things}
    return Facts(
        outcome=episode.outcome,
        frames=n,
        seconds=n / dataset.info["fps"],
        path_length=float(np.linalg.norm(np.diff(path, axis=0), axis=1).sum()),
        roughness=float(np.linalg.norm(changes, axis=1).mean()) if len(changes) else 0.0,
        clearance=clearance,
        path=path,
        things=things,
    )


def _first(places: Positions) -> tuple[float, float]:
    return float(places[0, 0]), float(places[0, 1])
