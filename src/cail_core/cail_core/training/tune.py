"""Settings of the confidence found by Optuna, judged by rankings that were held out; true returns never take part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml

from cail_core import durable
from cail_core.algorithms.eq7.selection import FOLDS, held_out_accuracy
from cail_core.algorithms.method import MethodConfig
from cail_core.config import to_dict
from cail_core.demos.demonstrations import Demonstrations
from cail_core.errors import BadInput, MissingDependency, how_to_add

RANGES = {"alpha": (1e-3, 1.0), "mu": (1e-3, 1.0), "rate": (1e-4, 1e-2)}
"""α of β, μ of the pseudo-update and Adam's step, each searched on a logarithmic scale."""


class Found(NamedTuple):
    """The share of held-out pairs in the right order, with the settings as they were and with the best."""

    config: MethodConfig
    before: float
    after: float


def with_values(config: MethodConfig, alpha: float, mu: float, rate: float) -> MethodConfig:
    return replace(config, beta=replace(config.beta, alpha=alpha), before=replace(config.before, mu=mu, rate=rate))


@dataclass(frozen=True)
class Judge:
    """How good settings are: the share of held-out pairs that a confidence learned with them puts in the right order."""

    demos: Demonstrations
    config: MethodConfig
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


def tune(demos: Demonstrations, config: MethodConfig, trials: int, seed: int, horizon: int, *, at_once: int = 1,
         judges: Judges = here) -> Found:
    """The best of `trials` settings; the first is the one given, and it stays where nothing is better.

    `at_once` are drawn before the first of them is judged. The outcome depends on that number, not on who judges.
    """
    try:
        import optuna
    except ImportError:
        raise MissingDependency(f"tuning needs Optuna; {how_to_add('tune')}") from None
    if config.confidence not in ("before", "refined"):
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
    given = {"alpha": config.beta.alpha, "mu": config.before.mu, "rate": config.before.rate}
    (before,) = judges(judge, [given])
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    distributions: dict[str, Any] = {name: optuna.distributions.FloatDistribution(low, high, log=True)
                                     for name, (low, high) in RANGES.items()}
    for done in range(0, trials, at_once):
        drawn = [study.ask(distributions) for _ in range(min(at_once, trials - done))]
        for trial, score in zip(drawn, judges(judge, [trial.params for trial in drawn]), strict=True):
            study.tell(trial, score)
    if study.best_value <= before:
        return Found(config, before, before)
    return Found(with_values(config, **study.best_params), before, study.best_value)


def write_config(config: MethodConfig, out: Path) -> None:
    """The settings as a file for `cail train --config`."""
    text = yaml.safe_dump(_plain(to_dict(config)), sort_keys=False, allow_unicode=True)
    durable.write_bytes(out, text.encode())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
