"""Confidence of single pairs: between demonstrations the ranks speak, within them what the trusted do in the same place.

A few ranks say which demonstrations are good and next to nothing about single steps (`confidence.py`). What they cannot say the
data can: a step is good as far as it is what those would have done there who are trusted. With β(ξ) the confidence of
demonstration ξ, learned by Eq. 7, the confidence of its pairs is

    log β(s, a) = log β(ξ) + t · spread(log β) · clip(z(s, a), −3, 1)

z is the agreement log p(a | s), averaged over a few steps and standardised, and p what trusted people of *other* demonstrations
do: mixtures of Gaussians learned on weighted pairs, five folds by demonstration (a model that has seen the step agrees with it).
It is a mixture because people who pass an obstacle on either side are all right, and their mean is not. Then the same again, with
the confidence of pairs as the weights.

While these models are learned a frame counts by how far it moves the state. One who stands still gives many frames of one place,
and would outvote everybody who only passes through it: each demonstration has one voice in a place, however long it stays.

What it estimates is β* of Eq. 1. The β that maximises the return of p_new = β p_d with a penalty on leaving p_d is
∝ exp(A(s, a) / τ): a demonstration's β is the part of the advantage that ranks can see, the agreement stands for the rest. In
Eq. 7 it comes after the second line: β(ξ) is learned as before and then refined within demonstrations, before the third line uses
it.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from cail_core.algorithms.batch import demo_batch
from cail_core.algorithms.eq7.confidence import sharpened
from cail_core.algorithms.settings import PairConfig
from cail_core.demos.demonstrations import Demonstrations

LOWEST, HIGHEST = -3.0, 1.0
"""Of z: one strange frame is no worse than bad, and nobody is trusted for agreeing more than others do."""
TOP_VOTE = 2.0
"""Times the median: who is fast does not outvote the others either."""


class Mixtures:
    """p(a | s) of each fold, learned at once: the parameters of all have the fold as their first axis."""

    def __init__(self, states: int, actions: int, config: PairConfig, generator: torch.Generator) -> None:
        self._config, self._actions = config, actions
        sizes = [states, config.hidden, config.hidden, config.components * (actions + 1)]
        self._layers = []
        for i, o in pairwise(sizes):
            matrix = torch.randn((config.folds, i, o), generator=generator) / math.sqrt(i)
            self._layers.append((matrix.requires_grad_(), torch.zeros((config.folds, 1, o), requires_grad=True)))

    def log_density(self, state: Tensor, action: Tensor, folds: slice = slice(None)) -> Tensor:
        """log p(a | s) up to a constant, of [folds, n, …] pairs."""
        h = state
        for k, (matrix, bias) in enumerate(self._layers):
            h = torch.baddbmm(bias[folds], torch.tanh(h) if k else h, matrix[folds])
        components = self._config.components
        means = torch.tanh(h[..., components:]).reshape(*h.shape[:-1], components, self._actions)
        error = ((action.unsqueeze(-2) - means) / self._config.sigma).square().sum(-1)
        return torch.logsumexp(torch.log_softmax(h[..., :components], -1) - 0.5 * error, dim=-1)

    def fit(self, state: Tensor, action: Tensor, weight: Tensor, generator: torch.Generator) -> None:
        """`weight` [folds, pairs]: how often each fold's model sees each pair."""
        c = self._config
        adam = torch.optim.Adam([part for layer in self._layers for part in layer], lr=c.learning_rate)
        chances = weight.double().cumsum(1)
        wanted = torch.rand((c.folds, c.steps * c.batch_size), generator=generator, dtype=torch.float64) * chances[:, -1:]
        rows = torch.searchsorted(chances, wanted, right=True).clamp_max(len(state) - 1).reshape(c.folds, c.steps, c.batch_size)
        for step in range(c.steps):
            adam.param_groups[0]["lr"] = c.learning_rate * max(0.05, 1.0 - step / c.steps)
            seen = rows[:, step]
            loss = -self.log_density(state[seen], action[seen]).mean(1).sum()
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()


def refined(beta: Tensor, demos: Demonstrations, config: PairConfig, generator: torch.Generator) -> Tensor:
    """z of every pair: how far it agrees with the trusted of other demonstrations. `beta` is what the ranks say of each pair."""
    agreement = torch.zeros(len(beta))
    for _ in range(config.rounds):
        asked = sharpened(joined(beta, agreement, config), config.reference_fraction)
        agreement = standardised(agreement_with(asked, demos, config, generator))
    return agreement


def joined(beta: Tensor, agreement: Tensor, config: PairConfig) -> Tensor:
    """β of pairs with mean 1, out of what the ranks and what the others say."""
    log_beta = torch.log(beta.clamp_min(1e-12))
    log_beta = log_beta + config.strength * log_beta.std() * agreement.clamp(LOWEST, HIGHEST)
    made = torch.exp(log_beta - log_beta.max())
    return made / made.mean()


def agreement_with(asked: Tensor, demos: Demonstrations, config: PairConfig, generator: torch.Generator) -> Tensor:
    """log p(a | s) of every pair under those of the other folds, averaged over steps; `asked` is what each pair counts in p."""
    data = demo_batch(demos)
    state = (data.state - data.state.mean(0)) / data.state.std(0).clamp_min(1e-3)
    fold = (torch.randperm(demos.episodes, generator=generator) % config.folds)[torch.as_tensor(demos.episode_of_pair)]
    weight = asked * votes(demos, config.min_vote)
    mixtures = Mixtures(state.shape[1], data.action.shape[1], config, generator)
    mixtures.fit(state, data.action, torch.stack([weight * (fold != k) for k in range(config.folds)]), generator)
    found = torch.empty(len(state))
    with torch.no_grad():
        for k in range(config.folds):
            judged = fold == k
            found[judged] = mixtures.log_density(state[judged][None], data.action[judged][None], slice(k, k + 1))[0]
    return averaged(found, demos, config.window)


def votes(demos: Demonstrations, least: float) -> Tensor:
    """What each frame counts in its place: how far it moves the state, in medians of that."""
    data = demo_batch(demos)
    moved = ((data.next_state - data.state) / data.state.std(0).clamp_min(1e-3)).norm(dim=1)
    return (moved / moved.median().clamp_min(1e-9)).clamp(least, max(least, TOP_VOTE)) if least < 1.0 else torch.ones(len(moved))


def averaged(values: Tensor, demos: Demonstrations, window: int) -> Tensor:
    """The mean over `window` steps of the same demonstration around each; fewer at its ends."""
    row, episode = torch.arange(len(values)), torch.as_tensor(demos.episode_of_pair)
    starts = torch.as_tensor(demos.starts)
    first = torch.maximum(row - (window - 1) // 2, starts[episode])
    end = torch.minimum(row + window // 2 + 1, starts[episode + 1])
    sums = torch.cat([torch.zeros(1, dtype=torch.float64), values.double().cumsum(0)])
    return ((sums[end] - sums[first]) / (end - first)).to(values.dtype)


def standardised(values: Tensor) -> Tensor:
    return (values - values.mean()) / values.std().clamp_min(1e-6)
