"""What each departure from the paper is worth: `cail` and `cail-bc` with one setting at a time put back or changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cail_bench.methods import Table, run_table
from cail_core.algorithms.method import method_config
from cail_core.algorithms.settings import MethodConfig
from cail_core.config import to_dict

CONFIDENCE: dict[str, dict[str, Any]] = {
    "beta.share 0": {"beta.share": 0.0},
    "beta.share 0.9": {"beta.share": 0.9},
    "beta.update additive": {"beta.update": "additive"},
    "beta.scale none": {"beta.scale": "none", "beta.alpha": 0.1},
    "beta.alpha 0.1": {"beta.alpha": 0.1},
    "offline_confidence.mu 3e-4": {"offline_confidence.mu": 3e-4},
    "gate false": {"offline_confidence.gate": False},
    "outer.loss rk": {"outer.loss": "rk"},
    "outer.returns sum": {"outer.returns": "sum"},
    "outer.temperature 1": {"outer.temperature": 1.0},
    "trusted_fraction 0.05": {"trusted_fraction": 0.05},
    "trusted_fraction 0.2": {"trusted_fraction": 0.2},
    "trusted_fraction 1": {"trusted_fraction": 1.0},
}
"""Measured with cloning, which needs no environment."""

ONLINE: dict[str, dict[str, Any]] = {
    "trusted_fraction 0.05": {"trusted_fraction": 0.05},
    "trusted_fraction 0.2": {"trusted_fraction": 0.2},
    "trusted_fraction 1": {"trusted_fraction": 1.0},
    "reward_sees_action false": {"discriminator.reward_sees_action": False},
    "min_log_prob none": {"discriminator.min_log_prob": -1e9},
    "discriminator.learning_rate 3e-4": {"discriminator.learning_rate": 3e-4},
    "discriminator.batch_size 1000": {"discriminator.batch_size": 1000},
    "ppo 3e-4, minibatch 500": {"ppo.learning_rate": 3e-4, "ppo.minibatch": 500},
    "time limit terminal": {"ppo.timelimit_is_terminal": True},
}
"""Measured with AIRL. Absorbing states are not here: no episode of the point mass or of Reacher ends early."""

JOINT = {f"{section}.{key}": value for section in ("beta", "outer", "discriminator", "ppo")
         for key, value in to_dict(method_config("cail"))[section].items()}
"""What makes `cail` of `cail-paper`, but for the confidence, which then is learned along with the policy."""

VARIANTS = {
    name: (method, changes)
    for method, group in (("cail-bc", CONFIDENCE), ("cail", ONLINE))
    for name, changes in ((method, {}), *((f"{method}, {what}", given) for what, given in group.items()))
} | {"cail, joint confidence": ("cail-paper", JOINT)}
BUDGETS = {"smoke": (1, 5000, 50), "short": (2, 100_000, 1000), "full": (5, 100_000, 1000)}
"""Seeds, environment steps of the adversarial variants, gradient steps of the cloning ones."""


def variant(name: str) -> tuple[str, MethodConfig]:
    """The method of a row, and its settings there."""
    method, changes = VARIANTS[name]
    return method, method_config(method, changes=changes)


def run(budget: str, out: Path, seed: int) -> Path:
    """The variants on the point mass, on `seed`, `seed` + 1, …"""
    seeds, steps, cloning_steps = BUDGETS[budget]
    table = Table("ablation", "pointmass", "paper", tuple(VARIANTS), steps, cloning_steps)
    return run_table(table, range(seed, seed + seeds), out, settings=variant)
