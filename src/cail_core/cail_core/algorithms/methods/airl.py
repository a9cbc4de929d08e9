"""`airl`: AIRL on all demonstrations alike."""

from __future__ import annotations

from dataclasses import dataclass

from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import AirlMethodConfig
from cail_core.algorithms.trainers.adversarial import AdversarialLearner, airl_learner
from cail_core.algorithms.trainers.trust import uniform_trust


@dataclass(frozen=True)
class AirlConfig(AirlMethodConfig):
    """`config/airl.yaml`."""


@method("airl", AirlConfig)
def airl(training: Training[AirlConfig]) -> AdversarialLearner:
    return airl_learner(training, uniform_trust(training))
