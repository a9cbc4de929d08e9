"""Ways: where the trusted demonstrations solve the task in different ways, one of them is cloned.

People who are trusted alike pass an obstacle on either side. A policy that is a continuous function of the state and follows
some of them here and others there drives, somewhere between, at the obstacle. So the trusted demonstrations are grouped into
ways, and only the way that is trusted most is cloned.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cail_core.algorithms.eq7.confidence import segment_mean
from cail_core.demos.demonstrations import Demonstrations, Ints

TRUSTED = 0.98
"""Demonstrations with so much of the weight, the heaviest first, are looked at; the others are of no way."""
POINTS = 20
"""Of each path, evenly in time."""
ALONG = 0.9
"""Two paths are as near as this share of the points of each is to the other path: how they begin and end may differ."""


def dominant_mode(weight: Tensor, demos: Demonstrations, distance: float) -> Tensor:
    """The weights of all pairs with mean 1, those of demonstrations that go another way than most of the weight 0.

    Two demonstrations go the same way if they are no further apart than `distance` times what a demonstration's nearest other one
    is away in the median, or if others lead from one to the other in such steps.
    """
    by_episode = torch.stack([weight[a:b].sum() for a, b in zip(demos.starts[:-1], demos.starts[1:], strict=True)])
    order = torch.argsort(by_episode, descending=True)
    before = by_episode[order].cumsum(0) - by_episode[order]
    trusted = order[before < TRUSTED * by_episode.sum()].numpy()
    if len(trusted) < 3:
        return weight
    apart = distances(demos, trusted)
    nearest = apart.clone().fill_diagonal_(torch.inf).min(1).values
    way = components(apart <= distance * nearest.median())
    total = torch.zeros(int(way.max()) + 1).index_add_(0, way, by_episode[trusted])
    kept = np.isin(np.arange(demos.episodes), trusted[(way == total.argmax()).numpy()])
    chosen = weight * torch.from_numpy(kept[demos.episode_of_pair])
    return chosen / chosen.mean()


def passed_over(demos: Demonstrations, confidence: Tensor, weight: Tensor) -> list[int]:
    """The demonstrations that go another way: trusted as much as the least of those that count, and without weight themselves."""
    episode = torch.as_tensor(demos.episode_of_pair)
    trust, counted = segment_mean(confidence, episode, demos.episodes), segment_mean(weight, episode, demos.episodes) > 0
    return torch.nonzero(~counted & (trust >= trust[counted].min())).squeeze(1).tolist()


def distances(demos: Demonstrations, episodes: Ints) -> Tensor:
    """How far the paths of these demonstrations are apart, in deviations of the states on them: [episodes, episodes]."""
    rows = [np.linspace(demos.starts[e], demos.starts[e + 1] - 1, POINTS).round().astype(np.int64) for e in episodes]
    path = torch.from_numpy(demos.states[np.concatenate(rows)])
    path = (path - path.mean(0)) / path.std(0).clamp_min(1e-3) / path.shape[1] ** 0.5
    between = torch.cdist(path, path).reshape(len(episodes), POINTS, len(episodes), POINTS)
    there = torch.quantile(between.min(3).values, ALONG, dim=1)  # from each path to each other one
    return torch.maximum(there, there.T)


def components(linked: Tensor) -> Tensor:
    """The number of the group that each belongs to, where all that are linked are of one group."""
    group = torch.full((len(linked),), -1, dtype=torch.int64)
    for first in range(len(linked)):
        if group[first] >= 0:
            continue
        reached = torch.zeros(len(linked), dtype=torch.bool)
        reached[first] = True
        while (more := reached | linked[reached].any(0)).sum() > reached.sum():
            reached = more
        group[reached] = group.max() + 1
    return group
