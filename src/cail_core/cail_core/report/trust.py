"""What the confidence says: by demonstrator, by episode, and which stretches were trusted most and least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cail_core.demos.dataset import DemoDataset

Floats = NDArray[np.float64]
STRETCHES = 10
"""An episode is looked at in this many stretches of equal length."""


@dataclass(frozen=True)
class Segment:
    """A stretch of one episode, frames `start` to `end` (not included), with its mean confidence."""

    episode: int
    start: int
    end: int
    confidence: float


def per_episode(dataset: DemoDataset, confidence: NDArray[np.float32]) -> Floats:
    """Mean confidence of each episode."""
    return np.array([confidence[row.from_index : row.to_index].mean() for row in dataset.rows], dtype=np.float64)


def segments(dataset: DemoDataset, confidence: NDArray[np.float32], count: int = 4) -> tuple[list[Segment], list[Segment]]:
    """The most and the least trusted stretches, of different episodes, the clearest first.

    Where the pairs of an episode share one confidence, the stretch is the whole episode.
    """
    best, worst = [], []
    for row in dataset.rows:
        values = confidence[row.from_index : row.to_index].astype(np.float64)
        if np.ptp(values) <= 1e-3 * max(1.0, abs(float(values.mean()))):
            whole = Segment(row.episode_index, 0, row.length, float(values.mean()))
            best.append(whole)
            worst.append(whole)
            continue
        cuts = np.unique(np.linspace(0, row.length, min(STRETCHES, row.length) + 1).round().astype(int))
        parts = [Segment(row.episode_index, int(a), int(b), float(values[a:b].mean()))
                 for a, b in pairwise(cuts)]
        best.append(max(parts, key=lambda part: part.confidence))
        worst.append(min(parts, key=lambda part: part.confidence))
    count = min(count, len(dataset.rows) // 2)  # no episode is on both ends
    return (sorted(best, key=lambda part: -part.confidence)[:count], sorted(worst, key=lambda part: part.confidence)[:count])


def rank_correlation(a: Floats, b: Floats) -> float | None:
    """Spearman's: +1 same order, −1 reverse; None where one of them has no order at all."""
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Floats) -> Floats:
    """Ranks from 0, ties share their mean rank."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count + 1) / 2)[group].astype(np.float64)


def pairs_in_order(ranks: Sequence[int], values: Sequence[float]) -> tuple[int, int]:
    """Of the pairs of different rank (1 is best): how many have the larger value at the better rank, and how many there are."""
    pairs = [(i, j) for i in range(len(ranks)) for j in range(i) if ranks[i] != ranks[j]]
    return sum((values[i] - values[j]) * (ranks[j] - ranks[i]) > 0 for i, j in pairs), len(pairs)
