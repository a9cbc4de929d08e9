"""What an inner learner is: a loss in which every demonstration pair carries a weight, and a learned reward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from torch import Tensor, nn

from cail_core.algorithms.batch import Batch
from cail_core.algorithms.eq7.gradient import Parameters, Terms, weighted


class InnerLearner(Protocol):
    """One imitation-learning algorithm; θ is always passed, never changed. Inside Eq. 7 it is a `PairLearner`."""

    def theta(self) -> Parameters:
        """A copy of the parameters to start from."""
        ...

    def load(self, theta: Parameters) -> None:
        """Put θ into the networks that act."""
        ...

    def loss(self, theta: Parameters, beta: Tensor, demo: Batch, other: Batch) -> Tensor:
        """L_in(θ, β) on demonstration pairs weighted by β (normalised to mean 1) and pairs of the policy."""
        ...

    def reward(self, theta: Parameters, batch: Batch) -> Tensor:
        """R'_θ(s, a) of each pair, whose discounted sum the outer loss ranks (Eq. 13)."""
        ...


class ModuleLearner(nn.Module):
    """The two methods that all learners made of one module share."""

    def theta(self) -> Parameters:
        return {name: value.detach().clone() for name, value in self.named_parameters()}

    def load(self, theta: Parameters) -> None:
        for name, value in self.named_parameters():
            value.data.copy_(theta[name])


class PairLearner(ModuleLearner, ABC):
    """A learner for Eq. 7, whose loss comes apart into those of the demonstration pairs. To add one, write these two."""

    @abstractmethod
    def terms(self, theta: Parameters, demo: Batch, other: Batch) -> Terms:
        """L_in before β comes in; the loss of each demonstration pair is made out of its learned reward."""

    @abstractmethod
    def reward(self, theta: Parameters, batch: Batch) -> Tensor: ...

    def ranking(self) -> tuple[str, ...]:
        """The parameters that `reward`, and so the outer loss, depends on."""
        return tuple(self.theta())

    def loss(self, theta: Parameters, beta: Tensor, demo: Batch, other: Batch) -> Tensor:
        return weighted(beta, self.terms(theta, demo, other))
