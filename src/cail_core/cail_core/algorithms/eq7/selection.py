"""Choosing settings of the confidence by rankings that it was not shown; true returns never take part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from cail_core.algorithms.eq7.cail import learn_confidence_before
from cail_core.algorithms.method import MethodConfig
from cail_core.demos.demonstrations import Demonstrations, Floats, Ints

FOLDS = 5


def candidates(config: MethodConfig) -> list[MethodConfig]:
    """What `before.select` lets the rankings choose from; the first is the one as configured, which wins a tie."""
    if config.before.select == "steps":
        steps = config.before.steps
        return [replace(config, before=replace(config.before, steps=n)) for n in (steps, max(1, steps // 3), 3 * steps)]
    if config.before.select == "share":
        shares = dict.fromkeys((config.beta.share, 1.0, 0.9, 0.0))
        return [replace(config, beta=replace(config.beta, share=share)) for share in shares]
    return [config]


def select(demos: Demonstrations, config: MethodConfig, generator: torch.Generator, horizon: int) -> MethodConfig:
    """The candidate that orders held-out ranked trajectories best; `config` itself where there is nothing to hold out."""
    choice = candidates(config)
    if len(choice) == 1 or len(set(demos.rank[demos.rank > 0].tolist())) < 4:
        return config
    folds = np.array_split(demos.ranked[torch.randperm(len(demos.ranked), generator=generator).numpy()], FOLDS)
    accuracy = [held_out_accuracy(demos, one, generator, horizon, folds) for one in choice]
    return choice[int(np.argmax(accuracy))]


def held_out_accuracy(
    demos: Demonstrations, config: MethodConfig, generator: torch.Generator, horizon: int, folds: list[Ints],
) -> float:
    """Cross-validation: the share of the ranked pairs in the right order by mean confidence, each fold judged by a confidence
    that was learned without its ranks. A pair counts where one of the two was held out."""
    right = total = 0
    for held_out in folds:
        shown = demos.rank.copy()
        shown[held_out] = 0
        if len(set(shown[shown > 0].tolist())) < 2:
            continue
        learned, _ = learn_confidence_before(replace(demos, rank=shown), config, generator, horizon)
        found = ordered_pairs(learned.confidence.per_episode().numpy(), demos.rank, held_out)
        right, total = right + found[0], total + found[1]
    return right / max(total, 1)


def ordered_pairs(confidence: Floats, rank: Ints, held_out: Ints) -> tuple[int, int]:
    """How many pairs of a held-out and another ranked trajectory the confidence orders as the ranks do, and of how many."""
    ranked = np.flatnonzero(rank)
    pairs = {tuple(sorted((int(i), int(j)))) for i in held_out for j in ranked if rank[i] != rank[j]}
    right = sum(bool((confidence[i] > confidence[j]) == (rank[i] < rank[j])) for i, j in pairs)
    return right, len(pairs)
