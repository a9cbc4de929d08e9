"""Corrective labels: cloning also learns how to come back to where the trusted demonstrations went.

A clone is a little off at every step, and where it then is nobody has shown what to do. But all demonstrations, trusted or not,
show what an action does: s' − s is learned from all of them, and B(s) = ∂s'/∂a, how an action moves the state, is read off it.
From a state displaced by n steps' worth of some action η the way back is that action undone, over k steps:

    (s, a)   →   (s + n B(s) η, a − n η / k)

The idea of taking corrective labels from learned dynamics is that of Ke et al. 2023, "CCIL".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cail_core.algorithms.batch import Batch
from cail_core.rl.flat_adam import FlatAdam
from cail_core.rl.networks import mlp

HIDDEN, STEPS, ROWS, RATE = (128, 128), 3000, 500, 1e-3
CHUNK = 4096


class Corrections:
    """How an action moves the state, at every demonstration pair."""

    def __init__(self, data: Batch, generator: torch.Generator) -> None:
        n, actions = data.action.shape
        mean, scale = data.state.mean(0), data.state.std(0).clamp_min(1e-3)
        change = (data.next_state - data.state) / scale
        size = change.std(0).clamp_min(1e-4)
        seen = torch.cat([(data.state - mean) / scale, data.action], dim=1)
        net = mlp([seen.shape[1], *HIDDEN, len(mean)], nn.Tanh, generator)
        optimizer = FlatAdam(net, RATE, max_grad_norm=10.0)
        for step in range(STEPS):
            optimizer.rate = RATE * max(0.02, 1 - step / STEPS)
            rows = torch.randint(n, (ROWS,), generator=generator)
            optimizer.descend((net(seen[rows]) - change[rows] / size).square().mean())
        self.moves = torch.cat([_by_action(net, part, actions) for part in torch.split(seen, CHUNK)]) * (size * scale)[:, None]
        """B, [pairs, states, actions]."""

    def displaced(self, rows: Tensor, pairs: Batch, steps: float, back_over: float, generator: torch.Generator) -> Batch:
        """The pairs `rows`, every second one displaced by about `steps` steps' worth of action and told the way back."""
        eta = steps * torch.randn(pairs.action.shape, generator=generator)
        eta = eta * (torch.rand((len(rows), 1), generator=generator) < 0.5)
        state = pairs.state + torch.einsum("nsa,na->ns", self.moves[rows], eta)
        return pairs._replace(state=state, action=(pairs.action - eta / back_over).clamp(-1.0, 1.0))


def _by_action(net: nn.Module, seen: Tensor, actions: int) -> Tensor:
    """∂ net / ∂ action at each row: [rows, outputs, actions]."""
    x = seen.clone().requires_grad_()
    out = net(x)
    slopes = [torch.autograd.grad(out[:, i].sum(), x, retain_graph=True)[0][:, -actions:] for i in range(out.shape[1])]
    return torch.stack(slopes, dim=1)
