"""CAIL, the paper's instance and its baselines on Reacher, on a mix of demonstrators like the paper's."""

from __future__ import annotations

from pathlib import Path

from cail_core.benchmarks.methods import run_table
from cail_core.tasks import get_task

METHODS = ("cail", "cail-bc", "cail-paper", "airl", "bc")
BUDGETS = {"smoke": (1, 10_000, 100), "short": (2, 200_000, 1000), "full": (5, 200_000, 1000)}
"""Seeds, environment steps of the adversarial methods, gradient steps of the cloning ones."""


def run(budget: str, out: Path, seed: int) -> Path:
    """The methods on `seed`, `seed` + 1, …"""
    seeds, steps, cloning_steps = BUDGETS[budget]
    return run_table("reacher", get_task("reacher"), "paper", METHODS, range(seed, seed + seeds), steps, cloning_steps, out)
