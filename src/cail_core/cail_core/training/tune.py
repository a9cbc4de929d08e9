"""Settings of the confidence found by Optuna, judged by rankings that were held out; true returns never take part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from cail_core import durable
from cail_core.algorithms.eq7.held_out import FOLDS, held_out_accuracy
from cail_core.algorithms.settings import TrustConfig
from cail_core.config import merged
from cail_core.demos.demonstrations import Demonstrations
from cail_core.errors import BadInput, MissingDependency, how_to_add
from cail_core.layers import write_yaml

RANGES = {"alpha": (1e-3, 1.0), "mu": (1e-3, 1.0), "learning_rate": (1e-4, 1e-2)}
"""α of β, μ of the pseudo-update and Adam's step, each searched on a logarithmic scale."""


class Found(NamedTuple):
    """The share of held-out pairs in the right order, with the settings as they were and with the best."""

    config: Any
    before: float
    after: float
    changes: dict[str, Any]
    """What differs from the settings as they were, as a file for `--config` has it; empty where nothing was better."""


def with_values(config: TrustConfig, alpha: float, mu: float, learning_rate: float) -> TrustConfig:
    return replace(config, beta=replace(config.beta, alpha=alpha),
                   offline_confidence=replace(config.offline_confidence, mu=mu, learning_rate=learning_rate))


@dataclass(frozen=True)
class Judge:
    """How good settings are: the share of held-out pairs that a confidence learned with them puts in the right order."""

    demos: Demonstrations
    config: TrustConfig
    seed: int
    horizon: int

    def __call__(self, values: dict[str, float]) -> float:
        torch.set_num_threads(1)  # also where it is called in a worker of another machine
        folds = np.array_split(np.random.default_rng(self.seed).permutation(self.demos.ranked), FOLDS)
        generator = torch.Generator().manual_seed(self.seed)  # the same for all: they differ in their settings alone
        return held_out_accuracy(self.demos, with_values(self.config, **values), generator, self.horizon, folds)


Judges = Callable[[Judge, Sequence[dict[str, float]]], Sequence[float]]
"""Judges several settings; their order is kept."""


def here(judge: Judge, settings: Sequence[dict[str, float]]) -> Sequence[float]:
    return [judge(values) for values in settings]


def tune(demos: Demonstrations, config: object, trials: int, seed: int, horizon: int, *, at_once: int = 1,
         judges: Judges = here) -> Found:
    """The best of `trials` settings; the first is the one given, and it stays where nothing is better.

    `at_once` are drawn before the first of them is judged. The outcome depends on that number, not on who judges.
    """
    try:
        import optuna
    except ImportError:
        raise MissingDependency(f"tuning needs Optuna; {how_to_add('tune')}") from None
    if not isinstance(config, TrustConfig):
        raise BadInput("expected a method that learns its confidence from the demonstrations (cail, cail-bc, cail-gail, …)")
    ranks = len(set(demos.rank[demos.rank > 0].tolist()))
    if ranks < 4:
        raise BadInput(f"expected at least 4 episodes of different rank, so that some can be held out, given {ranks}; "
                       "`cail demos rank` ranks more")
    if trials < 1:
        raise BadInput(f"expected at least 1 trial, given {trials}")
    if at_once < 1:
        raise BadInput(f"expected at least 1 trial at once, given {at_once}")
    judge = Judge(demos, config, seed, horizon)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    given = {"alpha": config.beta.alpha, "mu": config.offline_confidence.mu,
             "learning_rate": config.offline_confidence.learning_rate}
    (before,) = judges(judge, [given])
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    distributions: dict[str, Any] = {name: optuna.distributions.FloatDistribution(low, high, log=True)
                                     for name, (low, high) in RANGES.items()}
    for done in range(0, trials, at_once):
        drawn = [study.ask(distributions) for _ in range(min(at_once, trials - done))]
        for trial, score in zip(drawn, judges(judge, [trial.params for trial in drawn]), strict=True):
            study.tell(trial, score)
    if study.best_value <= before:
        return Found(config, before, before, {})
    best = study.best_params
    changes = {"beta": {"alpha": best["alpha"]}, "offline_confidence": {"mu": best["mu"], "learning_rate": best["learning_rate"]}}
    return Found(with_values(config, **best), before, study.best_value, changes)


def write_config(found: Found, out: Path, head: str, given: Mapping[str, Any]) -> None:
    """A file for `cail train --config`: what was found, over what was `given` beside method and task, and nothing else."""
    values = dict(merged(given, found.changes))
    durable.write_bytes(out, write_yaml(values, head if found.changes else f"{head}: nothing better than what is there"))
