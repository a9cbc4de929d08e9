"""A curation baseline in the manner of RINSE: keep the smoothest demonstrations, by the spectral arc length of their speed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import OfflineConfig
from cail_core.algorithms.trainers.cloning import CloningLearner
from cail_core.algorithms.trainers.trust import given_trust
from cail_core.config import setting
from cail_core.demos.demonstrations import Demonstrations

Floats = NDArray[np.float64]
PADDING = 4  # the spectrum is sampled this many times finer than the trajectory's length gives


@dataclass(frozen=True)
class SmoothnessConfig:
    """Which trajectories are smooth enough."""

    RENAMED: ClassVar[dict[str, str]] = {"keep": "keep_fraction"}

    keep_fraction: float = setting(0.25, "fraction of the trajectories that is kept, the smoothest first", low=0.001, high=1.0)
    threshold: float = setting(0.05, "frequencies beyond the last one of this amplitude (that of 0 Hz is 1) do not count",
                               low=0.0, high=1.0)


@dataclass(frozen=True)
class RinseConfig(OfflineConfig):
    """`config/rinse.yaml`."""

    smoothness: SmoothnessConfig = setting(SmoothnessConfig, "which trajectories are smooth enough")


def arc_length(spectrum: Floats, threshold: float) -> float:
    """The length of the curve of amplitudes from 0 Hz (scaled to 1) to the last one above `threshold`, that band being 1 wide.

        S = −∫₀^{ω_c} sqrt((1/ω_c)² + (dV/dω)²) dω,   V(ω) = |FFT(speed)|(ω) / |FFT(speed)|(0)

    (Balasubramanian et al. 2015). A movement in one stroke has a short band that falls straight: nearly −1.4. Every tremor and
    every stop adds bumps, and length.
    """
    v = spectrum / max(float(spectrum[0]), 1e-12)
    last = int(np.flatnonzero(v >= threshold).max(initial=0))
    if last == 0:
        return -1.0
    return -float(np.hypot(1.0 / last, np.diff(v[: last + 1])).sum())


def smoothness(speed: Floats, threshold: float) -> float:
    """The spectral arc length of a speed profile: negative, nearer to 0 is smoother. Rest counts as smooth."""
    if not np.any(speed):
        return -1.0
    size = PADDING * 2 ** int(np.ceil(np.log2(max(2, len(speed)))))
    return arc_length(np.abs(np.fft.rfft(speed, size)), threshold)


def trajectory_scores(demos: Demonstrations, threshold: float) -> Floats:
    """The smoothness of every trajectory. Its speed is the change of the state in a step, each entry in units of its spread."""
    change = (demos.next_states - demos.states).astype(np.float64)
    speed = np.linalg.norm(change / np.maximum(change.std(axis=0), 1e-9), axis=1)
    return np.array([smoothness(speed[demos.rows(e)], threshold) for e in range(demos.episodes)])


def smooth_confidence(demos: Demonstrations, c: SmoothnessConfig) -> Tensor:
    """1 for the pairs of the smoothest trajectories, 0 for all others. No label is looked at, and nothing is random."""
    score = trajectory_scores(demos, c.threshold)
    kept = np.zeros(demos.episodes, dtype=np.float32)
    kept[np.argsort(-score, kind="stable")[: max(1, round(c.keep_fraction * demos.episodes))]] = 1.0
    return torch.as_tensor(kept[demos.episode_of_pair])


@method("rinse", RinseConfig, offline=True)
def rinse(training: Training[RinseConfig]) -> CloningLearner:
    return CloningLearner(training, given_trust(training, smooth_confidence(training.demos, training.config.smoothness)))
