"""What each departure from the paper is worth: `cail` and `cail-bc` with one setting at a time put back or changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from cail_bench.methods import Table, run_table
from cail_core.algorithms.method import MethodConfig, method_config

CONFIDENCE: dict[str, dict[str, Any]] = {
    "beta.model network": {"beta.model": "network"},
    "beta.share 0": {"beta.share": 0.0},
    "beta.share 0.9": {"beta.share": 0.9},
    "beta.update additive": {"beta.update": "additive"},
    "beta.scale none": {"beta.scale": "none", "beta.alpha": 0.1},
    "beta.alpha 0.1": {"beta.alpha": 0.1},
    "before.mu 3e-4": {"before.mu": 3e-4},
    "gate false": {"gate": False},
    "outer.loss rk": {"outer.loss": "rk"},
    "outer.returns sum": {"outer.returns": "sum"},
    "outer.temperature 1": {"outer.temperature": 1.0},
    "confidence during": {"confidence": "during"},
    "before.select steps": {"before.select": "steps"},
    "before.select share": {"before.select": "share"},
    "weighting loss": {"weighting": "loss"},
    "trusted 0.05": {"trusted": 0.05},
    "trusted 0.2": {"trusted": 0.2},
    "trusted 1": {"trusted": 1.0},
}
"""Measured with cloning, which needs no environment."""

ONLINE: dict[str, dict[str, Any]] = {
    "confidence during": {"confidence": "during"},
    "confidence refined": {"confidence": "refined"},
    "trusted 0.05": {"trusted": 0.05},
    "trusted 0.2": {"trusted": 0.2},
    "trusted 1": {"trusted": 1.0},
    "weighting loss": {"weighting": "loss"},
    "reward_sees_action false": {"discriminator.reward_sees_action": False},
    "min_log_prob none": {"discriminator.min_log_prob": -1e9},
    "discriminator.rate 3e-4": {"discriminator.rate": 3e-4},
    "discriminator.batch 1000": {"discriminator.batch": 1000},
    "ppo 3e-4, minibatch 500": {"ppo.learning_rate": 3e-4, "ppo.minibatch": 500},
    "time limit terminal": {"ppo.timelimit_is_terminal": True},
}
"""Measured with AIRL. Absorbing states are not here: no episode of the point mass or of Reacher ends early."""

VARIANTS = {
    name: (method, changes)
    for method, group in (("cail-bc", CONFIDENCE), ("cail", ONLINE))
    for name, changes in ((method, {}), *((f"{method}, {what}", given) for what, given in group.items()))
}
BUDGETS = {"smoke": (1, 5000, 50), "short": (2, 100_000, 1000), "full": (5, 100_000, 1000)}
"""Seeds, environment steps of the adversarial variants, gradient steps of the cloning ones."""


def changed(config: MethodConfig, changes: dict[str, Any]) -> MethodConfig:
    """`config` with some settings, named as in its YAML file ("beta.share"), put to other values."""
    for path, value in changes.items():
        group, _, name = path.rpartition(".")
        config = replace(config, **({group: replace(getattr(config, group), **{name: value})} if group else {name: value}))
    return config


def variant(name: str) -> MethodConfig:
    method, changes = VARIANTS[name]
    return changed(method_config(method), changes)


def run(budget: str, out: Path, seed: int) -> Path:
    """The variants on the point mass, on `seed`, `seed` + 1, …"""
    seeds, steps, cloning_steps = BUDGETS[budget]
    table = Table("ablation", "pointmass", "paper", tuple(VARIANTS), steps, cloning_steps)
    return run_table(table, range(seed, seed + seeds), out, settings=variant)
