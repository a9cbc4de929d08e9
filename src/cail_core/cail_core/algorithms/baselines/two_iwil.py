"""2IWIL (Wu et al. 2019, "Imitation Learning from Imperfect Demonstration"): confidence predicted by a classifier that learns
from few labelled and many unlabelled pairs. The policy's learner then weights by it; with AIRL it is the paper's baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad

from cail_core.algorithms.baselines.labels import pair_labels
from cail_core.algorithms.batch import demo_batch
from cail_core.algorithms.eq7.gradient import Parameters
from cail_core.algorithms.eq7.optim import Adam
from cail_core.algorithms.inner.gail import Gail
from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import AirlMethodConfig
from cail_core.algorithms.trainers.adversarial import AdversarialLearner, airl_learner
from cail_core.algorithms.trainers.trust import given_trust
from cail_core.config import setting
from cail_core.demos.demonstrations import Demonstrations


@dataclass(frozen=True)
class ClassifierConfig:
    """The classifier that predicts the confidence of a pair."""

    RENAMED: ClassVar[dict[str, str]] = {"rate": "learning_rate", "batch": "batch_size"}

    hidden: list[int] = setting([100, 100], "sizes of the hidden layers (ReLU)")
    learning_rate: float = setting(3e-4, "of Adam", low=0.0)
    steps: int = setting(1000, "gradient steps", low=1)
    batch_size: int = setting(500, "labelled pairs in each step, and as many of all pairs", low=1)


@dataclass(frozen=True)
class TwoIwilConfig(AirlMethodConfig):
    """`config/2iwil.yaml`."""

    classifier: ClassifierConfig = setting(ClassifierConfig, "the classifier")


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


def predicted_confidence(demos: Demonstrations, c: ClassifierConfig, generator: torch.Generator, steps: int) -> Tensor:
    """The label where there is one, σ(g(s, a)) elsewhere, after `steps` gradient steps."""
    data, label = demo_batch(demos), pair_labels(demos)
    known = torch.nonzero(~label.isnan()).squeeze(1)
    mixing = 1 - len(known) / len(label)
    g = Gail(data.state.shape[1], data.action.shape[1], generator, hidden=c.hidden)
    g.state_scale.set(data.state.mean(0), data.state.std(0).clamp_min(1e-3))
    theta, adam = g.theta(), Adam(c.learning_rate)
    for _ in range(steps):
        some = known[torch.randint(len(known), (c.batch_size,), generator=generator)]
        any_ = torch.randint(len(label), (c.batch_size,), generator=generator)

        def risk(theta: Parameters, some: Tensor = some, any_: Tensor = any_) -> Tensor:
            return cu_risk(g.logit(theta, data.rows(some)), label[some], g.logit(theta, data.rows(any_)), mixing)

        theta = adam.propose(theta, grad(risk)(theta))
        adam.take()
    with torch.no_grad():
        return torch.where(label.isnan(), torch.sigmoid(g.logit(theta, data)), label)


@method("2iwil", TwoIwilConfig, needs_ranking=True)
def two_iwil(training: Training[TwoIwilConfig]) -> AdversarialLearner:
    c = training.config.classifier
    beta = predicted_confidence(training.demos, c, training.generator, 0 if training.resumed else c.steps)
    return airl_learner(training, given_trust(training, beta))
