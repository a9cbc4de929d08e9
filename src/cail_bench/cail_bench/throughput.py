"""How fast training is: environment steps per second, updates included, against bare stepping of one Gymnasium environment in
the same run; and what the outer step of Eq. 7 costs against a plain AIRL discriminator step on the same batch.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cail_bench.methods import EPISODES, demonstrate, demonstrate_by
from cail_bench.result import save
from cail_core.algorithms.eq7.cail import Cail, draw
from cail_core.algorithms.method import method_config
from cail_core.algorithms.trainers.absorbing import flagged
from cail_core.algorithms.trainers.adversarial import AdversarialLearner
from cail_core.algorithms.trainers.base import Learner, make_learner
from cail_core.errors import MissingDependency, how_to_add
from cail_core.progress import bar, console, table
from cail_core.tasks import Demonstrator, Policy, get_task

ROUNDS = {"smoke": 1, "short": 5, "full": 20}
METHODS = ("cail", "cail-paper", "airl")
PLAIN = {"reacher": "Reacher-v4", "ant": "Ant-v4"}
RAW_STEPS = 5000
WARM_UP = 5
"""Steps that are not counted."""


def run(budget: str, out: Path, seed: int) -> Path:
    """Both tasks; what the outer step costs is measured on Reacher, whose ten ranked trajectories have 50 steps each."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    ratio = 0.0
    for name in PLAIN:
        learners = _learners(name, seed)
        rows += _rates(name, learners, ROUNDS[budget], seed)
        if name == "reacher":
            plain, outer = _discriminator_steps(learners["airl"], learners["cail-paper"], 20 * ROUNDS[budget])
            ratio = outer / plain
        for learner in learners.values():
            learner.close()
    shown = table("task", "what", "steps/s", "ratio to one Gymnasium environment")
    for row in rows:
        shown.add_row(row["task"], row["what"], f"{row['steps_per_s']:,}", str(row["ratio_to_one_gymnasium_env"]))
    console().print(shown)
    console().print(f"a step of Eq. 7 with 10 ranked trajectories of 50 steps: {ratio:.1f} × a plain AIRL discriminator step")
    return save(out, "throughput", rows, budget=budget, seed=seed, bilevel_step_ratio_to_plain=round(ratio, 2))


def _learners(name: str, seed: int) -> dict[str, Learner]:
    """Ant's demonstrations are random here: they fall at once, so they are soon collected, and a step costs the same."""
    task = get_task(name)
    if name == "ant":
        demos, _ = demonstrate_by(task, [(Demonstrator("random", _random_policy), 1.0)], EPISODES, seed)
    else:
        demos, _ = demonstrate(task, "paper", seed)
    return {
        method: make_learner(method, task, demos, method_config(method), seed)
        for method in METHODS
    }


def _random_policy(rng: np.random.Generator) -> Policy:
    return lambda observation: rng.uniform(-1, 1, 8).astype(np.float32)


def _rates(task: str, learners: dict[str, Learner], rounds: int, seed: int) -> list[dict[str, Any]]:
    """Stepping and training take turns, so that whatever else the machine does slows both alike."""
    raw = _raw_stepping(PLAIN[task], seed)
    seconds: dict[str, float] = dict.fromkeys(("raw", *METHODS), 0.0)
    steps: dict[str, int] = dict.fromkeys(("raw", *METHODS), 0)
    for learner in learners.values():
        learner.begin_segment(0)
        learner.iterate()
    with bar(f"throughput on {task}", rounds) as advance:
        for done in range(rounds):
            seconds["raw"] += _timed(raw)
            steps["raw"] += RAW_STEPS
            for name, learner in learners.items():
                before = learner.done
                seconds[name] += _timed(learner.iterate)
                steps[name] += learner.done - before
            advance(done + 1)
    rate = {name: steps[name] / seconds[name] for name in steps}
    return [
        {
            "task": task,
            "what": name,
            "steps_per_s": round(rate[name]),
            "ratio_to_one_gymnasium_env": round(rate[name] / rate["raw"], 2),
        }
        for name in rate
    ]


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _raw_stepping(name: str, seed: int) -> Callable[[], None]:
    """One plain Gymnasium environment with random actions."""
    import gymnasium

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # v4 is deprecated there, and the paper's
            env = gymnasium.make(name)
    except (gymnasium.error.Error, ImportError) as fault:
        raise MissingDependency(f"{name} cannot be made ({fault}); {how_to_add('mujoco')}") from None
    env.reset(seed=seed)
    env.action_space.seed(seed)

    def work() -> None:
        for _ in range(RAW_STEPS):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()

    return work


def _discriminator_steps(plain: Learner, bilevel: Learner, repeats: int) -> tuple[float, float]:
    """Seconds of a plain discriminator step and of a whole step of Eq. 7, in turns on the same batches."""
    assert isinstance(plain, AdversarialLearner)
    assert isinstance(bilevel, AdversarialLearner)
    simple_learner, whole_learner = plain.inner_learner, bilevel.inner_learner
    assert isinstance(whole_learner, Cail)
    data = flagged(plain.data)
    size = plain.config.discriminator.batch_size
    weight = torch.ones(size)
    totals = [0.0, 0.0]
    for k in range(-WARM_UP, repeats):
        rows, others = (draw(len(data.state), size, plain.generator) for _ in range(2))
        demo, other = data.rows(rows), data.rows(others)
        simple = _timed(lambda demo=demo, other=other: simple_learner.weighted_step(weight, demo, other))  # type: ignore[misc]
        whole = _timed(lambda rows=rows, demo=demo, other=other: whole_learner.step(rows, demo, other, gate=0.0))  # type: ignore[misc]
        if k >= 0:
            totals = [totals[0] + simple, totals[1] + whole]
    return totals[0] / repeats, totals[1] / repeats
