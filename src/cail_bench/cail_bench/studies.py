"""The paper's tables and figures as cells, at three budgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from cail_bench import paper_numbers
from cail_bench.cells import EQUATION_7, ORACLE, UNTRAINED, Cell
from cail_bench.paper_numbers import Number
from cail_bench.told import TOLD
from cail_core.algorithms.method import read_part
from cail_core.tasks.base import get_task

COMPARED = ("cail", "2iwil", "ic-gail", "airl", "gail", "t-rex", "d-rex", "ssrr")
"""The methods of the paper's tables."""
MORE = ("cail-hybrid", "cail-bc", "cail-paper", "bc", "rinse", "dwbc")
LABELLED = ("cail", "2iwil", "ic-gail", "t-rex")
"""Those that use the ranking."""
OFFLINE = ("bc", "cail-bc", "rinse", "dwbc")
"""Those that learn from what was recorded alone."""


@dataclass(frozen=True)
class Environment:
    """A task as the studies use it: the demonstrators of the paper's mix, best first, and how long to train."""

    task: str
    people: tuple[str, ...]
    steps: int
    cloning_steps: int = 1000
    practice_steps: int = 100_000
    shares: tuple[float, ...] = ()
    choose: str = "spread"
    """Which demonstrations are ranked (`Cell.choose`)."""
    suboptimal: tuple[str, ...] = ()
    """All who are not the best, best first; where empty, those of the paper's mix."""
    methods: tuple[str, ...] = ()
    """The only methods that are run in it; where empty, all."""

    def runs(self, methods: Sequence[str]) -> list[str]:
        return [method for method in methods if not self.methods or method in self.methods]

    def paper_mix(self) -> dict[str, float]:
        return dict(zip(self.people, self.shares or (1 / len(self.people),) * len(self.people), strict=True))

    def without_best(self) -> dict[str, float]:
        others = {name: share for name, share in self.paper_mix().items() if name != self.people[0]}
        return {name: share / sum(others.values()) for name, share in others.items()}


PANDA_PEOPLE = ("near-optimal", "small-detour", "large-detour", "hesitant", "wrong-side", "lost", "dropping", "colliding")
PANDA_SHARES = (0.2, 0.2, 0.15, 0.1, 0.1, 0.1, 0.05, 0.1)
POINTMASS = Environment("pointmass", ("expert", "good", "fair", "poor", "hopeless"), 100_000)
REACHER = Environment("reacher", ("optimal", "early-9", "early-10", "early-42", "early-80"), 200_000,
                      suboptimal=("early-9", "early-10", "early-42", "early-72", "early-78", "early-80"))
ANT = Environment("ant", ("optimal", "early-3700", "early-2900", "early-2100", "early-1000"), 200_000, 2000)
PANDA = Environment("panda", PANDA_PEOPLE, 57_600, 8000, 230_400, PANDA_SHARES, "unalike")
PANDA_HARD = replace(PANDA, shares=(0.06, 0.06, 0.06, 0.06, 0.05, 0.31, 0.15, 0.25))
UR5E = Environment("ur5e", PANDA_PEOPLE, 57_600, 8000, 230_400, PANDA_SHARES, "unalike")


@dataclass(frozen=True)
class Budget:
    """How much of a study is run: seeds, environments, and the share of their steps."""

    seeds: int
    environments: tuple[Environment, ...]
    steps: float = 1.0
    episodes: int = 200
    evaluation_episodes: int = 100
    few: bool = False
    """Only as many methods and settings as show that the study works."""
    every: int = 1
    """Of the values that a study varies, every so-manieth."""
    compared: tuple[str, ...] = COMPARED
    """The methods of studies that vary the demonstrations."""
    changes: Mapping[str, Any] = field(default_factory=dict)


TINY: dict[str, Any] = {
    "ppo.rollout_steps": 500, "ppo.num_envs": 10, "ppo.epochs": 1,
    "discriminator.updates": 2, "discriminator.batch_size": 100,
    "offline_confidence.steps": 5, "offline_confidence.batch_size": 100, "cloning.batch_size": 50, "pairs.steps": 5,
    "classifier.steps": 5, "reward.steps": 5, "reward.nets": 1,
    "self_imitation.num_envs": 10, "self_imitation.steps_per_env": 50, "self_imitation.cloning_steps": 20,
    "noise.levels": 3, "noise.rollouts": 2, "noise.cloning_steps": 50, "noise.airl_steps": 500,
}
"""Settings with which a cell takes a moment and learns nothing."""
SMOKE = Budget(2, (POINTMASS,), 0.01, episodes=20, evaluation_episodes=10, few=True, changes=TINY)
SHORT = Budget(3, (POINTMASS, REACHER, replace(ANT, methods=("cail", "airl", "cail-bc", "bc", ORACLE)),
                   replace(PANDA, methods=("cail-hybrid", "cail-bc", "bc", ORACLE))), every=2,
               compared=("cail", "2iwil", "airl", "gail"))
FULL = Budget(10, (POINTMASS, REACHER, ANT, PANDA, UR5E))
BUDGETS = {"smoke": SMOKE, "short": SHORT, "full": FULL}


def cell(budget: Budget, env: Environment, method: str, seed: int, *, mix: dict[str, float] | None = None, at: str = "",
         ranked: float = 0.05, changes: Mapping[str, Any] | None = None) -> Cell:
    steps = env.cloning_steps if method in OFFLINE else env.practice_steps if method == "cail-hybrid" else env.steps
    return Cell(env.task, mix or env.paper_mix(), method, seed, max(1, round(budget.steps * steps)), at, budget.episodes, ranked,
                env.choose, budget.evaluation_episodes,
                {**({} if method in UNTRAINED else read_part(method, budget.changes)), **(changes or {})})


Cells = list[Cell]
T = TypeVar("T")
Make = Callable[[Budget, int], Cells]


def _seeds(budget: Budget, first: int) -> range:
    return range(first, first + budget.seeds)


def _where(budget: Budget, *wanted: Environment) -> Sequence[Environment]:
    """The budget's environments out of those wanted; a smoke run takes the point mass in their place."""
    tasks = {env.task for env in wanted}
    return [env for env in budget.environments if env.task in tasks] or budget.environments[:1]


def _varied(budget: Budget, values: Sequence[T], few: Sequence[T]) -> Sequence[T]:
    """The values of a setting that a study varies."""
    return few if budget.few else values[:: budget.every]


def table1(budget: Budget, first: int) -> Cells:
    return [cell(budget, env, method, seed, at=env.task) for env in budget.environments
            for seed in _seeds(budget, first) for method in env.runs((*COMPARED, *MORE, ORACLE))]


def success(budget: Budget, first: int) -> Cells:
    methods = COMPARED[:3] if budget.few else COMPARED + MORE
    return [cell(budget, env, method, seed, at=env.task) for env in _where(budget, POINTMASS, PANDA, UR5E)
            for seed in _seeds(budget, first) for method in env.runs(methods)]


def panda(budget: Budget, first: int) -> Cells:
    """The whole task, pick-up included, on two mixes of demonstrators; five seeds whatever the budget but for smoke."""
    if budget.few:
        return success(budget, first)
    return [cell(budget, env, method, seed, at=mix)
            for mix, env in (("paper", PANDA), ("hard", PANDA_HARD)) for seed in range(first, first + 5)
            for method in ("cail-hybrid", "cail-bc", "bc", "cail", "airl", "gail")]


def panda_parts(budget: Budget, first: int) -> Cells:
    """What a clone's success on the Panda is made of: the confidence (`cail-bc`; `bc` has none), corrective labels, one way."""
    mixes = {"": budget.environments[0]} if budget.few else {"paper ": PANDA, "hard ": PANDA_HARD}
    parts = {"neither": (0.0, 0.0), "corrective": (1.5, 0.0), "one way": (0.0, 1.75), "both": (1.5, 1.75)}
    return [cell(budget, env, method, seed, at=mix + part,
                 changes={"cloning.corrective_noise_steps": corrective, "dominant_mode_distance": one_way})
            for mix, env in mixes.items() for part, (corrective, one_way) in parts.items()
            for seed in _seeds(budget, first) for method in ("cail-bc", "bc")]


def label_ratio(budget: Budget, first: int) -> Cells:
    ratios = _varied(budget, (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0), (0.1, 1.0))
    methods = LABELLED[:2] if budget.few else LABELLED
    return [cell(budget, env, method, seed, at=f"{100 * ratio:g}%", ranked=ratio) for env in _where(budget, REACHER)
            for ratio in ratios for seed in _seeds(budget, first) for method in methods]


def optimality(budget: Budget, first: int) -> Cells:
    """A fifth of the demonstrations is optimal, all others come from one other policy."""
    methods = budget.compared[:1] if budget.few else budget.compared
    made = []
    for env in _where(budget, REACHER):
        others = _varied(budget, env.suboptimal or env.people[1:], env.people[-1:])
        made += [cell(budget, env, method, seed, at=other, mix={env.people[0]: 0.2, other: 0.8})
                 for other in others for seed in _seeds(budget, first) for method in methods]
    return made


def ratio(budget: Budget, first: int) -> Cells:
    """The share of optimal demonstrations varies, the others share the rest."""
    methods = budget.compared[:1] if budget.few else budget.compared
    shares = _varied(budget, (0.05, 0.1, 0.2, 0.4, 0.8), (0.1, 0.5))
    made = []
    for env in _where(budget, REACHER):
        for share in shares:
            mix = {env.people[0]: share, **{name: (1 - share) * part for name, part in env.without_best().items()}}
            made += [cell(budget, env, method, seed, at=f"{100 * share:g}%", mix=mix)
                     for seed in _seeds(budget, first) for method in methods]
    return made


def suboptimal(budget: Budget, first: int) -> Cells:
    """No optimal demonstration at all; the oracle is then the best that demonstrated."""
    methods = ("cail", "airl", ORACLE) if budget.few else (*budget.compared, "cail-bc", "bc", ORACLE)
    return [cell(budget, env, method, seed, at=env.task, mix=env.without_best()) for env in _where(budget, REACHER, ANT)
            for seed in _seeds(budget, first) for method in env.runs(methods)]


def confidence(budget: Budget, first: int) -> Cells:
    """`cail-bc` has the confidences of `cail`, where that is too long to run."""
    return [cell(budget, env, method, seed, at=env.task) for env in budget.environments for seed in _seeds(budget, first)
            for method in env.runs(("cail", "cail-paper", "2iwil")) or ["cail-bc"]]


def alpha_mu(budget: Budget, first: int) -> Cells:
    """The paper's own algorithm: α of the confidence, μ of the pseudo-update."""
    alphas = _varied(budget, (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0), (0.1, 10.0))
    mus = _varied(budget, (3e-6, 3e-5, 3e-4, 3e-3, 3e-2), (3e-4,))
    settings = [(f"alpha={alpha:g}", {"beta.alpha": alpha}) for alpha in alphas]
    settings += [(f"mu={mu:g}", {"joint_confidence.mu": mu}) for mu in mus]
    return [cell(budget, env, "cail-paper", seed, at=at, changes=changes) for env in _where(budget, REACHER, ANT)
            for at, changes in settings for seed in _seeds(budget, first) if env.runs(["cail-paper"])]


def theory(budget: Budget, first: int) -> Cells:
    """The outer loss along the training with the gate of Theorem 1 and without it; and Eq. 7 for T steps as Theorem 2 has it."""
    env, seeds = budget.environments[0], _seeds(budget, first)
    lengths = (5, 20) if budget.few else (50, 200, 800, 3200)
    trained = [cell(budget, env, "cail-paper", seed, at="gate" if gate else "no gate",
                    changes={"joint_confidence.gate": gate, "joint_confidence.gate_after": 0})
               for gate in (True, False) for seed in seeds]
    return trained + [replace(cell(budget, env, EQUATION_7, seed, at=f"{loss} T={steps}", changes={"loss": loss}), steps=steps)
                      for loss in ("rk", "logistic") for steps in lengths for seed in seeds]


def lapses(budget: Budget, first: int) -> Cells:
    """Demonstrations of which only a part is bad: confidence shared by a demonstration's pairs, or each pair's own, with the same
    or a larger trusted share. Five seeds of the point mass and three of the Panda, whatever the budget but for smoke."""
    variants: dict[str, dict[str, Any]] = {"shared": {"pairs.rounds": 0}, "pairs": {"pairs.rounds": 2},
                                           "pairs 0.3": {"pairs.rounds": 2, "pairs.trusted_fraction": 0.3}}
    mixes = {"pointmass": ("lapses", "two-ways", "paper"), "panda": ("lapses", "lapses-equal", "lapses-two-ways")}
    made = []
    for env in _where(budget, POINTMASS, PANDA):
        task_mixes = get_task(env.task).mixes()
        for name in mixes[env.task][:1] if budget.few else mixes[env.task]:
            mix = {who.name: share for who, share in task_mixes[name]}
            for seed in _seeds(budget, first) if budget.few else range(first, first + (5 if env.task == "pointmass" else 3)):
                at = f"{env.task} {name}"
                made += [cell(budget, env, "cail-bc", seed, at=f"{at} {what}", mix=mix, changes=changes)
                         for what, changes in variants.items()]
                made += [replace(cell(budget, env, "cail-bc", seed, at=f"{at} shared", mix=mix), method=method)
                         for method in TOLD]
    return made


@dataclass(frozen=True)
class Study:
    """A table or figure of the paper."""

    text: str
    make: Make
    value: str = "return"
    figures: tuple[str, ...] = ("bars",)
    published: Mapping[str, Mapping[str, Number]] = field(default_factory=dict)
    """The paper's numbers by column (`at`) and method."""
    ours: tuple[str, ...] = ("cail", "cail-hybrid", "cail-bc")
    """In each column the first of these that was run is held against all others."""


STUDIES = {
    "table1": Study("converged return of all methods", table1, figures=("curves", "bars"), published=paper_numbers.RETURNS),
    "success": Study("share of the trials that succeed", success, "success", published=paper_numbers.SUCCESS),
    "panda": Study("success on the whole of pick-place-avoid, by mix", panda, "success", ours=("cail-hybrid",)),
    "panda-parts": Study("success of a clone on the Panda, by what it is made of", panda_parts, "success", ours=("cail-bc",)),
    "lapses": Study("success where only a part of a demonstration is bad", lapses, "success", ours=("cail-bc",)),
    "label-ratio": Study("return by the share of ranked demonstrations", label_ratio, figures=("lines",),
                         published=paper_numbers.LABEL_RATIO),
    "optimality": Study("return by the quality of the suboptimal demonstrations", optimality, figures=("lines",)),
    "ratio": Study("return by the share of optimal demonstrations", ratio, figures=("lines",)),
    "suboptimal": Study("return without any optimal demonstration", suboptimal, figures=("curves", "bars")),
    "confidence": Study("mean confidence by demonstrator", confidence, "spearman", figures=("confidence",)),
    "alpha-mu": Study("sensitivity to α and μ", alpha_mu, figures=("lines",)),
    "theory": Study("the outer loss along training: Theorems 1 and 2", theory, "outer_last", figures=("outer", "rate")),
}
