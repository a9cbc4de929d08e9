"""`cail-hybrid`: `cail-bc`, whose policy then acts and clones those of its own episodes that the learned reward finds good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import OfflineConfig, PairTrustConfig, PolicyCloningConfig, WeightedConfig
from cail_core.algorithms.trainers.self_imitation import SelfImitationConfig, SelfImitationLearner
from cail_core.algorithms.trainers.trust import offline_trust
from cail_core.config import setting


@dataclass(frozen=True)
class CailHybridConfig(PairTrustConfig, WeightedConfig):
    """`config/cail-hybrid.yaml`."""

    RENAMED: ClassVar[dict[str, str]] = OfflineConfig.RENAMED

    bc_warmup_steps: int = setting(1000, "gradient steps of cloning what is trusted, before the policy first acts", low=0)
    cloning: PolicyCloningConfig = setting(PolicyCloningConfig, "behaviour cloning")
    self_imitation: SelfImitationConfig = setting(SelfImitationConfig, "cloning what the policy itself did well")


@method("cail-hybrid", CailHybridConfig, needs_ranking=True)
def cail_hybrid(training: Training[CailHybridConfig]) -> SelfImitationLearner:
    return SelfImitationLearner(training, offline_trust(training))
