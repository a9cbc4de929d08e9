"""CAIL and its baselines on the point mass: methods by seeds, one CSV row each.

The settings in `config/` were chosen on other demonstrations (seeds 0 to 5); this runs on fresh ones.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from cail_core.algorithms import METHODS
from cail_core.algorithms.confidence import segment_mean
from cail_core.algorithms.learners import make_learner
from cail_core.algorithms.method import MethodConfig, method_config
from cail_core.benchmarks.result import save
from cail_core.demos.collect import mix_of, roll_out, schedule
from cail_core.demos.demonstrations import Demonstrations
from cail_core.demos.features import ACTION, REWARD, STATE
from cail_core.demos.ranking import rank_by_return
from cail_core.evaluation import evaluate
from cail_core.tasks.base import Array, Task
from cail_core.tasks.pointmass import PointMass
from cail_core.training.run import demonstrator_means

MIX, EPISODES, RANKED = "paper", 200, 0.05
BEST_FIRST = ("expert", "good", "fair", "poor", "hopeless")
BUDGETS = {"smoke": (1, 10_000, 100), "short": (2, 100_000, 1000), "full": (5, 100_000, 1000)}
"""Seeds, environment steps of the adversarial methods, gradient steps of the cloning ones."""


def run(budget: str, out: Path, seed: int) -> Path:
    """All methods on `seed`, `seed` + 1, …; keeps `pointmass.csv` and what made it."""
    torch.set_num_threads(1)
    seeds, steps, cloning_steps = BUDGETS[budget]
    task = PointMass()
    rows, demonstrators = [], {}
    for s in range(seed, seed + seeds):
        demos, returns = demonstrate(task, s)
        who = np.array(demos.demonstrator)
        demonstrators[s] = {name: round(float(returns[who == name].mean()), 2) for name in BEST_FIRST}
        for method in METHODS:
            config = method_config(method)
            rows.append(measure(task, demos, returns, method, config, s, cloning_steps if config.learner == "bc" else steps))
            print(rows[-1], flush=True)
    return save(out, "pointmass", rows, mix=MIX, episodes=EPISODES, ranked=RANKED, evaluation_episodes=100,
                demonstrators_mean_return=demonstrators)


def demonstrate(task: Task, seed: int) -> tuple[Demonstrations, NDArray[np.float64]]:
    """The mix as `cail demos collect` and `cail demos rank --by return` make it, in memory; and the true returns."""
    env = task.make_env(1)
    episodes = [roll_out(env, who, (seed, k), success=True) for k, who in enumerate(schedule(mix_of(task, MIX), EPISODES))]
    returns = np.array([episode.frames[REWARD].sum(dtype=np.float64) for episode in episodes])
    rank = np.zeros(EPISODES, dtype=np.int64)
    for episode, place in rank_by_return(returns, RANKED, seed).items():
        rank[episode] = place
    states = [episode.frames[STATE] for episode in episodes]
    following = [np.concatenate([e.frames[STATE][1:], e.final_state[None]]) for e in episodes]
    lengths = [len(s) for s in states]
    demos = Demonstrations(
        states=np.concatenate(states), actions=np.concatenate([e.frames[ACTION] for e in episodes]),
        next_states=np.concatenate(following), terminated=np.zeros(sum(lengths), dtype=np.bool_),
        starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), rank=rank,
        demonstrator=[episode.demonstrator for episode in episodes])
    return demos, returns


def measure(task: Task, demos: Demonstrations, returns: NDArray[np.float64], method: str, config: MethodConfig, seed: int,
            steps: int) -> dict[str, Any]:
    """Train once; the last policy counts, on 100 episodes of its own."""
    began = time.perf_counter()
    learner = make_learner(task, demos, config, seed)
    learner.begin_segment(0)
    while learner.done < steps:
        learner.iterate()
    seconds = time.perf_counter() - began

    @torch.no_grad()
    def policy(observation: Array) -> Array:
        action: Array = learner.actor.mode(torch.as_tensor(observation)).numpy()
        return action

    result = evaluate(task, policy, 100, seed)
    learner.close()
    confidence = learner.confidence()
    by_demonstrator = demonstrator_means(demos, confidence)
    by_episode = segment_mean(confidence, torch.as_tensor(demos.episode_of_pair), demos.episodes).numpy()
    learned = config.confidence != "none"
    row = {"method": method, "seed": seed, "steps": learner.done, "return": round(result.mean, 2),
           "return_std": round(result.std, 2), "success": round(result.success_rate, 3),
           "spearman_demonstrators": spearman([by_demonstrator[name] for name in BEST_FIRST], [4, 3, 2, 1, 0]) if learned else "",
           "spearman_episodes": spearman(by_episode, returns) if learned else ""}
    return row | {f"confidence_{name}": round(by_demonstrator[name], 4) for name in BEST_FIRST} | {"seconds": round(seconds, 1)}


def spearman(a: ArrayLike, b: ArrayLike) -> float:
    """Rank correlation, ties at their mean rank; NaN where one side does not vary."""
    x, y = _mean_ranks(np.asarray(a)), _mean_ranks(np.asarray(b))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return round(float(np.corrcoef(x, y)[0, 1]), 3)


def _mean_ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    ranks: NDArray[np.float64] = (last - (count - 1) / 2)[group]
    return ranks
