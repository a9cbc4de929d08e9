"""Absorbing states: what comes after an episode that ended early (Kostrikov et al. 2019, "Discriminator-Actor-Critic").

A learned reward has no natural zero. Where it is mostly negative, ending the episode pays, where it is mostly positive,
dawdling does, whatever the demonstrators wanted. So an episode that ended before its time limit goes on, for learner and
demonstrators alike, in the state where it ended, marked by a flag that only the discriminator sees, and the discriminator
says what waiting there is worth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cail_core.algorithms.batch import Batch
from cail_core.demos.demonstrations import Demonstrations


class Padded(NamedTuple):
    """Pairs with the flag, followed by one waiting pair for each ended episode.

    `origin` maps every row to the pair it belongs to (a waiting pair to the one that ended the episode), `pool` lists
    every row as often as it happens until the time limit: draw from it.
    """

    batch: Batch
    origin: Tensor
    pool: Tensor


def flagged(batch: Batch) -> Batch:
    """States with a last entry 0; the successor of a last pair has 1 there, and so no pair is terminal any more."""
    zero = torch.zeros_like(batch.terminated)
    return batch._replace(state=_with(batch.state, zero), next_state=_with(batch.next_state, batch.terminated), terminated=zero)


def waiting(batch: Batch, ended: Tensor) -> Batch:
    """What happens after the pairs `ended`: nothing, in the same place. No action is chosen, so log π = 0."""
    one = torch.ones_like(batch.terminated[ended])
    state = _with(batch.next_state[ended], one)
    return Batch(state, torch.zeros_like(batch.action[ended]), state, 0 * one, 0 * one)


def with_waiting(batch: Batch) -> Batch:
    """All pairs with the flag, then one waiting pair for each ended episode, in order."""
    ended = torch.nonzero(batch.terminated).squeeze(1)
    return Batch(*(torch.cat(columns) for columns in zip(flagged(batch), waiting(batch, ended), strict=True)))


def steps_left(demos: Demonstrations, horizon: int) -> Tensor:
    """For each demonstration that terminated, in order, how many steps the time limit still had."""
    lengths = torch.as_tensor(np.diff(demos.starts))
    ended = torch.as_tensor(demos.terminated[demos.starts[1:] - 1])
    return (horizon - lengths[ended]).clamp_min(0)


def padded(batch: Batch, steps_left: Tensor) -> Padded:
    """`steps_left`: for each terminal pair, in order, how many steps the time limit still had."""
    ended = torch.nonzero(batch.terminated).squeeze(1)
    real = torch.arange(len(batch.state))
    added = len(real) + torch.arange(len(ended))
    return Padded(with_waiting(batch), torch.cat([real, ended]), torch.cat([real, added.repeat_interleave(steps_left)]))


def tail(reward: Tensor, steps_left: Tensor, gamma: float) -> Tensor:
    """Σ_{k=1}^{n} γ^k r = r γ (1 − γ^n) / (1 − γ): the discounted reward of n steps of waiting, or n·r for γ = 1."""
    if gamma == 1.0:
        return reward * steps_left
    return reward * gamma * (1 - gamma ** steps_left.to(reward.dtype)) / (1 - gamma)


def standardised(reward: Tensor, padded: Padded, steps_left: Tensor, gamma: float) -> Tensor:
    """The reward of every real step from those of all rows; the last step of an ended episode also gets the waiting's worth.

    All are first shifted and scaled to mean 0 and deviation 1 over the real steps. Since every episode lasts equally long,
    waiting included, this changes no preference; it saves the critic from learning a constant hundreds of times larger
    than what it is asked for.
    """
    n = len(padded.origin) - len(steps_left)
    reward = (reward - reward[:n].mean()) / (reward[:n].std(correction=0) + 1e-6)
    return reward[:n].index_add(0, padded.origin[n:], tail(reward[n:], steps_left, gamma))


def unflagged_scale(states: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of `states` with those of a flag behind them that stays 0 or 1."""
    return (torch.cat([states.mean(0), torch.zeros(1)]), torch.cat([states.std(0).clamp_min(1e-3), torch.ones(1)]))


def _with(state: Tensor, flag: Tensor) -> Tensor:
    return torch.cat([state, flag[:, None]], dim=1)
