"""The bi-level step of confidence-aware imitation learning: Eq. 7 and the gate of Theorem 1."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import jvp

Parameters = dict[str, Tensor]
OuterLoss = Callable[[Parameters], Tensor]
"""L_out(θ)."""


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


def confidence_gradient(theta: Parameters, beta: Tensor, slope: Parameters, terms: Terms, reward: OuterLoss, outer: OuterLoss,
                        mu: float) -> tuple[Tensor, Tensor]:
    """∇_β L_out(θ'(β)) through the pseudo-update θ' = θ − μ ∇_θ L_in(θ, β), and L_out(θ') itself; `slope` is ∇_θ L_in(θ, β),
    of all parameters that L_out depends on, and `reward` R'_θ of the demonstration pairs.

    With v = ∇L_out(θ') the chain rule gives −μ ∇_β ⟨v, ∇_θ L_in(θ, β)⟩. With dᵢ the slope of pair i's loss along v the product
    is Σ βᵢ dᵢ / Σ βᵢ and a part without β; its derivative is (dᵢ − Σ βⱼ dⱼ / Σ βⱼ) / Σ βⱼ. One forward pass with tangents gives
    the slopes of all rewards, and with them all dᵢ: L_out sees rewards alone, so v moves a pair's loss through its reward
    alone. A second backward pass through the first would cost several times as much.
    """
    moving = {name: theta[name] for name in slope}
    v, value = slope_of(lambda moved: outer({**theta, **moved}), {name: at - mu * slope[name] for name, at in moving.items()})
    (by_reward,) = torch.autograd.grad(terms.per_pair.sum(), terms.reward, retain_graph=True)
    along = by_reward * jvp(lambda moved: reward({**theta, **moved}), (moving,), (v,))[1]
    total = beta.sum().clamp_min(1e-12)
    return -mu * (along - (beta @ along) / total) / total, value


def slope_of(loss: OuterLoss, theta: Parameters) -> tuple[Parameters, Tensor]:
    """∇_θ of a loss, and the loss."""
    live = tracked(theta)
    value = loss(live)
    return back(value, live), value.detach()


def _of_outer(outer: OuterLoss, theta: Parameters, ranking: Collection[str]) -> Parameters:
    return slope_of(lambda part: outer({**theta, **part}), {name: theta[name] for name in ranking or theta})[0]


def tracked(theta: Parameters) -> Parameters:
    """A copy of θ whose use is recorded, to go `back` through."""
    return {name: value.detach().requires_grad_() for name, value in theta.items()}


def back(value: Tensor, live: Parameters, *, again: bool = False) -> Parameters:
    """∇ of `value` by the parameters that it was made from; `again`: it will be asked for once more."""
    slopes = torch.autograd.grad(value, list(live.values()), retain_graph=again, materialize_grads=True)
    return dict(zip(live, slopes, strict=True))


def dot(a: Parameters, b: Parameters) -> Tensor:
    """⟨a, b⟩, where b may have parts that a has not."""
    return torch.stack([(a[name] * b[name]).sum() for name in a]).sum()


class BilevelResult(NamedTuple):
    """What one step of Eq. 7 found; `accepted` is whether Theorem 1's gate let the real update through."""

    inner: float
    outer: float
    accepted: bool


def bilevel_step(
    theta: Parameters,
    beta: Callable[[], Tensor],
    update_beta: Callable[[Tensor], None],
    update_theta: Callable[[Parameters], Parameters],
    terms: Callable[[Parameters], Terms],
    reward: OuterLoss,
    outer: OuterLoss,
    mu: float,
    gate: float | None,
    ranking: Collection[str] = (),
) -> tuple[Parameters, BilevelResult]:
    """One step τ of Eq. 7, in its order.

        θ'_{τ+1} = θ_τ − μ ∇_θ L_in(θ_τ, β_τ)              pseudo-update
        β_{τ+1}  = β_τ − α ∇_β L_out(θ'_{τ+1})             confidence update
        θ_{τ+1}  = θ_τ − μ ∇_θ L_in(θ_τ, β_{τ+1})          real update

    `beta` reads the batch's confidences, `update_beta` takes their gradient, `update_theta` turns ∇_θ L_in into
    θ_{τ+1} (SGD as in Eq. 7, or Adam as in the paper's experiments). With `gate` = C ≥ 0 the real update is taken only
    where Theorem 1 has it decrease the outer loss, Eq. 8: ∇L_out(θ_{τ+1})·∇L_in(θ_τ, β_{τ+1}) ≥ C ‖∇L_in‖².

    `ranking` names the parameters that L_out depends on, where not all do: only theirs are followed through the first two lines.

    The losses of the pairs at θ_τ (`terms`) are worked out once: both lines with ∇_θ L_in go back through them, with other
    weights. `reward` gives R'_θ of the same pairs.
    """
    live = tracked(theta)
    at_theta = terms(live)

    # Pseudo-update and confidence update.
    before = beta()
    slope = back(weighted(before, at_theta), {name: live[name] for name in ranking or live}, again=True)
    slope_beta, outer_value = confidence_gradient(theta, before, slope, at_theta, reward, outer, mu)
    update_beta(slope_beta)

    # Real update.
    inner_value = weighted(beta(), at_theta)
    slope = back(inner_value, live)
    with torch.no_grad():
        updated = update_theta(slope)
    accepted = gate is None or bool(dot(_of_outer(outer, updated, ranking), slope) >= gate * dot(slope, slope))
    return (updated if accepted else theta), BilevelResult(float(inner_value.detach()), float(outer_value), accepted)
