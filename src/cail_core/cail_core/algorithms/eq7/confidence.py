"""Confidence β of every demonstration pair, and its update β ← β − α ∇_β L_out (Eq. 5, second line of Eq. 7)."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from cail_core.algorithms.eq7.gradient import Parameters, mean_one
from cail_core.algorithms.settings import ConfidenceConfig
from cail_core.demos.demonstrations import Demonstrations

LOG_RANGE = 8.0  # β stays within e^±8 of its start, so that no exponent overflows however long a run is


class Confidence:
    """β: one free number per pair, as in the paper; it starts at 1, or where it is `given`."""

    def __init__(self, demos: Demonstrations, config: ConfidenceConfig, given: Tensor | None = None) -> None:
        self.config = config
        self._episode = torch.as_tensor(demos.episode_of_pair)
        self._episodes = demos.episodes
        self._peak = torch.zeros(())
        self._beta = torch.ones(len(self._episode)) if given is None else given.clone()

    def of(self, rows: Tensor) -> Tensor:
        """β of some pairs, not normalised."""
        return self._beta[rows]

    def all(self) -> Tensor:
        """β of every pair in dataset order, normalised to mean 1."""
        return mean_one(self.of(torch.arange(len(self._episode))))

    def per_episode(self) -> Tensor:
        """Mean confidence of each episode."""
        return segment_mean(self.all(), self._episode, self._episodes)

    def update(self, rows: Tensor, grad: Tensor) -> None:
        """β ← β − α ∇_β L_out for the pairs `rows`: Eq. 5, second line of Eq. 7."""
        rows, grad = self._shared(rows, grad)
        step = self.config.alpha * self._scaled(grad)
        if self.config.update == "additive":
            self._beta[rows] = (self._beta[rows] - step).clamp_min(0.0)
        else:
            self._beta[rows] = torch.exp((torch.log(self._beta[rows]) - step).clamp(-LOG_RANGE, LOG_RANGE))

    def _shared(self, rows: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Blend each pair's gradient with the mean over its trajectory's pairs in the batch: single-pair gradients are
        mostly noise, while the ranking is about whole trajectories. Shared entirely, a trajectory's pairs move together, those
        outside the batch too."""
        if self.config.share == 0.0:
            return rows, grad
        episode = self._episode[rows]
        mean = segment_mean(grad, episode, self._episodes)
        if self.config.share < 1.0:
            return rows, torch.lerp(grad, mean[episode], self.config.share)
        present = torch.zeros(self._episodes, dtype=torch.bool)
        present[episode] = True
        rows = torch.nonzero(present[self._episode]).squeeze(1)
        return rows, mean[self._episode][rows]

    def _scaled(self, grad: Tensor) -> Tensor:
        if self.config.scale == "none":
            return grad
        self._peak = torch.maximum(self._peak, grad.pow(2).mean().sqrt())
        return grad / self._peak.clamp_min(1e-30)

    def state(self) -> Parameters:
        return {"beta": self._beta, "peak": self._peak}

    def restore(self, state: Parameters) -> None:
        self._beta, self._peak = state["beta"].clone(), state["peak"].clone()


def segment_mean(values: Tensor, segment: Tensor, segments: int) -> Tensor:
    total = torch.zeros(segments, dtype=values.dtype).index_add(0, segment, values)
    count = torch.bincount(segment, minlength=segments).to(values.dtype)
    return total / count.clamp_min(1)


def sharpened(beta: Tensor, trusted: float, heaviest: float = math.inf) -> Tensor:
    """β^κ with mean 1, κ ≥ 1 such that the weights count as `trusted`·n pairs: (Σw)² / Σw² ≤ trusted·n.

    A ranking fixes the order of confidences and not their size: how far β spreads depends on the outer loss, its
    temperature and the length of the training. How much data a policy needs does not.

    No weight is more than `heaviest` times that of one of trusted·n pairs which all count alike: a power makes a single
    demonstration that stands out a little outweigh many others.
    """
    log_beta = torch.log(beta.clamp_min(1e-12)).double()

    def weights(kappa: float) -> Tensor:
        return capped(torch.softmax(kappa * log_beta, dim=0), heaviest / (trusted * len(beta)))

    low, high = 1.0, 1.0
    wanted = trusted * len(beta)
    while 1 / weights(high).pow(2).sum() > wanted and high < 1e4:  # a β without differences has nothing to sharpen
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 / weights(middle).pow(2).sum() > wanted else (low, middle)
    return (weights(high) * len(beta)).to(beta.dtype)


def capped(weights: Tensor, most: float) -> Tensor:
    """Weights of sum 1 cut at a level such that, when they sum to 1 again, none is more than `most`, where that can be.

    With the k largest cut to the level t the sum is kt plus the rest; t = most · that sum.
    """
    if float(weights.max()) <= most:
        return weights
    ordered = weights.sort(descending=True).values
    k = torch.arange(len(ordered), dtype=ordered.dtype)
    rest = ordered.flip(0).cumsum(0).flip(0)
    level = most * rest / (1.0 - most * k).clamp_min(1e-12)
    enough = torch.nonzero(ordered <= level)
    cut = weights.clamp_max(float(level[enough[0]])) if len(enough) else torch.ones_like(weights)
    return cut / cut.sum()


def spread(beta_per_episode: Tensor) -> float:
    """The size of the confidence differences: standard deviation over episodes (β has mean 1)."""
    return float(np.std(beta_per_episode.numpy()))
