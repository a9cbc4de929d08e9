"""The settings of a method: `config/<method>.yaml`. Every departure from the paper is one named value here."""

from __future__ import annotations

from dataclasses import dataclass

from cail_core.algorithms import METHODS
from cail_core.algorithms.baselines import (
    ClassifierConfig,
    DwbcConfig,
    IcGailConfig,
    NoiseConfig,
    RewardConfig,
    SmoothnessConfig,
)
from cail_core.algorithms.confidence import ConfidenceConfig
from cail_core.algorithms.pair_confidence import PairConfig
from cail_core.config import build, find_config, installed_config, merged, read_yaml, setting
from cail_core.errors import BadInput, ConfigError
from cail_core.rl.ppo import PPOConfig


@dataclass(frozen=True)
class OuterConfig:
    """L_out, Eq. 13. The paper: `rk`, `sum`, temperature 1."""

    loss: str = setting("logistic", "rk: Eq. 14; logistic: Bradley–Terry", choices=("rk", "logistic"))
    returns: str = setting("mean", "sum: Eq. 13; mean: per step, so that a long trajectory has no advantage",
                           choices=("sum", "mean"))
    temperature: float = setting(0.2, "learned returns are divided by it; a smaller one is content with smaller differences",
                                 low=1e-6)


@dataclass(frozen=True)
class BeforeConfig:
    """Learning confidence from the demonstrations alone: Eq. 11 with all demonstrations in the place of the policy's pairs."""

    steps: int = setting(300, "bi-level steps", low=1)
    batch: int = setting(500, "pairs per step, and as many again for the other side of the discriminator", low=1)
    mu: float = setting(0.1, "μ of the pseudo-update", low=0.0)
    rate: float = setting(1e-3, "Adam's step in θ", low=0.0)
    gate_after: int = setting(100, "steps before the gate acts", low=0)
    select: str = setting("none", "a setting chosen by how well it orders ranked trajectories held out in five folds: none; "
                                  "steps: a third, as given, three times; share: beta.share as given, 1, 0.9, 0",
                          choices=("none", "steps", "share"))


@dataclass(frozen=True)
class DiscriminatorConfig:
    """The discriminator of AIRL and GAIL."""

    hidden: list[int] = setting([100, 100], "sizes of the hidden layers (ReLU)")
    rate: float = setting(1e-3, "Adam's step in θ; the paper: 3e-4", low=0.0)
    steps: int = setting(20, "updates after each rollout", low=1)
    batch: int = setting(250, "pairs of the demonstrations, and of the policy, in each update", low=1)
    reward_sees_action: bool = setting(True, "AIRL: g(s, a) instead of g(s)")
    min_log_prob: float = setting(-10.0, "AIRL: log π(a|s) counts as no less: a demonstrated action at its limit has a "
                                         "log-probability of minus hundreds under a squashed policy, which no f can balance")


@dataclass(frozen=True)
class CloningConfig:
    """Behaviour cloning."""

    sigma: float = setting(0.3, "σ of the action likelihood", low=1e-3)
    rate: float = setting(1e-3, "Adam's step in θ", low=0.0)
    batch: int = setting(1000, "pairs per gradient step", low=1)
    corrective: float = setting(0.0, "half the pairs are cloned from states displaced by about this many steps' worth of action, "
                                     "with an action that leads back (algorithms/corrective.py); 0: none", low=0.0)
    back_over: float = setting(10.0, "corrective: over so many steps", low=1.0)
    lead: int = setting(0, "clone what was done up to so many steps later, each as often: an arm is late, by its link and its "
                           "inertia", low=0, high=50)
    sensor_errors: float = setting(1.0, "clone also what would have been seen with sensors that are wrong by this many times "
                                        "what the task says they may be; nothing where it says nothing", low=0.0)
    average: float = setting(0.0, "the policy is a running average of θ that keeps this share at each step; 0: the newest θ",
                             low=0.0, high=0.9999)


@dataclass(frozen=True)
class PracticeConfig:
    """Cloning one's own good episodes (`algorithms/practice.py`)."""

    num_envs: int = setting(16, "environments to play in", low=1)
    steps_per_env: int = setting(450, "steps in each of them, in a round", low=1)
    attempts: int = setting(1, "environments in a row that begin the same episodes, each with its own noise and gains: starts "
                               "then count alike, and where no attempt is accepted it is tried again", low=1)
    noise: float = setting(0.1, "σ of the actions while playing, before squashing", low=1e-3)
    spread: bool = setting(False, "the environments play with different noise, from none to twice `noise`, instead of all with "
                                  "the same: what is handed out plays without any")
    gains: float = setting(0.0, "deviation of the logarithm of what each axis of the action is multiplied with, before noise, "
                                "in each environment for a round: other ways, as steady as the policy", low=0.0, high=1.0)
    accept: str = setting("standard", "which own episodes are cloned, by their learned return. standard: those that come up to "
                                      "the trusted demonstrations; better: of a round's two groups the better one",
                          choices=("standard", "better"))
    of_better: float = setting(0.75, "better: the upper share of that group; the rest are the slow ones and those that only look "
                                     "as if they belonged to it", low=0.01, high=1.0)
    standard: float = setting(0.3, "but for the worst of the trusted demonstrations, up to this share of their weight", low=0.0,
                              high=1.0)
    cloning_steps: int = setting(500, "gradient steps after each round", low=1)
    rounds_kept: int = setting(8, "accepted episodes of the last so many rounds are cloned", low=1)
    share_kept: float = setting(0.0, "or of the last so large a share of all rounds, if that is more: the longer it practises, "
                                     "the less a single round can change", low=0.0, high=1.0)
    own_share: float = setting(0.5, "of each batch, from then on", low=0.0, high=1.0)


@dataclass(frozen=True)
class MethodConfig:
    """`config/<method>.yaml`."""

    learner: str = setting("airl", "what gives the policy",
                           choices=("airl", "gail", "bc", "practice", "ic-gail", "t-rex", "d-rex", "ssrr", "dwbc"))
    confidence: str = setting("none", "none: all pairs count the same; before: learned from the demonstrations alone, then "
                                      "frozen; during: Eq. 7 with the policy's own learner, as in the paper; refined: "
                                      "before, then during from there on; classifier: predicted as in 2IWIL; smoothness: "
                                      "the smoothest trajectories, as in RINSE",
                            choices=("none", "before", "during", "refined", "classifier", "smoothness"))
    trusted: float = setting(1.0, "weights β^κ for the policy's learner, κ ≥ 1 such that they count as this share of the "
                                  "pairs (effective sample size); 1: β itself, as in the paper", low=0.01, high=1.0)
    trusted_least: int = setting(0, "and at least as so many demonstrations: of a few recorded ones a small share is too little "
                                    "to clone", low=0)
    heaviest: float = setting(0.0, "no pair's weight is more than so many times what each would have if just the share `trusted` "
                                   "counted, all alike: a single demonstration cannot outweigh the others; 0: no limit", low=0.0)
    one_way: float = setting(0.0, "only the way is cloned that most of the trusted demonstrations go, if there are several; "
                                  "those of one way are linked by steps of at most so many times the usual distance to the "
                                  "nearest one (algorithms/ways.py); 0: all", low=0.0)
    weighting: str = setting("draw", "draw: pairs come into a batch in proportion to their weight; loss: all alike, and the "
                                     "weight stands in the loss (Eq. 11), where a batch is mostly pairs that hardly count. The "
                                     "same on average; with `during` always in the loss", choices=("draw", "loss"))
    mu: float = setting(3e-4, "during: μ of the pseudo-update", low=0.0)
    gate: bool = setting(True, "Theorem 1: take the real update only where it does not raise the outer loss (Eq. 8 with C = 0)")
    gate_after: int = setting(25_000, "during: environment steps (for bc gradient steps) before the gate acts: an untrained "
                                      "discriminator would refuse everything", low=0)
    absorbing: bool = setting(True, "episodes that end early go on in absorbing states, for learner and demonstrators alike; "
                                    "without them ending early or dawdling pays (algorithms/absorbing.py)")
    clone: int = setting(0, "AIRL, GAIL, practice: gradient steps of cloning, with the same weights, before it first acts",
                         low=0)
    critic_first: int = setting(0, "AIRL, GAIL: iterations in which discriminator and critic learn while the policy stays as it "
                                   "is: an untrained critic would ruin a cloned policy", low=0)
    steps: int = setting(200_000, "environment steps; for bc gradient steps", low=1)
    keep: str = setting("last", "which policy the run hands out: last, or best: of all checkpoints the one that did best in "
                                "evaluation episodes of their own", choices=("last", "best"))
    evaluation_episodes: int = setting(40, "best: episodes at each checkpoint", low=1)
    enough: int = setting(0, "best: training ends after so many checkpoints in a row all of whose evaluation episodes succeed; "
                             "0: only after `steps`", low=0)
    checkpoint_every: int = setting(5, "iterations between two checkpoints", low=1)
    beta: ConfidenceConfig = setting(ConfidenceConfig, "how β is held and moved")
    pairs: PairConfig = setting(PairConfig, "confidence that differs within a demonstration (confidence: before)")
    outer: OuterConfig = setting(OuterConfig, "the outer loss")
    before: BeforeConfig = setting(BeforeConfig, "confidence from the demonstrations alone")
    discriminator: DiscriminatorConfig = setting(DiscriminatorConfig, "AIRL and GAIL")
    cloning: CloningConfig = setting(CloningConfig, "behaviour cloning")
    practice: PracticeConfig = setting(PracticeConfig, "cloning what the policy itself did well")
    ppo: PPOConfig = setting(PPOConfig, "the policy of all methods that act while they learn")
    classifier: ClassifierConfig = setting(ClassifierConfig, "2IWIL")
    ic_gail: IcGailConfig = setting(IcGailConfig, "IC-GAIL")
    reward: RewardConfig = setting(RewardConfig, "T-REX, D-REX and SSRR")
    noise: NoiseConfig = setting(NoiseConfig, "D-REX and SSRR")
    smoothness: SmoothnessConfig = setting(SmoothnessConfig, "RINSE")
    dwbc: DwbcConfig = setting(DwbcConfig, "DWBC")

    @property
    def offline(self) -> bool:
        """Learns from the recorded data alone; its steps are gradient steps."""
        return self.learner in ("bc", "dwbc")

    @property
    def needs_ranking(self) -> bool:
        return self.confidence in ("before", "during", "refined", "classifier") or self.learner in ("ic-gail", "t-rex", "dwbc")


def method_config(method: str, task: str = "") -> MethodConfig:
    """The installed settings of a method, with what `<task>-learning.yaml` changes in them for a task."""
    if method not in METHODS:
        raise BadInput(f"expected a method out of {', '.join(METHODS)}, given '{method}'")
    file = find_config(method)
    values, where = read_yaml(file) or {}, str(file)
    overlay = installed_config(f"{task}-learning") if task else None
    if overlay is not None:
        sections = read_yaml(overlay)
        unknown = sorted(set(sections) - {"all", *METHODS})
        if unknown:
            raise ConfigError(f"{overlay}: expected the sections all or a method, given {', '.join(unknown)}")
        values, where = merged(merged(values, sections.get("all", {})), sections.get(method, {})), f"{file}, {overlay}"
    return build(MethodConfig, values, where)
