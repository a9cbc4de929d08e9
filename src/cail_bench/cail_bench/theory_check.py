"""Theorems 1 and 2 nearly as they stand: Eq. 7 by plain gradient steps on one batch, with the steps that Theorem 2 names and, as
everywhere here, the gate with C = 0 (Theorem 1 asks for μ ≤ 2C/L, and L is not known).

Along a training none of this holds: pairs are drawn anew, θ is moved by Adam, and the policy that D is to tell apart moves too.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from cail_core.algorithms.batch import demo_batch
from cail_core.algorithms.eq7.bilevel import Parameters, bilevel_step
from cail_core.algorithms.eq7.outer import RankedTrajectories, ranking_loss
from cail_core.algorithms.inner.gail import Gail
from cail_core.demos.demonstrations import Demonstrations

C1, C2 = 100.0, 3.0
"""α = C₁/√T and μ = C₂/T (Theorem 2)."""
PAIRS, HIDDEN, GAMMA = 500, [100, 100], 0.995


class Descent(NamedTuple):
    """T steps of Eq. 7."""

    outer: list[float]
    """L_out(θ_τ) before each step, and after the last."""
    gradient: list[float]
    """‖∇_β L_out‖² at each step."""
    mu: float

    @property
    def rising(self) -> float:
        """The share of the steps that raise the outer loss, which Theorem 1 says is 0."""
        return sum(after > before for before, after in pairwise(self.outer)) / len(self.gradient)

    @property
    def bound(self) -> float:
        """(L_out(θ_1) − L_out(θ_{T+1})) / (C₁(√T − 1)): by Theorem 2's proof the least ‖∇_β L_out‖² is no more than this and a
        second term that is not negative."""
        return (self.outer[0] - self.outer[-1]) / (C1 * (math.sqrt(len(self.gradient)) - 1))


def descend(demos: Demonstrations, loss: str, steps: int, generator: torch.Generator, gate: float | None = 0.0) -> Descent:
    """Eq. 7 with D(s, a) between `PAIRS` weighted demonstration pairs and as many others, from β = 1; `gate` is Theorem 1's C."""
    data = demo_batch(demos, torch.float64)
    chosen = torch.randperm(len(data.state), generator=generator)[: 2 * PAIRS]
    demo, other = data.rows(chosen[: len(chosen) // 2]), data.rows(chosen[len(chosen) // 2:])
    inner = Gail(data.state.shape[1], data.action.shape[1], generator, hidden=HIDDEN).double()
    inner.state_scale.set(data.state.mean(0), data.state.std(0).clamp_min(1e-3))
    ranked = RankedTrajectories.of(demos, demos.ranked, GAMMA, "sum", torch.float64)
    alpha, mu = C1 / math.sqrt(steps), C2 / steps
    theta = inner.theta()
    beta = torch.ones(len(demo.state), dtype=torch.float64)
    gradient: list[float] = []

    def outer(at: Parameters) -> Tensor:
        return ranking_loss(ranked.returns(inner.reward(at, ranked.batch)), ranked.rank, loss)

    def update_beta(slope: Tensor) -> None:
        nonlocal beta
        gradient.append(float(slope.pow(2).sum()))
        beta = (beta - alpha * slope).clamp_min(0.0)

    def update_theta(slope: Parameters) -> Parameters:
        return {name: value - mu * slope[name] for name, value in theta.items()}

    with torch.no_grad():
        values = [float(outer(theta))]
    for _ in range(steps):
        theta, _ = bilevel_step(theta, lambda: beta, update_beta, update_theta, lambda at: inner.terms(at, demo, other),
                                lambda at: inner.reward(at, demo), outer, mu, gate)
        with torch.no_grad():
            values.append(float(outer(theta)))
    return Descent(values, gradient, mu)
