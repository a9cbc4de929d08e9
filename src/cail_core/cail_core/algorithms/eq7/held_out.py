"""How well a confidence orders ranked trajectories whose rank it was not shown; true returns never take part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from cail_core.algorithms.eq7.cail import learn_confidence_offline
from cail_core.algorithms.settings import TrustConfig
from cail_core.demos.demonstrations import Demonstrations, Floats, Ints

FOLDS = 5


def held_out_accuracy(
    demos: Demonstrations, config: TrustConfig, generator: torch.Generator, horizon: int, folds: list[Ints],
) -> float:
    """Cross-validation: the share of the ranked pairs in the right order by mean confidence, each fold judged by a confidence
    that was learned without its ranks. A pair counts where one of the two was held out."""
    right = total = 0
    for held_out in folds:
        shown = demos.rank.copy()
        shown[held_out] = 0
        if len(set(shown[shown > 0].tolist())) < 2:
            continue
        learned = learn_confidence_offline(replace(demos, rank=shown), config, generator, horizon)
        found = ordered_pairs(learned.confidence.per_episode().numpy(), demos.rank, held_out)
        right, total = right + found[0], total + found[1]
    return right / max(total, 1)


def ordered_pairs(confidence: Floats, rank: Ints, held_out: Ints) -> tuple[int, int]:
    """How many pairs of a held-out and another ranked trajectory the confidence orders as the ranks do, and of how many."""
    ranked = np.flatnonzero(rank)
    pairs = {tuple(sorted((int(i), int(j)))) for i in held_out for j in ranked if rank[i] != rank[j]}
    right = sum(bool((confidence[i] > confidence[j]) == (rank[i] < rank[j])) for i, j in pairs)
    return right, len(pairs)
