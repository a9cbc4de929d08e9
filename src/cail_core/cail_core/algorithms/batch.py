"""State-action pairs as tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cail_core.demos.demonstrations import Demonstrations


class Batch(NamedTuple):
    """n transitions. `log_prob` is log π(a|s) under the current policy, which only AIRL's discriminator looks at."""

    state: Tensor
    action: Tensor
    next_state: Tensor
    terminated: Tensor
    log_prob: Tensor

    def rows(self, index: Tensor) -> Batch:
        return Batch(*(column[index] for column in self))


def joined(a: Batch, b: Batch) -> Batch:
    """The pairs of both, one after the other."""
    return Batch(*(torch.cat(columns) for columns in zip(a, b, strict=True)))


def demo_batch(demos: Demonstrations, dtype: torch.dtype = torch.float32) -> Batch:
    """All pairs of the demonstrations, in dataset order; `log_prob` is 0 until a policy has been asked."""
    columns = (demos.states, demos.actions, demos.next_states, demos.terminated)
    state, action, next_state, terminated = (torch.as_tensor(column).to(dtype) for column in columns)
    return Batch(state, action, next_state, terminated, torch.zeros(len(demos.states), dtype=dtype))
