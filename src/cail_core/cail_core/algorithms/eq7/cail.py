"""Confidence-aware imitation learning: the three lines of Eq. 7, and confidence learned from the demonstrations alone."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from cail_core.algorithms.batch import Batch, demo_batch
from cail_core.algorithms.eq7.confidence import Confidence
from cail_core.algorithms.eq7.gradient import Loss, backward, confidence_gradient, dot, requires_grad_copy, value_grad, weighted
from cail_core.algorithms.eq7.optim import Adam, Optimizer
from cail_core.algorithms.eq7.outer import OuterLoss, RankedTrajectories
from cail_core.algorithms.inner.base import InnerLearner, PairLearner
from cail_core.algorithms.inner.gail import Gail
from cail_core.algorithms.inner.weighted import WeightedInnerLearner
from cail_core.algorithms.settings import TrustConfig
from cail_core.algorithms.trainers.absorbing import padded, steps_left, unflagged_scale
from cail_core.demos.demonstrations import Demonstrations


class HasBeta(Protocol):
    """β of the demonstration pairs, and its step."""

    def of(self, rows: Tensor) -> Tensor: ...

    def update(self, rows: Tensor, grad: Tensor) -> None: ...


class BilevelResult(NamedTuple):
    """What one step of Eq. 7 found; `accepted` is whether Theorem 1's gate let the real update through."""

    inner: float
    outer: float
    accepted: bool


class Cail(WeightedInnerLearner):
    """An inner learner, a confidence and an outer loss tied together by Eq. 7."""

    def __init__(self, inner: InnerLearner, confidence: HasBeta, outer: Loss, optimizer: Optimizer, *, mu: float) -> None:
        super().__init__(inner, optimizer)
        if not isinstance(inner, PairLearner):
            raise TypeError(f"Eq. 7 needs a loss of single pairs, which {type(inner).__name__} has not")
        self.pairs = inner
        self.confidence = confidence
        self.outer = outer
        self.mu = mu

    def step(self, rows: Tensor, demo: Batch, other: Batch, *, gate: float | None) -> BilevelResult:
        """One step τ of Eq. 7 on the demonstration pairs `rows` (their content is `demo`) and the policy's pairs `other`.

            θ'_{τ+1} = θ_τ − μ ∇_θ L_in(θ_τ, β_τ)              pseudo-update
            β_{τ+1}  = β_τ − α ∇_β L_out(θ'_{τ+1})             confidence update
            θ_{τ+1}  = θ_τ − μ ∇_θ L_in(θ_τ, β_{τ+1})          real update

        The optimizer makes the real update: SGD as in Eq. 7, or Adam as in the paper's experiments. With `gate` = C ≥ 0 it is
        taken only where Theorem 1 has it decrease the outer loss, Eq. 8: ∇L_out(θ_{τ+1})·∇L_in(θ_τ, β_{τ+1}) ≥ C ‖∇L_in‖².

        The losses of the pairs at θ_τ are worked out once: the first and the third line go back through them with other weights.
        Only the parameters that L_out depends on (`ranking`) are followed through the first two lines.
        """
        theta = requires_grad_copy(self.theta)
        terms = self.pairs.terms(theta, demo, other)
        ranking = self.pairs.ranking()

        # θ' = θ − μ ∇_θ L_in(θ, β)
        beta = self.confidence.of(rows)
        grad = backward(weighted(beta, terms), {name: theta[name] for name in ranking}, again=True)

        # β ← β − α ∇_β L_out(θ')
        grad_beta, outer = confidence_gradient(self.theta, beta, grad, terms, lambda at: self.pairs.reward(at, demo), self.outer,
                                               self.mu)
        self.confidence.update(rows, grad_beta)

        # θ ← θ − μ ∇_θ L_in(θ, β)
        inner = weighted(self.confidence.of(rows), terms)
        grad = backward(inner, theta)
        with torch.no_grad():
            updated = self._optimizer.propose(self.theta, grad)

        accepted = True
        if gate is not None:
            grad_outer, _ = value_grad(lambda part: self.outer({**updated, **part}), {name: updated[name] for name in ranking})
            accepted = bool(dot(grad_outer, grad) >= gate * dot(grad, grad))
        if accepted:
            self.theta = updated
            self._optimizer.take()
        return BilevelResult(float(inner.detach()), float(outer), accepted)


class RewardModel(NamedTuple):
    """What is learned along with the confidence: a reward, and β itself."""

    cail: Cail
    confidence: Confidence
    history: list[BilevelResult]


def learn_confidence_offline(demos: Demonstrations, config: TrustConfig, generator: torch.Generator, horizon: int, *,
                             steps: int | None = None) -> RewardModel:
    """Confidence from the demonstrations alone, without a policy or an environment; and with it a learned reward.

    Eq. 11 needs pairs of a policy to tell the demonstrations from. Before any policy exists the best guess at one is the
    demonstrators' own mixture π^d, so its pairs are the demonstrations, all with weight 1:

        L_in(θ, β) = E_{β p_d}[−log D] + E_{p_d}[−log(1 − D)]

    Its minimum is logit D(s, a) = log β(s, a): the learned reward *is* the log-confidence, and the outer loss asks β
    itself to order the ranked trajectories. Nothing adversarial moves meanwhile, which keeps the gradient of β steady.

    A demonstration that ended before the time limit `horizon` goes on waiting where it ended: where it got to, and how soon,
    then counts as much as how it got there. `steps` in place of the settings' own: 0 where a checkpoint brings the result.
    """
    c = config.offline_confidence
    data = padded(demo_batch(demos), steps_left(demos, horizon))
    states = data.batch.state[:, :-1]
    inner = Gail(states.shape[1] + 1, data.batch.action.shape[1], generator, hidden=c.hidden)
    inner.state_scale.set(*unflagged_scale(states))
    ranked = RankedTrajectories.of(demos, demos.ranked, config.outer.gamma, config.outer.returns, horizon=horizon)
    confidence = Confidence(demos, config.beta)
    cail = Cail(inner, confidence, OuterLoss(inner, ranked, config.outer), Adam(c.learning_rate), mu=c.mu)
    history = []
    for k in range(c.steps if steps is None else steps):
        rows, others = (data.pool[draw(len(data.pool), c.batch_size, generator)] for _ in range(2))
        history.append(cail.step(data.origin[rows], data.batch.rows(rows), data.batch.rows(others),
                                 gate=0.0 if c.gate and k >= c.gate_after else None))
    return RewardModel(cail, confidence, history)


def draw(n: int, size: int, generator: torch.Generator) -> Tensor:
    """`size` rows out of n, with replacement."""
    return torch.randint(n, (size,), generator=generator)


def draw_by(cum_weights: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """`size` rows with replacement, row i in proportion to its weight; `cum_weights` are the running sums of the weights."""
    wanted = torch.rand(size, generator=generator, dtype=cum_weights.dtype) * cum_weights[-1]
    return torch.searchsorted(cum_weights, wanted, right=True).clamp_max(len(cum_weights) - 1)
