"""Gradient descent on a dictionary of parameters, in two halves: propose a step, then take it or leave it.

Theorem 1's gate looks at θ_{τ+1} before it is taken; a refused step must leave no trace in Adam's moments either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch

from cail_core.algorithms.eq7.gradient import Parameters
from cail_core.rl.flat_adam import DECAY_MEAN, DECAY_SQUARE, TINY


class Optimizer(Protocol):
    """Turns a gradient into the next θ; what was proposed counts only once it is taken."""

    def propose(self, theta: Parameters, grad: Parameters) -> Parameters: ...

    def take(self) -> None: ...

    def state(self) -> Parameters: ...

    def restore(self, state: Parameters) -> None: ...


@dataclass
class Sgd:
    """θ − μ ∇, as Eq. 7 and the theorems have it."""

    rate: float

    def propose(self, theta: Parameters, grad: Parameters) -> Parameters:
        return {name: value - self.rate * grad[name] for name, value in theta.items()}

    def take(self) -> None:
        """Nothing is remembered."""

    def state(self) -> Parameters:
        return {}

    def restore(self, state: Parameters) -> None:
        """Nothing was remembered."""


@dataclass
class Adam:
    """Adam (Kingma & Ba 2015), which the paper's experiments use for θ; all parameters as one vector, in few calls."""

    rate: float
    _kept: Parameters = field(default_factory=dict)
    _proposed: Parameters = field(default_factory=dict)

    def propose(self, theta: Parameters, grad: Parameters) -> Parameters:
        vector = torch.cat([value.flatten() for value in theta.values()])
        g = torch.cat([grad[name].detach().flatten() for name in theta])
        step = self._kept.get("step", torch.zeros((), dtype=torch.float64)) + 1
        mean = torch.lerp(self._kept.get("mean", torch.zeros_like(g)), g, 1 - DECAY_MEAN)
        square = torch.lerp(self._kept.get("square", torch.zeros_like(g)), g * g, 1 - DECAY_SQUARE)
        self._proposed = {"step": step, "mean": mean, "square": square}
        deviation = (square / (1 - DECAY_SQUARE ** float(step))).sqrt() + TINY
        vector = vector - self.rate / (1 - DECAY_MEAN ** float(step)) * mean / deviation
        return _cut(vector, theta)

    def take(self) -> None:
        self._kept = self._proposed

    def state(self) -> Parameters:
        return dict(self._kept)

    def restore(self, state: Parameters) -> None:
        self._kept = dict(state)


def as_one_vector(theta: Parameters) -> Parameters:
    """The parameters as `Adam.propose` gives them, one after the other in memory. Where they lie decides the last bits of some
    products (those with a single action), so that a resumed run needs them there too."""
    return _cut(torch.cat([value.flatten() for value in theta.values()]), theta)


def _cut(vector: torch.Tensor, like: Parameters) -> Parameters:
    parts = torch.split(vector, [value.numel() for value in like.values()])
    return {name: part.view_as(value) for (name, value), part in zip(like.items(), parts, strict=True)}
