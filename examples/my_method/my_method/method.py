"""Behaviour cloning of the best of the ranked demonstrations. Put your own choice of what to trust, or your own learner, here."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import OfflineConfig
from cail_core.algorithms.trainers.cloning import CloningLearner
from cail_core.algorithms.trainers.trust import given_trust
from cail_core.config import setting
from cail_core.demos.demonstrations import Demonstrations


@dataclass(frozen=True)
class MyMethodConfig(OfflineConfig):
    """`my-method.yaml`: the settings that the method reads, and no others."""

    best_fraction: float = setting(0.5, "fraction of the ranked demonstrations that is cloned", low=0.0, high=1.0)


def confidence(demos: Demonstrations, best_fraction: float) -> Tensor:
    """1 for every pair of the best demonstrations, 0 for all others."""
    best = demos.ranked[: max(1, round(best_fraction * len(demos.ranked)))]
    trusted = torch.zeros(demos.episodes)
    trusted[torch.as_tensor(best)] = 1.0
    return trusted[torch.as_tensor(demos.episode_of_pair)]


@method("my-method", MyMethodConfig, offline=True, needs_ranking=True)
def my_method(training: Training[MyMethodConfig]) -> CloningLearner:
    """What learns, made from demonstrations and settings; with offline=False it may act in `training.task`."""
    return CloningLearner(training, given_trust(training, confidence(training.demos, training.config.best_fraction)))
