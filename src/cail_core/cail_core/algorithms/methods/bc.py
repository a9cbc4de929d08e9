"""`bc`: behaviour cloning of all demonstrations alike."""

from __future__ import annotations

from dataclasses import dataclass

from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import OfflineConfig
from cail_core.algorithms.trainers.cloning import CloningLearner
from cail_core.algorithms.trainers.trust import uniform_trust


@dataclass(frozen=True)
class BcConfig(OfflineConfig):
    """`config/bc.yaml`."""


@method("bc", BcConfig, offline=True)
def bc(training: Training[BcConfig]) -> CloningLearner:
    return CloningLearner(training, uniform_trust(training))
