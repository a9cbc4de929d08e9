"""CAIL, the paper's instance and its baselines on Reacher, where all demonstrators but the best spin."""

from __future__ import annotations

from pathlib import Path

from cail_bench.methods import Table, run_table

BUDGETS = {"smoke": (1, 10_000, 100), "short": (2, 200_000, 1000), "full": (5, 1_000_000, 1000)}
"""Seeds, environment steps of the adversarial methods, gradient steps of the cloning ones."""


def run(budget: str, out: Path, seed: int) -> Path:
    """The methods on `seed`, `seed` + 1, …"""
    seeds, steps, cloning_steps = BUDGETS[budget]
    table = Table("spinning", "reacher", "spinning", ("cail", "cail-bc", "cail-paper", "airl", "bc"), steps, cloning_steps)
    return run_table(table, range(seed, seed + seeds), out)
