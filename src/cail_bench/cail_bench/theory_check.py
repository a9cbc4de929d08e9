"""Theorems 1 and 2 nearly as they stand: Eq. 7 by plain gradient steps on one batch, with the steps that Theorem 2 names and, as
everywhere here, the gate with C = 0 (Theorem 1 asks for μ ≤ 2C/L, and L is not known).

Along a training none of this holds: pairs are drawn anew, θ is moved by Adam, and the policy that D is to tell apart moves too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from cail_core.algorithms.batch import demo_batch
from cail_core.algorithms.eq7.cail import Cail
from cail_core.algorithms.eq7.optim import Sgd
from cail_core.algorithms.eq7.outer import OuterLoss, RankedTrajectories
from cail_core.algorithms.inner.gail import Gail
from cail_core.algorithms.settings import OuterConfig
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
    beta = _Beta(torch.ones(len(demo.state), dtype=torch.float64), alpha, [])
    cail = Cail(inner, beta, OuterLoss(inner, ranked, OuterConfig(loss=loss, temperature=1.0)), Sgd(mu), mu=mu)
    rows = torch.arange(len(demo.state))
    with torch.no_grad():
        values = [float(cail.outer(cail.theta))]
    for _ in range(steps):
        cail.step(rows, demo, other, gate=gate)
        with torch.no_grad():
            values.append(float(cail.outer(cail.theta)))
    return Descent(values, beta.gradient, mu)


@dataclass
class _Beta:
    """β by plain gradient steps; the squared norm of each gradient is kept."""

    value: Tensor
    alpha: float
    gradient: list[float]

    def of(self, rows: Tensor) -> Tensor:
        return self.value[rows]

    def update(self, rows: Tensor, grad: Tensor) -> None:
        self.gradient.append(float(grad.pow(2).sum()))
        self.value[rows] = (self.value[rows] - self.alpha * grad).clamp_min(0.0)
