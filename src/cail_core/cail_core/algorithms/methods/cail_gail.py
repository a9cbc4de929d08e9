"""`cail-gail`: confidence from the demonstrations alone, then GAIL on what is trusted."""

from __future__ import annotations

from dataclasses import dataclass

from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import GailMethodConfig, TrustConfig
from cail_core.algorithms.trainers.adversarial import AdversarialLearner, gail_learner
from cail_core.algorithms.trainers.trust import offline_trust


@dataclass(frozen=True)
class CailGailConfig(TrustConfig, GailMethodConfig):
    """`config/cail-gail.yaml`."""


@method("cail-gail", CailGailConfig, needs_ranking=True)
def cail_gail(training: Training[CailGailConfig]) -> AdversarialLearner:
    return gail_learner(training, offline_trust(training))
