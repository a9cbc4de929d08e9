"""Methods by seeds on one task: the same demonstrations and the same ranks for all methods, one CSV row each."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from cail_bench.result import save
from cail_core.algorithms.eq7.confidence import segment_mean
from cail_core.algorithms.method import method_config
from cail_core.algorithms.registry import get_method
from cail_core.algorithms.settings import MethodConfig
from cail_core.algorithms.trainers.base import make_learner
from cail_core.demos.collect import Mix, mix_of, roll_out, schedule
from cail_core.demos.demonstrations import Demonstrations
from cail_core.demos.features import ACTION, DONE, REWARD, STATE, TRUNCATED
from cail_core.evaluation import evaluate
from cail_core.machine import cores
from cail_core.progress import bar, console, table
from cail_core.ranking.ranks import rank_by_return
from cail_core.tasks.base import Array, Task, get_task
from cail_core.training.run import demonstrator_means

EPISODES, RANKED, EVALUATION_EPISODES = 200, 0.05, 100
Settings = Callable[[str], tuple[str, MethodConfig]] | None


@dataclass(frozen=True)
class Table:
    """Which methods are measured on what, and for how long."""

    name: str
    task: str
    mix: str
    methods: tuple[str, ...]
    steps: int
    """Environment steps of the adversarial methods."""
    cloning_steps: int
    """Gradient steps of the cloning ones."""


def run_table(table_: Table, seeds: Sequence[int], out: Path, settings: Settings = None) -> Path:
    """All methods on all seeds, a process per core; keeps `name`.csv and what made it. What is kept grows seed by seed, so a
    table that was cut off is one with fewer seeds.

    `settings` gives what stands behind the name of a method, where that is not what is installed for the task; it must be a
    function of a module, for the processes to find it.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    jobs = [(table_, seed, method, settings) for seed in seeds for method in table_.methods]
    rows: list[dict[str, Any]] = []
    demonstrators: dict[int, dict[str, float]] = {}
    with (
        bar(table_.name, len(jobs)) as advance,
        ProcessPoolExecutor(min(cores(), len(jobs)), mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        advance(0)
        for row, means in pool.map(_cell, jobs):
            rows.append(row)
            demonstrators[row["seed"]] = means
            advance(len(rows))
            if len(rows) % len(table_.methods) == 0:
                kept = save(
                    out,
                    table_.name,
                    rows,
                    table=asdict(table_),
                    episodes=EPISODES,
                    ranked=RANKED,
                    evaluation_episodes=EVALUATION_EPISODES,
                    demonstrators_mean_return=demonstrators,
                )
    _show(rows, table_.methods)
    return kept


def _cell(job: tuple[Table, int, str, Settings]) -> tuple[dict[str, Any], dict[str, float]]:
    """One method on one seed; and the demonstrators' mean returns, best first."""
    table_, seed, row, settings = job
    torch.set_num_threads(1)
    task = get_task(table_.task)
    demos, returns = demonstrate(task, table_.mix, seed)
    who = np.array(demos.demonstrator)
    means = {person: round(float(returns[who == person].mean()), 2) for person in dict.fromkeys(demos.demonstrator)}
    means = dict(sorted(means.items(), key=lambda item: -item[1]))
    method, config = (row, method_config(row, table_.task)) if settings is None else settings(row)
    steps = table_.cloning_steps if get_method(method).offline else table_.steps
    return measure(task, demos, returns, method, config, seed, steps, list(means)) | {"method": row}, means


def _show(rows: Sequence[dict[str, Any]], methods: Sequence[str]) -> None:
    shown = table("method", "return by seed", "mean", "least Spearman", "best : worst confidence")
    for method in methods:
        mine = [row for row in rows if row["method"] == method]
        order = [row["spearman_demonstrators"] for row in mine if row["spearman_demonstrators"] != ""]
        ratio = [row["confidence_ratio"] for row in mine if row["confidence_ratio"] != ""]
        shown.add_row(
            method,
            " ".join(f"{row['return']:.1f}" for row in mine),
            f"{np.mean([row['return'] for row in mine]):.2f}",
            f"{min(order):.2f}" if order else "",
            f"{min(ratio):.1f} … {max(ratio):.1f}" if ratio else "",
        )
    console().print(shown)


def demonstrate(task: Task, mix: str, seed: int) -> tuple[Demonstrations, NDArray[np.float64]]:
    """The mix as `cail demos collect` and `cail demos rank --by return` make it, in memory; and the true returns."""
    return demonstrate_by(task, mix_of(task, mix), EPISODES, seed)


def demonstrate_by(task: Task, mix: Mix, episodes: int, seed: int) -> tuple[Demonstrations, NDArray[np.float64]]:
    env = task.make_env(1)
    made = [roll_out(env, who, (seed, k), success=True) for k, who in enumerate(schedule(mix, episodes))]
    env.close()
    returns = np.array([episode.frames[REWARD].sum(dtype=np.float64) for episode in made])
    rank = np.zeros(episodes, dtype=np.int64)
    for episode, place in rank_by_return(returns, RANKED, seed).items():
        rank[episode] = place
    following = [np.concatenate([e.frames[STATE][1:], e.final_state[None]]) for e in made]
    demos = Demonstrations(
        states=np.concatenate([e.frames[STATE] for e in made]),
        actions=np.concatenate([e.frames[ACTION] for e in made]),
        next_states=np.concatenate(following),
        terminated=np.concatenate([e.frames[DONE] & ~e.frames[TRUNCATED] for e in made]),
        starts=np.concatenate([[0], np.cumsum([len(states) for states in following])]).astype(np.int64),
        rank=rank,
        demonstrator=[episode.demonstrator for episode in made],
    )
    return demos, returns


def measure(
    task: Task,
    demos: Demonstrations,
    returns: NDArray[np.float64],
    method: str,
    config: MethodConfig,
    seed: int,
    steps: int,
    best_first: Sequence[str],
) -> dict[str, Any]:
    """Train once; the last policy counts, on episodes of its own. `best_first`: the demonstrators by true return."""
    began = time.perf_counter()
    learner = make_learner(method, task, demos, config, seed)
    learner.begin_segment(0)
    while learner.done < steps:
        learner.iterate()
    seconds = time.perf_counter() - began

    @torch.no_grad()
    def policy(observation: Array) -> Array:
        action: Array = learner.actor.mode(torch.as_tensor(observation)).numpy()
        return action

    result = evaluate(task, policy, EVALUATION_EPISODES, seed)
    learner.close()
    confidence = learner.confidence()
    by_demonstrator = demonstrator_means(demos, confidence)
    by_episode = segment_mean(confidence, torch.as_tensor(demos.episode_of_pair), demos.episodes).numpy()
    row = {
        "method": method,
        "seed": seed,
        "steps": learner.done,
        "return": round(result.mean, 2),
        "return_std": round(result.std, 2),
        "success": round(result.success_rate, 3),
        "spearman_demonstrators": "",
        "spearman_episodes": "",
        "confidence_ratio": "",
    }
    if np.ptp(by_episode) > 0:
        trust = [by_demonstrator[name] for name in best_first]
        row |= {
            "spearman_demonstrators": spearman(trust, -np.arange(len(trust))),
            "spearman_episodes": spearman(by_episode, returns),
            "confidence_ratio": round(trust[0] / max(trust[-1], 1e-9), 3),
        }
    return row | {f"confidence_{name}": round(by_demonstrator[name], 4) for name in best_first} | {"seconds": round(seconds, 1)}


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
