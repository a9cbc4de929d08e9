"""The gradient of Eq. 7's second line: ∇_β L_out(θ') through the pseudo-update, by one forward pass with tangents."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import jvp

Parameters = dict[str, Tensor]
Loss = Callable[[Parameters], Tensor]
"""Anything that is worked out from θ."""


class Terms(NamedTuple):
    """L_in before β comes in, at one θ and for one batch."""

    per_pair: Tensor
    """The loss of each demonstration pair, which β weighs."""
    rest: Tensor
    """What β does not weigh."""
    reward: Tensor
    """R'_θ of each demonstration pair, out of which `per_pair` was made."""


def mean_one(beta: Tensor) -> Tensor:
    """n·β / Σβ: confidences as the loss uses them, with mean 1 (App. "Implementation Details")."""
    return beta / beta.mean().clamp_min(1e-12)


def weighted(beta: Tensor, terms: Terms) -> Tensor:
    """L_in(θ, β) from its two parts."""
    return (mean_one(beta) * terms.per_pair).mean() + terms.rest


def confidence_gradient(theta: Parameters, beta: Tensor, grad: Parameters, terms: Terms, reward: Loss, outer: Loss,
                        mu: float) -> tuple[Tensor, Tensor]:
    """∇_β L_out(θ'(β)) through the pseudo-update θ' = θ − μ ∇_θ L_in(θ, β), and L_out(θ') itself; `grad` is ∇_θ L_in(θ, β),
    of all parameters that L_out depends on, and `reward` R'_θ of the demonstration pairs.

    With v = ∇L_out(θ') the chain rule gives −μ ∇_β ⟨v, ∇_θ L_in(θ, β)⟩. With dᵢ the derivative of pair i's loss along v the
    product is Σ βᵢ dᵢ / Σ βᵢ and a part without β; its derivative is (dᵢ − Σ βⱼ dⱼ / Σ βⱼ) / Σ βⱼ. One forward pass with
    tangents gives the derivatives of all rewards, and with them all dᵢ: L_out sees rewards alone, so v moves a pair's loss
    through its reward alone. A second backward pass through the first would cost several times as much.
    """
    moving = {name: theta[name] for name in grad}
    v, value = value_grad(lambda moved: outer({**theta, **moved}), {name: at - mu * grad[name] for name, at in moving.items()})
    (by_reward,) = torch.autograd.grad(terms.per_pair.sum(), terms.reward, retain_graph=True)
    directional = by_reward * jvp(lambda moved: reward({**theta, **moved}), (moving,), (v,))[1]
    total = beta.sum().clamp_min(1e-12)
    return -mu * (directional - (beta @ directional) / total) / total, value


def value_grad(loss: Loss, theta: Parameters) -> tuple[Parameters, Tensor]:
    """∇_θ of a loss, and the loss."""
    live = requires_grad_copy(theta)
    value = loss(live)
    return backward(value, live), value.detach()


def requires_grad_copy(theta: Parameters) -> Parameters:
    """A copy of θ whose use is recorded, to go `backward` through."""
    return {name: value.detach().requires_grad_() for name, value in theta.items()}


def backward(value: Tensor, live: Parameters, *, again: bool = False) -> Parameters:
    """∇ of `value` by the parameters that it was made from; `again`: it will be asked for once more."""
    grads = torch.autograd.grad(value, list(live.values()), retain_graph=again, materialize_grads=True)
    return dict(zip(live, grads, strict=True))


def dot(a: Parameters, b: Parameters) -> Tensor:
    """⟨a, b⟩, where b may have parts that a has not."""
    return torch.stack([(a[name] * b[name]).sum() for name in a]).sum()
