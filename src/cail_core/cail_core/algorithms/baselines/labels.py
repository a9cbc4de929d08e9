"""Confidence labels from ranks, for the methods that ask for labels where only an order is known (2IWIL, IC-GAIL)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cail_core.demos.demonstrations import Demonstrations, Ints


def rank_labels(rank: Ints) -> NDArray[np.float64]:
    """Evenly spaced from 1 (best) to 0 (worst), as the paper has it: the share of the other ranked ones that each beats.

    A tie counts as half a win, so tied ones share a label. Ranks of 0 mean not ranked; their label is NaN.
    """
    ranked = np.flatnonzero(rank)
    mine, other = rank[ranked][:, None], rank[ranked][None, :]
    wins = (mine < other).sum(axis=1) + ((mine == other).sum(axis=1) - 1) / 2
    label = np.full(len(rank), np.nan)
    label[ranked] = wins / max(1, len(ranked) - 1)
    return label


def pair_labels(demos: Demonstrations) -> Tensor:
    """The label of every pair, which is its trajectory's; NaN where that is not ranked."""
    return torch.as_tensor(rank_labels(demos.rank)[demos.episode_of_pair], dtype=torch.float32)
