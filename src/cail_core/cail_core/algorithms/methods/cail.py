"""`cail`: confidence from the demonstrations alone, then AIRL on what is trusted."""

from __future__ import annotations

from dataclasses import dataclass

from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import AirlMethodConfig, PairTrustConfig
from cail_core.algorithms.trainers.adversarial import AdversarialLearner, airl_learner
from cail_core.algorithms.trainers.trust import offline_trust


@dataclass(frozen=True)
class CailConfig(PairTrustConfig, AirlMethodConfig):
    """`config/cail.yaml`."""


@method("cail", CailConfig, needs_ranking=True)
def cail(training: Training[CailConfig]) -> AdversarialLearner:
    return airl_learner(training, offline_trust(training))
