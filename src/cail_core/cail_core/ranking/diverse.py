"""Which demonstrations to ask about: a ranking teaches most where it compares demonstrations that differ."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cail_core.demos.demonstrations import Demonstrations
from cail_core.errors import BadInput

Floats = NDArray[np.float64]
FAR = 4.0
ROUNDS = 20


def unalike(demos: Demonstrations, count: int, seed: int) -> list[int]:
    """`count` episodes, one of each kind, by what was seen alone: nobody has to judge any of them first.

    An episode is described by where it ended, where it was on average and how long it took. The descriptions are put into
    `count` groups (k-means, started as k-means++), and of each the most typical episode is chosen.
    """
    if not 2 <= count <= demos.episodes:
        raise BadInput(f"expected 2 … {demos.episodes} episodes to rank, given {count}")
    points = describe(demos)
    rng = np.random.default_rng(seed)
    chosen = [int(rng.integers(len(points)))]
    while len(chosen) < count:
        nearest = _squares(points, points[chosen]).min(axis=1)
        nearest[chosen] = 0.0
        total = float(nearest.sum())
        left = np.setdiff1d(np.arange(len(points)), chosen)
        chosen.append(int(rng.choice(len(points), p=nearest / total) if total > 0 else rng.choice(left)))
    centres = points[chosen]
    for _ in range(ROUNDS):
        group = _squares(points, centres).argmin(axis=1)
        centres = np.stack([points[group == k].mean(axis=0) if (group == k).any() else centres[k] for k in range(count)])
    apart = _squares(points, centres)
    typical: list[int] = []
    for k in range(count):  # an empty group takes the nearest that is left
        order = np.argsort(np.where(apart.argmin(axis=1) == k, apart[:, k], apart[:, k] + 1e9), kind="stable")
        typical.append(next(int(e) for e in order if int(e) not in typical))
    return sorted(typical)


def describe(demos: Demonstrations) -> Floats:
    """One row per episode, in units of how much each number varies over all pairs."""
    scale = demos.states.std(axis=0) + 1e-3
    lengths = np.diff(demos.starts)
    ends = demos.next_states[demos.starts[1:] - 1] / scale
    means = np.add.reduceat(demos.states.astype(np.float64), demos.starts[:-1], axis=0) / lengths[:, None] / scale
    rows = np.column_stack([ends, means, 3.0 * lengths / lengths.max()])
    made: Floats = np.clip(rows - rows.mean(axis=0), -FAR, FAR)  # a thing that fell must not outweigh all else
    return made


def _squares(points: Floats, centres: Floats) -> Floats:
    made: Floats = ((points[:, None] - centres[None]) ** 2).sum(axis=2)
    return made
