"""IC-GAIL (Wu et al. 2019): GAIL whose policy is asked to make up the good part of the demonstrations only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cail_core.algorithms.baselines.labels import pair_labels
from cail_core.algorithms.batch import Batch, demo_batch
from cail_core.algorithms.eq7.gradient import Parameters, Terms
from cail_core.algorithms.inner.gail import Gail
from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import GailMethodConfig
from cail_core.algorithms.trainers.absorbing import Padded, padded, steps_left
from cail_core.algorithms.trainers.adversarial import AdversarialLearner
from cail_core.algorithms.trainers.trust import uniform_trust
from cail_core.config import setting


@dataclass(frozen=True)
class MixtureConfig:
    """The mixture that the demonstrations are told from."""

    threshold: float = setting(0.7, "lower bound on the policy's part λ of the mixture: with few good demonstrations the policy "
                                    "would hardly count", low=0.0, high=1.0)


@dataclass(frozen=True)
class IcGailConfig(GailMethodConfig):
    """`config/ic-gail.yaml`."""

    ic_gail: MixtureConfig = setting(MixtureConfig, "the mixture")


class IcGail(Gail):
    """The demonstrations p = α p_opt + (1 − α) p_non are told from a mixture that the policy only fills up:

        p' = λ π + (1 − λ) p_non,    λ = max(α, τ)

    p_non is estimated from the labelled pairs, each weighted by 1 − r, and α is their mean label. With λ = α the two are
    equal when, and only when, π makes pairs as p_opt does. τ (`threshold`) keeps the policy's part from vanishing.
    """

    part: float
    labelled: Batch
    doubt: Tensor

    def __init__(self, observation_dim: int, action_dim: int, generator: torch.Generator, *, hidden: list[int], threshold: float,
                 labelled: Padded, label: Tensor) -> None:
        """`labelled`: all demonstration pairs with their waiting pairs; `label`: r of each pair, NaN where there is none."""
        super().__init__(observation_dim, action_dim, generator, hidden=hidden)
        pool = labelled.pool[~label[labelled.origin[labelled.pool]].isnan()]
        rows, count = torch.unique(pool, return_counts=True)
        r, share = label[labelled.origin[rows]], count / count.sum()
        alpha = float((share * r).sum())
        self.part = max(alpha, threshold)
        self.labelled = labelled.batch.rows(rows)
        self.doubt = (1 - self.part) * share * (1 - r) / (1 - alpha)  # sums to 1 − λ

    def terms(self, theta: Parameters, demo: Batch, other: Batch) -> Terms:
        """−log D of each pair, and λ E_π[−log(1 − D)] + (1 − λ) E_{p_non}[−log(1 − D)]."""
        filled_up = self.part * F.softplus(self.logit(theta, other)).mean()
        reward = self.logit(theta, demo)
        rest = filled_up + (self.doubt * F.softplus(self.logit(theta, self.labelled))).sum()
        return Terms(F.softplus(-reward), rest, reward)


@method("ic-gail", IcGailConfig, needs_ranking=True)
def ic_gail(training: Training[IcGailConfig]) -> AdversarialLearner:
    return AdversarialLearner(training, uniform_trust(training), _discriminator)


def _discriminator(training: Training[Any], states: int, actions: int) -> IcGail:
    c, demos = training.config, training.demos
    return IcGail(states, actions, training.generator, hidden=c.discriminator.hidden, threshold=c.ic_gail.threshold,
                  labelled=padded(demo_batch(demos), steps_left(demos, training.horizon)), label=pair_labels(demos))
