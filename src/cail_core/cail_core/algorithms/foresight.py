"""Foresight: where the policy's own episodes came to grief, and how to keep away from there.

Practice clones what went well and forgets the rest, but what went badly shows where danger lies. V(s), the learned return that
an episode through s comes to, is regressed over all of the policy's own recent episodes. How an action moves the state, B(s), is
known from the corrective labels. So cloning can also look one step ahead: with s' the state that followed action a,

    L(θ) = L_clone(θ) − λ E[V(s' + B(s) (π_θ(s) − a))]
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cail_core.algorithms.batch import Batch
from cail_core.algorithms.bc import BehaviourCloning
from cail_core.algorithms.bilevel import Parameters
from cail_core.algorithms.cail import draw
from cail_core.rl.flat_adam import FlatAdam
from cail_core.rl.networks import mlp

HIDDEN, STEPS, ROWS, RATE = (64, 64), 500, 500, 1e-3


class Foresight:
    """V over pairs that were lived through: `pairs`, B at each, and the learned return of the episode of each."""

    def __init__(self, pairs: Batch, moves: Tensor, value: Tensor, generator: torch.Generator) -> None:
        self._pairs, self._moves = pairs, moves
        self._mean, self._scale = pairs.state.mean(0), pairs.state.std(0).clamp_min(1e-3)
        self._net = mlp([pairs.state.shape[1], *HIDDEN, 1], nn.Tanh, generator)
        optimizer = FlatAdam(self._net, RATE, max_grad_norm=10.0)
        seen = self._seen(pairs.state)
        for step in range(STEPS):
            optimizer.rate = RATE * max(0.02, 1 - step / STEPS)
            rows = draw(len(seen), ROWS, generator)
            optimizer.descend((self._net(seen[rows]).squeeze(-1) - value[rows]).square().mean())
        self._net.requires_grad_(False)

    def value(self, state: Tensor) -> Tensor:
        """V(s)."""
        found: Tensor = self._net(self._seen(state)).squeeze(-1)
        return found

    def ahead(self, inner: BehaviourCloning, theta: Parameters, size: int, generator: torch.Generator) -> Tensor:
        """E[V] one step ahead of `size` states, under π_θ."""
        rows = draw(len(self._pairs.state), size, generator)
        pairs = self._pairs.rows(rows)
        otherwise = inner.mode(theta, pairs.state) - pairs.action
        return self.value(pairs.next_state + torch.einsum("nsa,na->ns", self._moves[rows], otherwise)).mean()

    def _seen(self, state: Tensor) -> Tensor:
        return (state - self._mean) / self._scale
