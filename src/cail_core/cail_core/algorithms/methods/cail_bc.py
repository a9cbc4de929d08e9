"""`cail-bc`: confidence from the demonstrations alone, then behaviour cloning of what is trusted. No environment."""

from __future__ import annotations

from dataclasses import dataclass

from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import OfflineConfig, PairTrustConfig
from cail_core.algorithms.trainers.cloning import CloningLearner
from cail_core.algorithms.trainers.trust import offline_trust


@dataclass(frozen=True)
class CailBcConfig(PairTrustConfig, OfflineConfig):
    """`config/cail-bc.yaml`."""


@method("cail-bc", CailBcConfig, offline=True, needs_ranking=True)
def cail_bc(training: Training[CailBcConfig]) -> CloningLearner:
    return CloningLearner(training, offline_trust(training))
