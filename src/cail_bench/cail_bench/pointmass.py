"""CAIL and its baselines on the point mass. The settings in `config/` were chosen on other demonstrations (seeds 0 to 5)."""

from __future__ import annotations

from pathlib import Path

from cail_bench.methods import Table, run_table

METHODS = ("cail", "cail-gail", "cail-bc", "cail-hybrid", "cail-paper", "airl", "gail", "bc")
"""Those that are made of CAIL's parts; the others stand in the paper's tables."""

BUDGETS = {"smoke": (1, 10_000, 100), "short": (2, 100_000, 1000), "full": (5, 100_000, 1000)}
"""Seeds, environment steps of the adversarial methods, gradient steps of the cloning ones."""


def run(budget: str, out: Path, seed: int) -> Path:
    """The methods on `seed`, `seed` + 1, …"""
    seeds, steps, cloning_steps = BUDGETS[budget]
    table = Table("pointmass", "pointmass", "paper", METHODS, steps, cloning_steps)
    return run_table(table, range(seed, seed + seeds), out)
