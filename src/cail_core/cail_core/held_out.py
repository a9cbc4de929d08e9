"""What can be said of a run without an environment: how it does on demonstrations and ranks that it was not shown.

Cross-validation. The demonstrations are dealt into folds; for each, a policy is trained the same way on the others, and what it
does in the states of the trusted ones that were held out is compared with what was done there. The ranks likewise: a confidence
that was learned without the rank of an episode orders it among the others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cail_core import __version__, durable
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.demonstrations import Demonstrations
from cail_core.demos.features import ACTION, STATE
from cail_core.errors import BadInput, listed
from cail_core.policy import PolicyRunner
from cail_core.tasks.base import Array, Task, TaskSpec
from cail_core.tasks.from_dataset import names_of

FILE = "held_out.json"
FOLDS = 5
LEAST_RANKS = 4
"""Different ranks that are needed to hold some out and still have an order among the others."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ActionError:
    """Of one action, in its own unit: the mean error of the policy, and of always giving the mean action."""

    name: str
    unit: str
    error: float
    of_mean: float


@dataclass(frozen=True)
class HeldOut:
    """`relative` has one entry per episode that was held out: its root mean square error, in spreads of the trusted actions."""

    episodes: list[int]
    relative: list[float]
    actions: list[ActionError]
    folds: int
    pairs: tuple[int, int] | None = None
    """Of the pairs of ranked episodes one of which was held out: how many are in the order given, and how many there are."""
    notes: list[str] = field(default_factory=list)

    @property
    def error(self) -> float:
        """Root mean square over the episodes; 1 is no better than always giving the mean action."""
        return float(np.sqrt(np.mean(np.square(self.relative))))

    def interval(self) -> tuple[float, float]:
        """95%, by the bootstrap over episodes."""
        squares, n = np.square(self.relative), len(self.relative)
        means = squares[np.random.default_rng(0).integers(0, n, (2000, n))].mean(axis=1)
        low, high = np.sqrt(np.quantile(means, [0.025, 0.975]))
        return float(low), float(high)


def action_errors(spec: TaskSpec, done: Sequence[Array], shown: Sequence[Array]) -> tuple[list[float], list[ActionError]]:
    """Of each episode, what was done against what was shown, both in [-1, 1]; and of each action in its own unit."""
    target, given = np.concatenate(shown).astype(np.float64), np.concatenate(done).astype(np.float64)
    spread = target.std(axis=0)
    moving = spread > 1e-6
    if not moving.any():
        moving[:], spread[:] = True, 1.0
    relative = [float(np.sqrt((((a - b)[:, moving] / spread[moving]) ** 2).mean())) for a, b in zip(done, shown, strict=True)]
    half = (np.array(spec.action_high) - np.array(spec.action_low)) / 2 if spec.action_low else np.ones(target.shape[1])
    error, of_mean = (half * np.abs(target - other).mean(axis=0) for other in (given, target.mean(axis=0)))
    units = spec.action_units or ("",) * len(spec.action_names)
    columns = zip(spec.action_names, units, error.tolist(), of_mean.tolist(), strict=True)
    return relative, [ActionError(*values) for values in columns]


def of_policy(policy: PolicyRunner, dataset: DemoDataset) -> HeldOut:
    """How a saved policy does in the states of demonstrations that it was not trained on."""
    card = policy.card
    names = [list(names_of(dataset.features[kind], word)) for kind, word in ((STATE, "state"), (ACTION, "action"))]
    faults = [f"its {what} are {', '.join(trained)}; the demonstrations have {', '.join(given)}" for what, trained, given in (
        ("observations", card.observation_names, names[0]), ("actions", card.action_names, names[1])) if trained != given]
    if faults:
        raise BadInput(listed(f"{dataset.root}: not demonstrations of what the policy was trained for", faults))
    spec = TaskSpec(name=card.task, text="", robot_type=card.robot, fps=card.fps, max_steps=1, observation_names=tuple(names[0]),
                    action_names=tuple(names[1]), action_low=tuple(card.action_low), action_high=tuple(card.action_high),
                    action_units=tuple(card.action_units))
    demos = dataset.demonstrations()
    actions = spec.normalised(demos.actions)
    shown, states = ([part[demos.rows(e)] for e in range(demos.episodes)] for part in (actions, demos.states))
    return HeldOut(list(range(demos.episodes)), *action_errors(spec, [policy(part) for part in states], shown), folds=0)


def held_out(task: Task, demos: Demonstrations, method: str, settings: Mapping[str, Any], seed: int, steps: int, trust: Floats,
             advance: Callable[[float], None] = lambda share: None) -> HeldOut:
    """Cross-validation of a method that learns from recordings alone. `trust` is the mean confidence of each episode: those of
    more than average are trusted. `advance` hears which share of the work is done."""
    import torch

    from cail_core.algorithms.registry import get_method
    from cail_core.algorithms.trainers.base import make_learner
    from cail_core.config import build
    from cail_core.policy import Mode, network_of
    from cail_core.tasks.scaling import Scaling

    known_method = get_method(method)
    config = build(known_method.config, dict(settings), "the run's settings")
    if not known_method.offline:
        raise BadInput("expected a run of a method that learns from recordings alone")
    torch.set_num_threads(1)
    scaling = Scaling.of(task.spec, demos)
    scaled = scaling.demos(demos)
    folds = deal(trust, min(FOLDS, demos.episodes))
    episodes: list[int] = []
    done: list[Array] = []
    notes: list[str] = []
    for i, fold in enumerate(folds):
        advance(i / (len(folds) + 1))
        tested = [e for e in fold if trust[e] >= min(1.0, float(trust.max()))]
        kept = [e for e in range(demos.episodes) if e not in set(fold)]
        known = scaled.select(np.array(kept)) if kept else scaled
        if not kept or not tested or (known_method.needs_ranking and len(set(known.rank[known.rank > 0].tolist())) < 2):
            continue
        learner = make_learner(method, scaling.task(task), known, config, seed)
        try:
            while learner.done < steps:
                learner.iterate()
            policy = Mode(network_of(learner.actor))
        finally:
            learner.close()
        episodes += tested
        done += [policy(scaled.states[scaled.rows(e)]) for e in tested]
    advance(len(folds) / (len(folds) + 1))
    if not episodes:
        notes.append(f"{demos.episodes} demonstrations are too few, or too few are ranked, to train without some of them")
    shown = [scaled.actions[scaled.rows(e)] for e in episodes]
    relative, actions = action_errors(task.spec, done, shown) if episodes else ([], [])
    pairs = _ranks_held_out(scaled, config, seed, task.spec.max_steps, notes)
    advance(1.0)
    return HeldOut(episodes, relative, actions, len(folds), pairs, notes)


def deal(trust: Floats, folds: int) -> list[list[int]]:
    """The episodes in folds that are trusted alike."""
    order = np.argsort(-trust, kind="stable").tolist()
    return [sorted(order[i::folds]) for i in range(folds)]


def _ranks_held_out(demos: Demonstrations, config: Any, seed: int, horizon: int, notes: list[str]) -> tuple[int, int] | None:
    import torch

    from cail_core.algorithms.eq7.cail import learn_confidence_offline
    from cail_core.algorithms.eq7.held_out import ordered_pairs
    from cail_core.algorithms.settings import TrustConfig

    if not isinstance(config, TrustConfig):
        return None
    ranks = len(set(demos.rank[demos.rank > 0].tolist()))
    if ranks < LEAST_RANKS:
        notes.append(f"{ranks} different ranks are too few to hold some out; from {LEAST_RANKS} on it is told whether the "
                     "confidence sees the order")
        return None
    right = total = 0
    ranked = demos.ranked
    for i in range(min(FOLDS, len(ranked))):
        out = ranked[i::FOLDS]
        shown = demos.rank.copy()
        shown[out] = 0
        if len(set(shown[shown > 0].tolist())) < 2:
            continue
        learned = learn_confidence_offline(replace(demos, rank=shown), config, torch.Generator().manual_seed(seed), horizon)
        found = ordered_pairs(learned.confidence.per_episode().numpy(), demos.rank, out)
        right, total = right + found[0], total + found[1]
    return (right, total) if total else None


def kept_or_made(run: Path, make: Callable[[], HeldOut], key: Mapping[str, Any]) -> HeldOut:
    """The result from the run's folder where it was worked out before for this very policy and data, else made and kept."""
    weights = hashlib.sha256((run / "policy" / "policy.safetensors").read_bytes()).hexdigest()[:16]
    wanted = {"policy": weights, "cail": __version__, **key}
    try:
        content = json.loads((run / FILE).read_bytes())
        if content["key"] == wanted:
            known = content["held_out"]
            pairs = None if known["pairs"] is None else (int(known["pairs"][0]), int(known["pairs"][1]))
            return HeldOut(**{**known, "actions": [ActionError(**one) for one in known["actions"]], "pairs": pairs})
    except (OSError, ValueError, KeyError, TypeError):
        pass  # as good as none, since it can be made again
    made = make()
    durable.write_bytes(run / FILE, json.dumps({"key": wanted, "held_out": asdict(made)}).encode())
    return made


def describe(found: HeldOut) -> list[str]:
    """The lines that `cail eval` prints."""
    lines = []
    if found.episodes:
        low, high = found.interval()
        what = "trusted demonstrations held out" if found.folds else "demonstrations"
        lines.append(f"action error: {found.error:.2f} of the actions' spread ({len(found.episodes)} {what})")
        lines.append(f"        95% interval: {low:.2f} … {high:.2f}; always giving the mean action: 1.00")
        width = max(len(one.name) for one in found.actions)
        lines += [f"        {one.name:<{width}}  {one.error:.4g}{f' {one.unit}' if one.unit else ''} on average, "
                  f"the mean action {one.of_mean:.4g}" for one in found.actions]
    if found.pairs is not None:
        lines.append(f"ranking: {found.pairs[0]} of {found.pairs[1]} held-out pairs in order "
                     f"({100 * found.pairs[0] / found.pairs[1]:.0f}%, by chance 50%)")
    return lines + [f"note: {note}" for note in found.notes]
