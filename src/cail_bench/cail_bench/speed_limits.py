"""`cail bench panda-slower`: what was made for the simulator's speed, at the lower speeds of a real arm.

A policy's action of 1 means 0.5 m/s. On a slower arm it is the same path in more time: s times the speed, with s² times the
acceleration and s³ times the jerk, and the time limit grows in proportion, as `cail deploy` does it. The best script plays, and
(not with `--budget smoke`) a policy that `cail-bc` learns here from 200 demonstrations of the mix `paper`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cail_bench.result import save
from cail_core.progress import bar, console, table
from cail_core.tasks.base import Policy
from cail_core.tasks.pick_place_avoid import Outcome
from cail_core.tasks.variation import NOMINAL, Variation
from cail_sim.tasks.panda import Panda

EPISODES = {"smoke": 2, "short": 10, "full": 50}
SPEEDS = (0.5, 0.25, 0.125)
"""m/s: as trained, the default limit of real arms, half of that."""
DEMONSTRATIONS, RANKED = 200, 0.05
Start = Callable[[np.random.Generator], Policy]
"""Gives who acts in one episode."""


def run(budget: str, out: Path, seed: int) -> Path:
    episodes = EPISODES[budget]
    actors: dict[str, Start] = {"best script": Panda().demonstrators()["best"].start}
    if budget != "smoke":
        policy = learned(out / "panda-slower", seed)
        actors["cail-bc policy"] = lambda rng: policy
    tasks = {f"{speed:g} m/s": slower(speed) for speed in SPEEDS}
    rows: list[dict[str, Any]] = []
    with bar("panda-slower", len(actors) * len(tasks)) as advance:
        for actor, start in actors.items():
            for limits, task in tasks.items():
                rows.append({"actor": actor, "limits": limits, "episodes": episodes, **play(task, start, episodes, seed)})
                advance(len(rows))
    shown = table("who", "limits", "success", "seconds to success", "ended otherwise")
    for row in rows:
        shown.add_row(row["actor"], row["limits"], f"{row['successes']} of {episodes}", str(row["seconds"]), row["otherwise"])
    console().print(shown)
    return save(out, "panda-slower", rows, budget=budget, seed=seed)


def slower(speed: float) -> Panda:
    """The task on an arm that reaches this speed, m/s."""
    task = Panda()
    return task.under(Variation.only(replace(NOMINAL, speed=speed / task.config.task.max_speed)))


def play(task: Panda, start: Start, episodes: int, seed: int) -> dict[str, Any]:
    """How the episodes of `seed` end, and how long those that succeed take."""
    env = task.one()
    ends: list[tuple[Outcome, float]] = []
    try:
        for number in range(episodes):
            env.start(np.random.default_rng((seed, number)))
            act, outcome, decisions = start(np.random.default_rng(number)), None, 0
            while outcome is None:
                action = act(np.array(env.observe(), dtype=np.float32))
                _, outcome = env.decide(action.tolist())
                decisions += 1
            ends.append((outcome, decisions * task.config.task.decision_s))
    finally:
        env.close()
    seconds = [s for outcome, s in ends if outcome is Outcome.SUCCESS]
    others = [outcome.value for outcome, _ in ends if outcome is not Outcome.SUCCESS]
    return {
        "successes": len(seconds),
        "seconds": f"{np.mean(seconds):.2f} ± {np.std(seconds):.2f}" if seconds else "",
        "otherwise": ", ".join(f"{others.count(name)} {name}" for name in sorted(set(others))),
    }


def learned(folder: Path, seed: int) -> Policy:
    """A policy of `cail-bc`; demonstrations and run are kept in `folder` and used again."""
    from cail_core.algorithms.method import method_config
    from cail_core.demos import layout
    from cail_core.demos.collect import collect, mix_of
    from cail_core.demos.dataset import DemoDataset
    from cail_core.demos.edit import set_ranking
    from cail_core.policy import load_policy
    from cail_core.ranking.ranks import provenance, rank_by_return
    from cail_core.training import train

    task, root = Panda(), folder / "demos"
    if not (root / layout.RANKING).exists():
        dataset = collect(task, mix_of(task, "paper"), DEMONSTRATIONS, seed, root)
        assert dataset.returns is not None
        set_ranking(root, rank_by_return(dataset.returns, RANKED, seed), provenance("return", fraction=RANKED, seed=seed))
    demos = DemoDataset(root).demonstrations()
    train(task, demos, "cail-bc", method_config("cail-bc", "panda"), seed=seed, out=folder / "run")
    return load_policy(folder / "run" / "policy")
