"""`gail`: GAIL on all demonstrations alike."""

from __future__ import annotations

from dataclasses import dataclass

from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import GailMethodConfig
from cail_core.algorithms.trainers.adversarial import AdversarialLearner, gail_learner
from cail_core.algorithms.trainers.trust import uniform_trust


@dataclass(frozen=True)
class GailConfig(GailMethodConfig):
    """`config/gail.yaml`."""


@method("gail", GailConfig)
def gail(training: Training[GailConfig]) -> AdversarialLearner:
    return gail_learner(training, uniform_trust(training))
