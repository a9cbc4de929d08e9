"""An inner learner at work: its θ, moved by an optimizer on pairs with given weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cail_core.algorithms.batch import Batch
from cail_core.algorithms.eq7.gradient import Loss, backward, requires_grad_copy
from cail_core.algorithms.eq7.optim import Optimizer, as_one_vector
from cail_core.algorithms.inner.base import InnerLearner


class WeightedInnerLearner:
    """θ of an inner learner, and its step on demonstration pairs whose weights stay as they are."""

    def __init__(self, inner: InnerLearner, optimizer: Optimizer) -> None:
        self.inner = inner
        self.theta = inner.theta()
        self._optimizer = optimizer

    def weighted_step(self, weight: Tensor, demo: Batch, other: Batch) -> float:
        """The third line of Eq. 7 alone: θ ← θ − μ ∇_θ L_in(θ, β) with a given β. The loss before it."""
        return self.descend(lambda theta: self.inner.loss(theta, weight, demo, other))

    def descend(self, loss: Loss) -> float:
        """One step on any loss of θ, and its value before."""
        theta = requires_grad_copy(self.theta)
        value = loss(theta)
        grad = backward(value, theta)
        with torch.no_grad():
            self.theta = self._optimizer.propose(self.theta, grad)
        self._optimizer.take()
        return float(value.detach())

    def state(self) -> dict[str, Any]:
        return {"theta": self.theta, "optimizer": self._optimizer.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.theta = as_one_vector(state["theta"])
        self._optimizer.restore(state["optimizer"])
