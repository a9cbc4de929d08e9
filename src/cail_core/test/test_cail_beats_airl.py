"""The point of it all, learned live: on mixed demonstrations CAIL's policy is better than AIRL's, beyond chance."""

from __future__ import annotations

import numpy as np
import torch

from cail_bench.methods import demonstrate
from cail_core.algorithms.method import method_config, read_part
from cail_core.algorithms.trainers.base import make_learner
from cail_core.evaluation import evaluate
from cail_core.tasks.pointmass import PointMass

SEEDS = (10, 11, 12)
CRITICAL_T = 4.30
"""Student's t at p = 0.05, two-sided, with 2 degrees of freedom: Welch's test has at least n − 1 = 2."""


def final_return(method: str, seed: int) -> float:
    """A short run; the last policy on 50 episodes of its own."""
    torch.set_num_threads(1)
    task = PointMass()
    config = method_config(method, changes=read_part(method, {"offline_confidence.steps": 150, "ppo.rollout_steps": 2500}))
    learner = make_learner(method, task, demonstrate(task, "paper", seed)[0], config, seed)
    learner.begin_segment(0)
    while learner.done < 50_000:
        learner.iterate()
    learner.close()
    return evaluate(task, lambda o: learner.actor.mode(torch.as_tensor(o)).detach().numpy(), 50, seed).mean


def test_cail_beats_airl_on_the_point_mass_beyond_chance() -> None:
    cail, airl = (np.array([final_return(method, seed) for seed in SEEDS]) for method in ("cail", "airl"))
    error = np.sqrt(cail.var(ddof=1) / len(SEEDS) + airl.var(ddof=1) / len(SEEDS))
    assert (cail.mean() - airl.mean()) / error > CRITICAL_T, f"cail {cail.round(1)}, airl {airl.round(1)}"
    assert cail.mean() > airl.mean() + 8
