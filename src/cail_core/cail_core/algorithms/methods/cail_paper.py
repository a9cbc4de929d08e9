"""`cail-paper`: the paper's instance, confidence learned along with AIRL by all of Eq. 7."""

from __future__ import annotations

from dataclasses import dataclass

from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import AirlMethodConfig, ConfidenceConfig, JointConfidenceConfig, OuterConfig
from cail_core.algorithms.trainers.adversarial import AdversarialLearner, airl_learner
from cail_core.algorithms.trainers.trust import joint_trust
from cail_core.config import setting


@dataclass(frozen=True)
class CailPaperConfig(AirlMethodConfig):
    """`config/cail-paper.yaml`, which has the paper's values."""

    beta: ConfidenceConfig = setting(ConfidenceConfig, "how β is moved")
    outer: OuterConfig = setting(OuterConfig, "the outer loss")
    joint_confidence: JointConfidenceConfig = setting(JointConfidenceConfig, "Eq. 7 along with the policy")


@method("cail-paper", CailPaperConfig, needs_ranking=True)
def cail_paper(training: Training[CailPaperConfig]) -> AdversarialLearner:
    return airl_learner(training, joint_trust(training))
