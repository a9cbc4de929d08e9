"""What a person wants to know of a demonstration to judge it: how it ended, how long, how smooth, where it went."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cail_core.demos.episode import Episode
from cail_core.demos.features import ACTION, STATE, Features

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
    closest: float | None
    """Smallest distance to the obstacle, where the task has one."""
    path: Positions
    """The way as seen from above, with the state after the last action."""


def facts_of(episode: Episode, features: Features, fps: int) -> Facts:
    names = features[STATE].names or ()
    n = episode.length
    states = np.concatenate([episode.frames[STATE].reshape(n, -1), episode.final_state[None]]).astype(np.float64)
    path = top_view(names, states)
    changes = np.diff(episode.frames[ACTION].reshape(n, -1).astype(np.float64), axis=0)
    return Facts(
        outcome=episode.outcome,
        frames=n,
        seconds=n / fps,
        path_length=float(np.linalg.norm(np.diff(path, axis=0), axis=1).sum()),
        roughness=float(np.linalg.norm(changes, axis=1).mean()) if len(changes) else 0.0,
        closest=closest_to_obstacle(names, states),
        path=path,
    )


def top_view(names: tuple[str, ...], states: Positions) -> Positions:
    """Positions on the plane: relative to the goal where the task observes that, else the first two entries of the state."""
    if {"goal_dx", "goal_dy"} <= set(names):
        return -states[:, [names.index("goal_dx"), names.index("goal_dy")]]
    columns = [0, 1] if states.shape[1] > 1 else [0, 0]
    return states[:, columns]


def closest_to_obstacle(names: tuple[str, ...], states: Positions) -> float | None:
    """The smallest horizontal distance to the obstacle, where the state holds the offset from it."""
    columns = [names.index(name) for name in ("obstacle_dx", "obstacle_dy") if name in names]
    return float(np.linalg.norm(states[:, columns], axis=1).min()) if len(columns) == 2 else None
