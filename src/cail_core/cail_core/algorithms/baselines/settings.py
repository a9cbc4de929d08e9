"""The settings of the methods that CAIL is compared with; each method's own file says what it does with them."""

from __future__ import annotations

from dataclasses import dataclass

from cail_core.config import setting


@dataclass(frozen=True)
class ClassifierConfig:
    """2IWIL: the classifier that predicts the confidence of a pair."""

    hidden: list[int] = setting([100, 100], "sizes of the hidden layers (ReLU)")
    rate: float = setting(3e-4, "Adam's step", low=0.0)
    steps: int = setting(1000, "gradient steps", low=1)
    batch: int = setting(500, "labelled pairs in each step, and as many of all pairs", low=1)


@dataclass(frozen=True)
class IcGailConfig:
    """IC-GAIL."""

    threshold: float = setting(0.7, "the policy's part λ of the mixture is no less: with few good demonstrations the policy "
                                    "would hardly count", low=0.0, high=1.0)


@dataclass(frozen=True)
class RewardConfig:
    """The reward networks of T-REX, D-REX and SSRR."""

    hidden: list[int] = setting([256, 256], "sizes of the hidden layers (ReLU)")
    nets: int = setting(1, "networks whose mean is the reward", low=1)
    rate: float = setting(1e-4, "Adam's step", low=0.0)
    steps: int = setting(1000, "gradient steps", low=1)
    batch: int = setting(32, "pairs of snippets in each step", low=1)
    snippet: int = setting(20, "steps in a snippet, or the shortest trajectory's", low=1)


@dataclass(frozen=True)
class NoiseConfig:
    """D-REX and SSRR: the rollouts with growing noise."""

    levels: int = setting(20, "noise levels from 0 to 1: the share of random actions", low=2)
    rollouts: int = setting(5, "episodes at each level", low=1)
    margin: float = setting(0.3, "D-REX: two rollouts count as ranked when their levels differ by this", low=0.0, high=1.0)
    cloning_steps: int = setting(1000, "D-REX: gradient steps of the cloned policy to which noise is added", low=1)
    airl_steps: int = setting(100_000, "SSRR: environment steps of AIRL, whose policy gets the noise and whose reward judges it",
                              low=1)


@dataclass(frozen=True)
class SmoothnessConfig:
    """RINSE: which trajectories are smooth enough."""

    keep: float = setting(0.25, "share of the trajectories that is kept, the smoothest first", low=0.001, high=1.0)
    threshold: float = setting(0.05, "frequencies beyond the last one of this amplitude (that of 0 Hz is 1) do not count",
                               low=0.0, high=1.0)


@dataclass(frozen=True)
class DwbcConfig:
    """DWBC. η, α and the limits of d are its authors'."""

    experts: float = setting(0.2, "share of the ranked trajectories, best first, that counts as the expert's; at least one",
                             low=0.0, high=1.0)
    eta: float = setting(0.5, "η: the weight of the expert's pairs in the discriminator", low=0.0, high=1.0)
    alpha: float = setting(7.5, "α: the weight of cloning the expert's pairs", low=0.0)
    limit: float = setting(0.1, "d stays in [limit, 1 − limit]", low=1e-3, high=0.5)
    hidden: list[int] = setting([100, 100], "sizes of the discriminator's hidden layers (ReLU)")
    rate: float = setting(3e-4, "Adam's step of the discriminator", low=0.0)
