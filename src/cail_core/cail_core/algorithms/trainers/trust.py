"""How much each demonstration pair counts for the policy, and where that comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cail_core.algorithms.eq7.cail import Cail, learn_confidence_offline
from cail_core.algorithms.eq7.confidence import Confidence, sharpened
from cail_core.algorithms.eq7.pair_confidence import joined, refined
from cail_core.algorithms.registry import Training
from cail_core.algorithms.settings import (
    ConfidenceConfig,
    JointConfidenceConfig,
    OuterConfig,
    PairConfig,
    PairTrustConfig,
    TrustConfig,
)
from cail_core.algorithms.trainers.demo_modes import dominant_mode
from cail_core.demos.demonstrations import Demonstrations


@dataclass
class Trust:
    """β of every demonstration pair and the weights made of it. Made by one of the functions below."""

    demos: Demonstrations
    confidence: Confidence
    outer: OuterConfig
    drawn: bool
    """A pair's weight is how often it is drawn, rather than how much it counts in the loss. The same on average; but a batch in
    which most pairs hardly count is worth no more than a small one."""
    mode_distance: float
    fraction: float = 1.0
    max_weight_ratio: float = math.inf
    joint: JointConfidenceConfig | None = None
    """Given where β is learned along with the policy, by all of Eq. 7."""
    reward_model: Cail | None = None
    """Where β was learned beforehand: what it was learned with."""
    pairs: PairConfig = field(default_factory=PairConfig)
    agreement: Tensor = field(default_factory=lambda: torch.empty(0))
    """Of each pair with the trusted, where β differs within a demonstration (`eq7/pair_confidence.py`); else empty."""

    def __post_init__(self) -> None:
        self.fixed_weight = self._sharpened()

    @property
    def beta(self) -> Tensor:
        """The confidence of each pair, mean 1."""
        beta = self.confidence.all()
        return joined(beta, self.agreement, self.pairs) if len(self.agreement) else beta

    @property
    def weight(self) -> Tensor:
        """What each pair counts, mean 1."""
        return self.beta if self.joint else self.fixed_weight

    def _sharpened(self) -> Tensor:
        weight = sharpened(self.beta, self.fraction, self.max_weight_ratio)
        return dominant_mode(weight, self.demos, self.mode_distance) if self.mode_distance else weight

    def state(self) -> dict[str, Any]:
        return self.confidence.state() | ({"agreement": self.agreement} if len(self.agreement) else {})

    def restore(self, state: dict[str, Any]) -> None:
        self.confidence.restore(state)
        self.agreement = state.get("agreement", torch.empty(0)).clone()
        self.fixed_weight = self._sharpened()


def uniform_trust(training: Training[Any]) -> Trust:
    """All pairs count alike."""
    return Trust(training.demos, Confidence(training.demos, ConfidenceConfig()), OuterConfig(), False,
                 training.config.dominant_mode_distance)


def given_trust(training: Training[Any], beta: Tensor) -> Trust:
    """Pairs count as `beta` says, which was worked out once and without Eq. 7."""
    return Trust(training.demos, Confidence(training.demos, ConfidenceConfig(), beta), OuterConfig(), True,
                 training.config.dominant_mode_distance)


def offline_trust(training: Training[Any]) -> Trust:
    """CAIL's confidence, learned from the demonstrations alone, sharpened and then frozen."""
    c: TrustConfig = training.config
    learned = learn_confidence_offline(training.demos, c, training.generator, training.horizon,
                                       steps=0 if training.resumed else None)
    pairs = c.pairs if isinstance(c, PairTrustConfig) else PairConfig()
    agreement = torch.empty(0)
    if pairs.rounds and not training.resumed:
        agreement = refined(learned.confidence.all(), training.demos, pairs, training.generator)
    trusted = (pairs.trusted_fraction if pairs.rounds else 0.0) or c.trusted_fraction
    fraction = max(trusted, min(1.0, c.min_trusted_demos / training.demos.episodes))
    return Trust(training.demos, learned.confidence, c.outer, True, training.config.dominant_mode_distance, fraction,
                 c.max_weight_ratio or math.inf, reward_model=learned.cail, pairs=pairs, agreement=agreement)


def joint_trust(training: Training[Any]) -> Trust:
    """The paper's confidence: learned along with the policy, by all of Eq. 7."""
    c = training.config
    return Trust(training.demos, Confidence(training.demos, c.beta), c.outer, False, c.dominant_mode_distance,
                 joint=c.joint_confidence)
