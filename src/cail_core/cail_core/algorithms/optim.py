"""Gradient descent on a dictionary of parameters, in two halves: propose a step, then take it or leave it.

Theorem 1's gate looks at θ_{τ+1} before it is taken; a refused step must leave no trace in Adam's moments either.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from cail_core.algorithms.bilevel import Parameters

DECAY_MEAN, DECAY_SQUARE, TINY = 0.9, 0.999, 1e-8


@dataclass
class Adam:
    """Adam (Kingma & Ba 2015), which the paper's experiments use for θ."""

    rate: float
    _kept: Parameters = field(default_factory=dict)
    _proposed: Parameters = field(default_factory=dict)

    def propose(self, theta: Parameters, slope: Parameters) -> Parameters:
        step = self._kept.get("step", torch.zeros((), dtype=torch.float64)) + 1
        self._proposed = {"step": step}
        updated = {}
        for name, value in theta.items():
            g = slope[name].detach()
            mean = DECAY_MEAN * self._moment("mean", name, g) + (1 - DECAY_MEAN) * g
            square = DECAY_SQUARE * self._moment("square", name, g) + (1 - DECAY_SQUARE) * g**2
            self._proposed |= {f"mean.{name}": mean, f"square.{name}": square}
            unbiased_mean = mean / (1 - DECAY_MEAN ** float(step))
            unbiased_square = square / (1 - DECAY_SQUARE ** float(step))
            updated[name] = (value - self.rate * unbiased_mean / (unbiased_square.sqrt() + TINY)).detach()
        return updated

    def take(self) -> None:
        self._kept = self._proposed

    def state(self) -> Parameters:
        return dict(self._kept)

    def restore(self, state: Parameters) -> None:
        self._kept = dict(state)

    def _moment(self, kind: str, name: str, like: Tensor) -> Tensor:
        return self._kept.get(f"{kind}.{name}", torch.zeros_like(like))
