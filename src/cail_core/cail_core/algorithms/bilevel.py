"""The bi-level step of confidence-aware imitation learning: Eq. 7 and the gate of Theorem 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, jvp

Parameters = dict[str, Tensor]
InnerLoss = Callable[[Parameters, Tensor], Tensor]
"""L_in(θ, β) on one batch; β has one entry per demonstration pair of the batch."""
OuterLoss = Callable[[Parameters], Tensor]
"""L_out(θ)."""


def mean_one(beta: Tensor) -> Tensor:
    """n·β / Σβ: confidences as the loss uses them, with mean 1 (App. "Implementation Details")."""
    return beta / beta.mean().clamp_min(1e-12)


def pseudo_update(theta: Parameters, beta: Tensor, inner: InnerLoss, mu: float) -> Parameters:
    """θ' = θ − μ ∇_θ L_in(θ, β): a function of β, differentiable in it; θ itself does not change."""
    slope = grad(inner)(theta, beta)
    return {name: value - mu * slope[name] for name, value in theta.items()}


def confidence_gradient(theta: Parameters, beta: Tensor, inner: InnerLoss, outer: OuterLoss, mu: float) -> tuple[Tensor, Tensor]:
    """∇_β L_out(θ'(β)) through the pseudo-update, and L_out(θ') itself.

    With v = ∇L_out(θ') the chain rule gives −μ ∇_β ⟨v, ∇_θ L_in(θ, β)⟩. The product is the slope of L_in along v, which one
    forward pass with tangents gives; a second backward pass through the first would cost twice as much.
    """
    v, value = grad_and_value(outer)(pseudo_update(theta, beta, inner, mu))

    def slope_along_v(b: Tensor) -> Tensor:
        slope: Tensor = jvp(lambda t: inner(t, b), (theta,), (v,))[1]
        return slope

    return -mu * grad(slope_along_v)(beta), value


def dot(a: Parameters, b: Parameters) -> Tensor:
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
    inner: InnerLoss,
    outer: OuterLoss,
    mu: float,
    gate: float | None,
) -> tuple[Parameters, BilevelResult]:
    """One step τ of Eq. 7, in its order.

        θ'_{τ+1} = θ_τ − μ ∇_θ L_in(θ_τ, β_τ)              pseudo-update
        β_{τ+1}  = β_τ − α ∇_β L_out(θ'_{τ+1})             confidence update
        θ_{τ+1}  = θ_τ − μ ∇_θ L_in(θ_τ, β_{τ+1})          real update

    `beta` reads the batch's confidences, `update_beta` takes their gradient, `update_theta` turns ∇_θ L_in into
    θ_{τ+1} (SGD as in Eq. 7, or Adam as in the paper's experiments). With `gate` = C ≥ 0 the real update is taken only
    where Theorem 1 has it decrease the outer loss, Eq. 8: ∇L_out(θ_{τ+1})·∇L_in(θ_τ, β_{τ+1}) ≥ C ‖∇L_in‖².
    """
    # Pseudo-update and confidence update.
    slope_beta, outer_value = confidence_gradient(theta, beta(), inner, outer, mu)
    update_beta(slope_beta)

    # Real update.
    slope_theta, inner_value = grad_and_value(inner)(theta, beta())
    updated = update_theta(slope_theta)
    accepted = gate is None or bool(dot(grad(outer)(updated), slope_theta) >= gate * dot(slope_theta, slope_theta))
    return (updated if accepted else theta), BilevelResult(float(inner_value), float(outer_value), accepted)
