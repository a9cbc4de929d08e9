"""2IWIL (Wu et al. 2019, "Imitation Learning from Imperfect Demonstration"): confidence predicted by a classifier that learns
from few labelled and many unlabelled pairs. The policy's learner then weights by it; with AIRL it is the paper's baseline."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad

from cail_core.algorithms.baselines.labels import pair_labels
from cail_core.algorithms.batch import demo_batch
from cail_core.algorithms.eq7.bilevel import Parameters
from cail_core.algorithms.eq7.optim import Adam
from cail_core.algorithms.inner.gail import Gail
from cail_core.algorithms.method import MethodConfig
from cail_core.demos.demonstrations import Demonstrations


def cu_risk(labelled: Tensor, label: Tensor, unlabelled: Tensor, mixing: float) -> Tensor:
    """The non-negative risk of a classifier g from pairs with a confidence r and pairs without, ℓ(z) = log(1 + e^−z):

        R(g) = E_c[r ℓ(g)] + max(0, E_c[(1 − m − r) ℓ(−g)] + m E_u[ℓ(−g)])

    The first term is the risk on the good pairs, the second that on the bad ones, which cannot be negative but whose
    estimate becomes so when g learns the labelled pairs by heart. `mixing` m is the share of the pairs without label;
    `labelled` and `unlabelled` are values of g. The labels weigh pair by pair, before the mean is taken.
    """
    good = (label * F.softplus(-labelled)).mean()
    bad = ((1 - mixing - label) * F.softplus(labelled)).mean() + mixing * F.softplus(unlabelled).mean()
    return good + bad.clamp_min(0.0)


def predicted_confidence(demos: Demonstrations, config: MethodConfig, generator: torch.Generator) -> Tensor:
    """The label where there is one, σ(g(s, a)) elsewhere."""
    data, label, c = demo_batch(demos), pair_labels(demos), config.classifier
    known = torch.nonzero(~label.isnan()).squeeze(1)
    mixing = 1 - len(known) / len(label)
    g = Gail(data.state.shape[1], data.action.shape[1], generator, hidden=c.hidden)
    g.state_scale.set(data.state.mean(0), data.state.std(0).clamp_min(1e-3))
    theta, adam = g.theta(), Adam(c.rate)
    for _ in range(c.steps):
        some = known[torch.randint(len(known), (c.batch,), generator=generator)]
        any_ = torch.randint(len(label), (c.batch,), generator=generator)

        def risk(theta: Parameters, some: Tensor = some, any_: Tensor = any_) -> Tensor:
            return cu_risk(g.logit(theta, data.rows(some)), label[some], g.logit(theta, data.rows(any_)), mixing)

        theta = adam.propose(theta, grad(risk)(theta))
        adam.take()
    with torch.no_grad():
        return torch.where(label.isnan(), torch.sigmoid(g.logit(theta, data)), label)
