"""Corrective labels: cloning also learns how to come back to where the trusted demonstrations went.

A clone is a little off at every step, and where it then is nobody has shown what to do. But all demonstrations, trusted or not,
show what an action does: s' − s is learned from all of them, and B(s) = ∂s'/∂a, how an action moves the state, is read off it.
From a state displaced by n steps' worth of some action η the way back is that action undone, over k steps:

    (s, a)   →   (s + n B(s) η, a − n η / k),   η ⊥ a

Who is ahead or behind on the way is not off it: undone too, that would hold a policy in the middle of each way's last stretch.
The idea of taking corrective labels from learned dynamics is that of Ke et al. 2023, "CCIL".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cail_core.algorithms.batch import Batch
from cail_core.rl.flat_adam import FlatAdam
from cail_core.rl.networks import mlp
from cail_core.tasks.base import TaskSpec

HIDDEN, STEPS, ROWS, RATE = (128, 128), 3000, 500, 1e-3
CHUNK = 4096


class Corrections:
    """How an action moves the state, learned from all pairs of the demonstrations."""

    def __init__(self, data: Batch, generator: torch.Generator) -> None:
        n, self._actions = data.action.shape
        self._mean, self._scale = data.state.mean(0), data.state.std(0).clamp_min(1e-3)
        change = (data.next_state - data.state) / self._scale
        self._size = change.std(0).clamp_min(1e-4)
        seen = self._seen(data)
        self._net = mlp([seen.shape[1], *HIDDEN, len(self._mean)], nn.Tanh, generator)
        optimizer = FlatAdam(self._net, RATE, max_grad_norm=10.0)
        for step in range(STEPS):
            optimizer.rate = RATE * max(0.02, 1 - step / STEPS)
            rows = torch.randint(n, (ROWS,), generator=generator)
            optimizer.descend((self._net(seen[rows]) - change[rows] / self._size).square().mean())

    def at(self, pairs: Batch) -> Tensor:
        """B at each pair: [pairs, states, actions]."""
        parts = torch.split(self._seen(pairs), CHUNK)
        return torch.cat([_by_action(self._net, part, self._actions) for part in parts]) * (self._size * self._scale)[:, None]

    def _seen(self, pairs: Batch) -> Tensor:
        return torch.cat([(pairs.state - self._mean) / self._scale, pairs.action], dim=1)


def displaced(pairs: Batch, moves: Tensor, steps: float, back_over: float, generator: torch.Generator) -> Batch:
    """The pairs, every second one displaced by about `steps` steps' worth of action and told the way back; `moves` is B."""
    eta = steps * torch.randn(pairs.action.shape, generator=generator)
    along = pairs.action / pairs.action.norm(dim=1, keepdim=True).clamp_min(1e-6)
    eta = eta - (eta * along).sum(1, keepdim=True) * along
    eta = eta * (torch.rand((len(eta), 1), generator=generator) < 0.5)
    state = pairs.state + torch.einsum("nsa,na->ns", moves, eta)
    return pairs._replace(state=state, action=(pairs.action - eta / back_over).clamp(-1.0, 1.0))


def sensor_errors(spec: TaskSpec, times: float) -> Tensor:
    """How far each sensor moves each entry of the state when it is wrong by `times` its uncertainty: [sensors, states]."""
    place = {name: i for i, name in enumerate(spec.observation_names)}
    errors = torch.zeros(len(spec.sensors) if times else 0, spec.observation_dim)
    for row, sensor in zip(errors, spec.sensors, strict=False):
        for name, slope in sensor.moves.items():
            row[place[name]] = times * sensor.uncertainty * slope
    return errors


def mismeasured(pairs: Batch, errors: Tensor, generator: torch.Generator) -> Batch:
    """The pairs as they would have been seen with other errors of the sensors: what was done stays right."""
    if not len(errors):
        return pairs
    return pairs._replace(state=pairs.state + torch.randn((len(pairs.state), len(errors)), generator=generator) @ errors)


def _by_action(net: nn.Module, seen: Tensor, actions: int) -> Tensor:
    """∂ net / ∂ action at each row: [rows, outputs, actions]."""
    x = seen.clone().requires_grad_()
    out = net(x)
    slopes = [torch.autograd.grad(out[:, i].sum(), x, retain_graph=True)[0][:, -actions:] for i in range(out.shape[1])]
    return torch.stack(slopes, dim=1)
