"""Confidence-aware imitation learning: an inner learner, a confidence and an outer loss tied together by Eq. 7."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cail_core.algorithms.batch import Batch, demo_batch
from cail_core.algorithms.eq7.bilevel import BilevelResult, OuterLoss, Parameters, back, bilevel_step, tracked
from cail_core.algorithms.eq7.confidence import Confidence, make_confidence
from cail_core.algorithms.eq7.optim import Adam, as_one_vector
from cail_core.algorithms.eq7.outer import RankedTrajectories, ranking_loss
from cail_core.algorithms.inner.base import InnerLearner, PairLearner
from cail_core.algorithms.inner.gail import Gail
from cail_core.algorithms.method import MethodConfig, OuterConfig
from cail_core.algorithms.trainers.absorbing import padded, steps_left, unflagged_scale, unpadded
from cail_core.demos.demonstrations import Demonstrations


class Cail:
    """θ, β and the step of Eq. 7 on batches that a caller draws."""

    def __init__(self, inner: InnerLearner, confidence: Confidence, ranked: RankedTrajectories | None, outer: OuterConfig, *,
                 mu: float, rate: float) -> None:
        self.inner = inner
        self.confidence = confidence
        self.theta = inner.theta()
        self.ranked = ranked
        self._outer = outer
        self._mu = mu
        self._adam = Adam(rate)

    def outer_loss(self, theta: Parameters) -> Tensor:
        """L_out(θ), Eq. 13, with the learned returns divided by a temperature."""
        if self.ranked is None:
            raise ValueError("an outer loss needs ranked trajectories")
        return ranking_loss(self.learned_returns(theta) / self._outer.temperature, self.ranked.rank, self._outer.loss)

    def learned_returns(self, theta: Parameters) -> Tensor:
        """η' of the ranked trajectories, best ranked first."""
        if self.ranked is None:
            raise ValueError("learned returns need ranked trajectories")
        return self.ranked.returns(self.inner.reward(theta, self.ranked.batch))

    def step(self, rows: Tensor, demo: Batch, other: Batch, *, gated: bool) -> BilevelResult:
        """One step of Eq. 7 on the demonstration pairs `rows` (their content is `demo`) and the policy's pairs `other`.

        `gated`: the real update is taken only as Theorem 1 says.
        """
        inner = self.inner
        if not isinstance(inner, PairLearner):
            raise TypeError(f"Eq. 7 needs a loss of single pairs, which {type(inner).__name__} has not")
        self.theta, result = bilevel_step(
            self.theta,
            beta=lambda: self.confidence.of(rows),
            update_beta=lambda slope: self.confidence.update(rows, slope),
            update_theta=lambda slope: self._adam.propose(self.theta, slope),
            terms=lambda theta: inner.terms(theta, demo, other),
            reward=lambda theta: inner.reward(theta, demo),
            outer=self.outer_loss,
            mu=self._mu,
            gate=0.0 if gated else None,
            ranking=inner.ranking(),
        )
        if result.accepted:
            self._adam.take()
        return result

    def weighted_step(self, weight: Tensor, demo: Batch, other: Batch) -> float:
        """The third line of Eq. 7 alone: the inner learner with weights that stay as they are."""
        return self.descend(lambda theta: self.inner.loss(theta, weight, demo, other))

    def descend(self, loss: OuterLoss) -> float:
        """One step of Adam on any loss of θ, and its value before."""
        theta = tracked(self.theta)
        value = loss(theta)
        slope = back(value, theta)
        with torch.no_grad():
            self.theta = self._adam.propose(self.theta, slope)
        self._adam.take()
        return float(value.detach())

    def state(self) -> dict[str, Any]:
        return {"theta": self.theta, "adam": self._adam.state(), "confidence": self.confidence.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.theta = as_one_vector(state["theta"])
        self._adam.restore(state["adam"])
        self.confidence.restore(state["confidence"])


def ranked_trajectories(demos: Demonstrations, config: MethodConfig) -> RankedTrajectories:
    return RankedTrajectories.of(demos, demos.ranked, config.ppo.gamma, config.outer.returns)


def draw(n: int, size: int, generator: torch.Generator) -> Tensor:
    """`size` rows out of n, with replacement."""
    return torch.randint(n, (size,), generator=generator)


def draw_by(chances: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """`size` rows with replacement, row i in proportion to its weight; `chances` are the running sums of the weights."""
    wanted = torch.rand(size, generator=generator, dtype=chances.dtype) * chances[-1]
    return torch.searchsorted(chances, wanted, right=True).clamp_max(len(chances) - 1)


def learn_confidence_before(
    demos: Demonstrations, config: MethodConfig, generator: torch.Generator, horizon: int,
) -> tuple[Cail, list[BilevelResult]]:
    """Confidence from the demonstrations alone, without a policy or an environment; and with it a learned reward.

    Eq. 11 needs pairs of a policy to tell the demonstrations from. Before any policy exists the best guess at one is the
    demonstrators' own mixture π^d, so its pairs are the demonstrations, all with weight 1:

        L_in(θ, β) = E_{β p_d}[−log D] + E_{p_d}[−log(1 − D)]

    Its minimum is logit D(s, a) = log β(s, a): the learned reward *is* the log-confidence, and the outer loss asks β
    itself to order the ranked trajectories. Nothing adversarial moves meanwhile, which keeps the gradient of β steady.

    A demonstration that ended before the time limit `horizon` goes on waiting where it ended: where it got to, and how soon,
    then counts as much as how it got there.
    """
    data = padded(demo_batch(demos), steps_left(demos, horizon)) if config.absorbing else unpadded(demo_batch(demos))
    states = data.batch.state[:, :-1]
    inner = Gail(states.shape[1] + 1, data.batch.action.shape[1], generator, hidden=config.discriminator.hidden)
    inner.state_scale.set(*unflagged_scale(states))
    ranked = RankedTrajectories.of(demos, demos.ranked, config.ppo.gamma, config.outer.returns,
                                   horizon=horizon if config.absorbing else 0)
    if not config.absorbing:
        ranked = replace(ranked, batch=unpadded(ranked.batch).batch)
    cail = Cail(inner, make_confidence(demos, config.beta, generator), ranked, config.outer,
                mu=config.before.mu, rate=config.before.rate)
    history = []
    for k in range(config.before.steps):
        rows, others = (data.pool[draw(len(data.pool), config.before.batch, generator)] for _ in range(2))
        history.append(cail.step(data.origin[rows], data.batch.rows(rows), data.batch.rows(others),
                                 gated=config.gate and k >= config.before.gate_after))
    return cail, history
