"""How things moved: paths in metres, speed, and the distance kept from what must not be touched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cail_core.tasks.base import TaskSpec

Floats = NDArray[np.float64]
POINTS = 40
"""Points of a path that is drawn: enough for the eye, and 200 of them stay a small page."""


@dataclass(frozen=True)
class Motion:
    """One episode in space."""

    path: Floats
    """Positions [frames + 1, 2 or 3], m."""
    top_speed: float
    """m/s; between two observations, so faster only for less than one of them."""
    closest: float | None
    """Smallest gap to what must be kept clear of, seen from above, m; below 0 they overlap. None: nothing to keep clear of."""
    things: dict[str, Floats]
    """Where each thing of the view was when the episode began."""


def motion_of(spec: TaskSpec, states: NDArray[np.floating]) -> Motion | None:
    """The motion of an episode's states (its final one included); None for a task that says nothing of positions."""
    view = spec.view
    if view is None:
        return None
    path = spec.place(view.position, states)
    speed = np.linalg.norm(np.diff(path, axis=0), axis=1) * spec.fps
    gaps = [np.linalg.norm(path[:, :2] - spec.place(thing.at[:2], states), axis=1) - thing.radius_m - view.radius_m
            for thing in view.things if thing.keep_clear]
    return Motion(path, float(speed.max(initial=0.0)), float(min(gap.min() for gap in gaps)) if gaps else None,
                  {thing.name: spec.place(thing.at, states[:1])[0] for thing in view.things})


def thinned(path: Floats, points: int = POINTS) -> tuple[Floats, NDArray[np.int64]]:
    """At most `points` of a path, evenly spread and with both ends, and which they were."""
    which = np.unique(np.linspace(0, len(path) - 1, min(points, len(path))).round().astype(np.int64))
    return path[which], which
