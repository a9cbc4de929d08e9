"""Confidence β of every demonstration pair, and its update β ← β − α ∇_β L_out (Eq. 5, second line of Eq. 7)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from cail_core.algorithms.batch import demo_batch
from cail_core.algorithms.eq7.bilevel import Parameters, mean_one
from cail_core.config import setting
from cail_core.demos.demonstrations import Demonstrations
from cail_core.rl.networks import mlp

LOG_RANGE = 8.0  # β stays within e^±8 of its start, so that no exponent overflows however long a run is


@dataclass(frozen=True)
class ConfidenceConfig:
    """How β is held and moved. The paper: `vector`, `additive`, no sharing, no scale, α = 0.1."""

    model: str = setting("vector", "vector: one free number per pair; network: a smooth function β(s, a)",
                         choices=("vector", "network"))
    update: str = setting("additive", "additive: β − αg cut at 0 (Eq. 5); multiplicative: β·exp(−αg), never quite 0",
                          choices=("additive", "multiplicative"))
    alpha: float = setting(0.1, "α, the step of Eq. 5", low=0.0)
    share: float = setting(0.0, "how much of a pair's gradient is its trajectory's mean: 0 the pair's own, 1 all alike",
                           low=0.0, high=1.0)
    scale: str = setting("none", "none: the raw gradient; peak: divided by its largest root mean square so far, so that a "
                                 "vanishing gradient stays small instead of being blown up into noise", choices=("none", "peak"))
    hidden: int = setting(64, "network: units in each of two hidden layers", low=1)


class Confidence(ABC):
    """What the two models share: the pair-to-trajectory map, gradient sharing and gradient scale."""

    def __init__(self, demos: Demonstrations, config: ConfidenceConfig) -> None:
        self.config = config
        self._episode = torch.as_tensor(demos.episode_of_pair)
        self._episodes = demos.episodes
        self._peak = torch.zeros(())

    @abstractmethod
    def of(self, rows: Tensor) -> Tensor:
        """β of some pairs, not normalised."""

    @abstractmethod
    def update(self, rows: Tensor, slope: Tensor) -> None:
        """β ← β − α ∇_β L_out for the pairs `rows`."""

    def all(self) -> Tensor:
        """β of every pair in dataset order, normalised to mean 1."""
        return mean_one(self.of(torch.arange(len(self._episode))))

    def per_episode(self) -> Tensor:
        """Mean confidence of each episode."""
        return segment_mean(self.all(), self._episode, self._episodes)

    @abstractmethod
    def state(self) -> Parameters: ...

    @abstractmethod
    def restore(self, state: Parameters) -> None: ...

    def _shared(self, rows: Tensor, slope: Tensor) -> Tensor:
        """Blend each pair's gradient with the mean over its trajectory's pairs in the batch: single-pair gradients are
        mostly noise, while the ranking is about whole trajectories."""
        if self.config.share == 0.0:
            return slope
        episode = self._episode[rows]
        return torch.lerp(slope, segment_mean(slope, episode, self._episodes)[episode], self.config.share)

    def _scaled(self, slope: Tensor) -> Tensor:
        if self.config.scale == "none":
            return slope
        self._peak = torch.maximum(self._peak, slope.pow(2).mean().sqrt())
        return slope / self._peak.clamp_min(1e-30)


class FreeConfidence(Confidence):
    """One free number per pair, as in the paper; it starts at 1, or where it is `given`."""

    def __init__(self, demos: Demonstrations, config: ConfidenceConfig, given: Tensor | None = None) -> None:
        super().__init__(demos, config)
        self._beta = torch.ones(len(self._episode)) if given is None else given.clone()

    def of(self, rows: Tensor) -> Tensor:
        return self._beta[rows]

    def update(self, rows: Tensor, slope: Tensor) -> None:
        if self.config.share == 1.0:  # a trajectory's pairs move together, those outside the batch too
            episode = self._episode[rows]
            present = torch.zeros(self._episodes, dtype=torch.bool)
            present[episode] = True
            slope = segment_mean(slope, episode, self._episodes)[self._episode]
            rows = torch.nonzero(present[self._episode]).squeeze(1)
            slope = slope[rows]
        else:
            slope = self._shared(rows, slope)
        step = self.config.alpha * self._scaled(slope)
        if self.config.update == "additive":
            self._beta[rows] = (self._beta[rows] - step).clamp_min(0.0)
        else:
            self._beta[rows] = torch.exp((torch.log(self._beta[rows]) - step).clamp(-LOG_RANGE, LOG_RANGE))

    def state(self) -> Parameters:
        return {"beta": self._beta, "peak": self._peak}

    def restore(self, state: Parameters) -> None:
        self._beta, self._peak = state["beta"].clone(), state["peak"].clone()


class ConfidenceNetwork(Confidence):
    """A smooth confidence β(s, a) = exp f_φ(s, a): alike pairs of different trajectories share what is learned.

    The gradient with respect to β is carried to φ by the chain rule through f (that is mirror descent on β, whose
    multiplicative form `FreeConfidence` has pair by pair).
    """

    def __init__(self, demos: Demonstrations, config: ConfidenceConfig, generator: torch.Generator) -> None:
        super().__init__(demos, config)
        batch = demo_batch(demos)
        pairs = torch.cat([batch.state, batch.action], dim=1)
        self._pairs = (pairs - pairs.mean(0)) / pairs.std(0).clamp_min(1e-6)
        self._net = mlp([pairs.shape[1], config.hidden, config.hidden, 1], nn.Tanh, generator, output_gain=1e-6)  # β ≈ 1
        self._phi = {name: value.detach().clone() for name, value in self._net.named_parameters()}

    def of(self, rows: Tensor) -> Tensor:
        return torch.exp(self._log_beta(self._phi, rows).clamp(-LOG_RANGE, LOG_RANGE)).detach()

    def update(self, rows: Tensor, slope: Tensor) -> None:
        step = self.config.alpha * self._scaled(self._shared(rows, slope))
        along = grad(lambda phi: (step * self._log_beta(phi, rows)).mean())(self._phi)
        # Plain descent: Adam would divide by the size of the gradient and so amplify what is left when the ranking is met.
        self._phi = {name: value - along[name] for name, value in self._phi.items()}

    def state(self) -> Parameters:
        return {"peak": self._peak} | {f"phi.{name}": value for name, value in self._phi.items()}

    def restore(self, state: Parameters) -> None:
        self._peak = state["peak"].clone()
        self._phi = {name: state[f"phi.{name}"].clone() for name in self._phi}

    def _log_beta(self, phi: Parameters, rows: Tensor) -> Tensor:
        out: Tensor = functional_call(self._net, phi, (self._pairs[rows],))
        return out.squeeze(-1)


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


def make_confidence(demos: Demonstrations, config: ConfidenceConfig, generator: torch.Generator) -> Confidence:
    if config.model == "network":
        return ConfidenceNetwork(demos, config, generator)
    return FreeConfidence(demos, config)


def spread(beta_per_episode: Tensor) -> float:
    """The size of the confidence differences: standard deviation over episodes (β has mean 1)."""
    return float(np.std(beta_per_episode.numpy()))
