"""The settings that methods are put together from. A method's own config class is in its file and names what it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cail_core.config import setting
from cail_core.rl.ppo import PPOConfig


@dataclass(frozen=True)
class MethodConfig:
    """What the training loop reads of every method (`config/<method>.yaml`)."""

    RENAMED: ClassVar[dict[str, str]] = {
        "trusted": "trusted_fraction", "trusted_least": "min_trusted_demos", "heaviest": "max_weight_ratio",
        "one_way": "dominant_mode_distance", "clone": "bc_warmup_steps", "critic_first": "critic_warmup_iterations",
        "keep": "checkpoint_selection", "enough": "stop_after_perfect_checkpoints", "before": "offline_confidence",
        "practice": "self_imitation", "gate": "offline_confidence.gate, in cail-paper joint_confidence.gate",
        "gate_after": "offline_confidence.gate_after, in cail-paper joint_confidence.gate_after", "mu": "joint_confidence.mu",
        "learner": "decided by the method", "confidence": "decided by the method", "absorbing": "always on",
        "weighting": "always by drawing",
    }

    steps: int = setting(200_000, "environment steps; for methods without an environment gradient steps", low=1)
    checkpoint_every: int = setting(5, "iterations between two checkpoints", low=1)
    checkpoint_selection: str = setting("last", "which policy the run hands out: last, or best: the checkpoint that did best in "
                                                "evaluation episodes of its own", choices=("last", "best"))
    evaluation_episodes: int = setting(40, "best: episodes at each checkpoint", low=1)
    stop_after_perfect_checkpoints: int = setting(0, "best: end training after this many checkpoints in a row all of whose "
                                                     "evaluation episodes succeed. 0 disables it", low=0)


@dataclass(frozen=True)
class CloningConfig:
    """Behaviour cloning."""

    RENAMED: ClassVar[dict[str, str]] = {
        "rate": "learning_rate", "batch": "batch_size", "corrective": "corrective_noise_steps",
        "back_over": "corrective_horizon", "lead": "lead_steps", "average": "ema_decay"}

    sigma: float = setting(0.3, "σ of the action likelihood", low=1e-3)
    learning_rate: float = setting(1e-3, "of Adam", low=0.0)
    batch_size: int = setting(1000, "pairs per gradient step", low=1)
    ema_decay: float = setting(0.0, "the policy is an exponential moving average of the weights with this decay. 0: the newest "
                                    "weights", low=0.0, high=0.9999)
    corrective_noise_steps: float = setting(0.0, "half of the pairs are cloned from states displaced by about this many steps' "
                                                 "worth of action, with an action that leads back (trainers/corrective.py). "
                                                 "0 disables it", low=0.0)
    corrective_horizon: float = setting(10.0, "steps over which the corrective action leads back", low=1.0)
    lead_steps: int = setting(0, "clone actions up to this many steps later, each equally often: compensates the latency of the "
                                 "arm", low=0, high=50)
    sensor_errors: float = setting(1.0, "add observation noise of this multiple of the sensor uncertainties that the task "
                                        "declares; nothing where it declares none", low=0.0)


@dataclass(frozen=True)
class PolicyCloningConfig(CloningConfig):
    """Behaviour cloning that makes the policy itself."""

    hidden: tuple[int, ...] = setting((64, 64), "sizes of the policy's hidden layers")


@dataclass(frozen=True)
class WeightedConfig(MethodConfig):
    """Methods in which demonstration pairs carry weights."""

    dominant_mode_distance: float = setting(0.0, "learn only from the dominant mode of the trusted demonstrations; two of them "
                                                 "belong to one mode if they are closer than this multiple of the median "
                                                 "nearest-neighbour distance (trainers/demo_modes.py). 0: from all", low=0.0)


@dataclass(frozen=True)
class OfflineConfig(WeightedConfig):
    """Methods that learn from the recorded data alone."""

    RENAMED: ClassVar[dict[str, str]] = MethodConfig.RENAMED | {
        "ppo": "cloning.hidden for hidden, outer.gamma for gamma; nothing else of it was read"}

    steps: int = setting(1000, "gradient steps", low=1)
    cloning: PolicyCloningConfig = setting(PolicyCloningConfig, "behaviour cloning")


@dataclass(frozen=True)
class OnlineConfig(WeightedConfig):
    """Methods that improve a policy by PPO on a learned reward."""

    steps: int = setting(200_000, "environment steps", low=1)
    bc_warmup_steps: int = setting(0, "gradient steps of behaviour cloning, with the same weights, before the policy first acts",
                                   low=0)
    critic_warmup_iterations: int = setting(0, "iterations in which reward and critic learn while the policy stays as it is: an "
                                               "untrained critic would ruin a cloned policy", low=0)
    cloning: CloningConfig = setting(CloningConfig, "behaviour cloning, where bc_warmup_steps asks for it")
    ppo: PPOConfig = setting(PPOConfig, "the policy's learner")


@dataclass(frozen=True)
class DiscriminatorConfig:
    """The discriminator of GAIL."""

    RENAMED: ClassVar[dict[str, str]] = {"rate": "learning_rate", "batch": "batch_size", "steps": "updates"}

    hidden: list[int] = setting([100, 100], "sizes of the hidden layers (ReLU)")
    learning_rate: float = setting(1e-3, "of Adam; the paper: 3e-4", low=0.0)
    updates: int = setting(20, "gradient steps after each rollout", low=1)
    batch_size: int = setting(250, "pairs of the demonstrations, and of the policy, in each update", low=1)


@dataclass(frozen=True)
class AirlDiscriminatorConfig(DiscriminatorConfig):
    """The discriminator of AIRL."""

    reward_sees_action: bool = setting(True, "g(s, a) instead of g(s)")
    min_log_prob: float = setting(-10.0, "lower bound on log π(a|s): a demonstrated action at its limit has a log-probability of "
                                         "minus hundreds under a squashed policy, which no f can balance")


@dataclass(frozen=True)
class GailMethodConfig(OnlineConfig):
    """Methods on GAIL's discriminator."""

    discriminator: DiscriminatorConfig = setting(DiscriminatorConfig, "GAIL's discriminator")


@dataclass(frozen=True)
class AirlMethodConfig(OnlineConfig):
    """Methods on AIRL's discriminator."""

    discriminator: AirlDiscriminatorConfig = setting(AirlDiscriminatorConfig, "AIRL's discriminator")


@dataclass(frozen=True)
class ConfidenceConfig:
    """How β is moved. The paper: `additive`, α = 0.1, no sharing, no scale."""

    RENAMED: ClassVar[dict[str, str]] = {"model": "always one free number per pair", "hidden": "without a network not needed"}

    update: str = setting("multiplicative", "additive: β − αg cut at 0 (Eq. 5); multiplicative: β·exp(−αg), never quite 0",
                          choices=("additive", "multiplicative"))
    alpha: float = setting(0.02, "α, the step of Eq. 5", low=0.0)
    share: float = setting(1.0, "how much of a pair's gradient is its trajectory's mean: 0 the pair's own, 1 all alike",
                           low=0.0, high=1.0)
    scale: str = setting("peak", "none: the raw gradient; peak: divided by its largest root mean square so far, so that a "
                                 "vanishing gradient stays small instead of being blown up into noise", choices=("none", "peak"))


@dataclass(frozen=True)
class OuterConfig:
    """L_out, Eq. 13. The paper: `rk`, `sum`, temperature 1."""

    loss: str = setting("logistic", "rk: Eq. 14; logistic: Bradley–Terry", choices=("rk", "logistic"))
    returns: str = setting("mean", "sum: Eq. 13; mean: per step, so that a long trajectory has no advantage",
                           choices=("sum", "mean"))
    gamma: float = setting(0.995, "discount γ of the learned returns", low=0.0, high=1.0)
    temperature: float = setting(0.2, "learned returns are divided by it; a smaller one is content with smaller differences",
                                 low=1e-6)


@dataclass(frozen=True)
class OfflineConfidenceConfig:
    """Learning confidence from the demonstrations alone: Eq. 11 with all demonstrations in the place of the policy's pairs."""

    RENAMED: ClassVar[dict[str, str]] = {"rate": "learning_rate", "batch": "batch_size", "select": "`cail tune`"}

    steps: int = setting(300, "bi-level steps", low=1)
    batch_size: int = setting(500, "pairs per step, and as many again for the other side of the discriminator", low=1)
    hidden: list[int] = setting([100, 100], "sizes of the discriminator's hidden layers (ReLU)")
    mu: float = setting(0.1, "μ of the pseudo-update", low=0.0)
    learning_rate: float = setting(1e-3, "of Adam, in the real update", low=0.0)
    gate: bool = setting(True, "Theorem 1: take the real update only where it does not raise the outer loss (Eq. 8 with C = 0)")
    gate_after: int = setting(100, "steps before the gate acts: an untrained discriminator would refuse everything", low=0)


@dataclass(frozen=True)
class JointConfidenceConfig:
    """Learning confidence along with the policy: Eq. 7 with the policy's own learner, as in the paper."""

    mu: float = setting(3e-4, "μ of the pseudo-update", low=0.0)
    gate: bool = setting(True, "Theorem 1: take the real update only where it does not raise the outer loss (Eq. 8 with C = 0)")
    gate_after: int = setting(25_000, "steps before the gate acts: an untrained discriminator would refuse everything", low=0)


@dataclass(frozen=True)
class TrustConfig:
    """Methods whose confidence is learned from the demonstrations alone, before the policy, and then frozen."""

    trusted_fraction: float = setting(0.1, "the policy's learner weights by β^κ, κ ≥ 1 such that the weights count as this "
                                           "fraction of the pairs (effective sample size). 1: β itself", low=0.01, high=1.0)
    min_trusted_demos: int = setting(0, "and at least as this many demonstrations: a small fraction of a few recorded ones is "
                                        "too little to clone", low=0)
    max_weight_ratio: float = setting(0.0, "upper bound on a pair's weight, as a multiple of the uniform weight over the trusted "
                                           "fraction: no single demonstration outweighs the others. 0 disables it", low=0.0)
    beta: ConfidenceConfig = setting(ConfidenceConfig, "how β is moved")
    outer: OuterConfig = setting(OuterConfig, "the outer loss")
    offline_confidence: OfflineConfidenceConfig = setting(OfflineConfidenceConfig, "confidence from the demonstrations alone")


@dataclass(frozen=True)
class PairConfig:
    """How the confidence differs within a demonstration (`eq7/pair_confidence.py`); off unless there are `rounds`."""

    rounds: int = setting(0, "how often the agreement with the trusted is worked out, each time with the confidence found "
                             "before. 0: all pairs of a demonstration have the same confidence", low=0, high=10)
    strength: float = setting(1.0, "t: what the agreement counts beside the ranks", low=0.0)
    trusted_fraction: float = setting(0.0, "in place of the method's `trusted_fraction`. 0: that one", low=0.0, high=1.0)
    reference_fraction: float = setting(0.3, "fraction of the pairs, the most trusted ones, that say what is done in a place",
                                        low=0.01, high=1.0)
    window: int = setting(7, "steps over which the agreement is averaged", low=1)
    folds: int = setting(5, "parts into which the demonstrations are split; each is judged by the others", low=2)
    components: int = setting(4, "Gaussians of the mixture: so many different actions can be right in a place", low=1)
    min_vote: float = setting(0.1, "what a frame that hardly moves the state counts at least, beside a usual one. 1: all count "
                                   "alike", low=0.0, high=1.0)
    sigma: float = setting(0.3, "σ of each Gaussian, in units of the action", low=1e-3)
    hidden: int = setting(64, "units in each of two hidden layers", low=1)
    steps: int = setting(600, "gradient steps of the mixtures, in each round", low=1)
    batch_size: int = setting(256, "pairs in each of them", low=1)
    learning_rate: float = setting(2e-3, "of Adam at first; it falls to a twentieth", low=0.0)


@dataclass(frozen=True)
class PairTrustConfig(TrustConfig):
    """Those of them in which single pairs of a demonstration may have a confidence of their own."""

    pairs: PairConfig = setting(PairConfig, "confidence that differs within a demonstration")


@dataclass(frozen=True)
class RewardConfig:
    """The reward networks of T-REX, D-REX and SSRR."""

    RENAMED: ClassVar[dict[str, str]] = {"rate": "learning_rate", "batch": "batch_size"}

    hidden: list[int] = setting([256, 256], "sizes of the hidden layers (ReLU)")
    nets: int = setting(1, "networks whose mean is the reward", low=1)
    learning_rate: float = setting(1e-4, "of Adam", low=0.0)
    steps: int = setting(1000, "gradient steps", low=1)
    batch_size: int = setting(32, "pairs of snippets in each step", low=1)
    snippet: int = setting(20, "steps in a snippet, or the shortest trajectory's", low=1)


@dataclass(frozen=True)
class NoiseConfig:
    """The rollouts with growing noise of D-REX and SSRR."""

    levels: int = setting(20, "noise levels from 0 to 1: the fraction of random actions", low=2)
    rollouts: int = setting(5, "episodes at each level", low=1)
