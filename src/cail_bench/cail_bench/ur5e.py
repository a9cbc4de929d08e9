"""`cail bench ur5e`: the UR5e's column of the paper's table, played on its control box.

Policies are learned from the mix `paper` in the simulator of this process (the cells of `cail bench table1` for the task `ur5e`)
and deployed on the simulated control box, over RTDE and the topics, in real time and at the limits of a real arm: the graph of
deploy.launch.py. One row for each method, seed and place. What is done is not done again, so a run that was cut off goes on.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from cail_bench.cells import DONE, RUN, prepare_demonstrations, run_cell
from cail_bench.graph import Ended, deployed, graph, in_process, interrupted
from cail_bench.paper_numbers import SUCCESS
from cail_bench.result import save
from cail_bench.studies import BUDGETS, COMPARED, UR5E, cell
from cail_core.progress import console, table

METHODS = ("cail-hybrid", "cail-bc", *COMPARED, "bc")
SEEDS = {"smoke": 1, "short": 1, "full": 3}
EPISODES = {"smoke": 2, "short": 20, "full": 100}
IN_PROCESS, BOX = "in process", "control box"


def run(budget: str, out: Path, seed: int) -> Path:
    rows: list[dict[str, Any]] = []
    for one in range(seed, seed + SEEDS[budget]):
        for method in METHODS if budget != "smoke" else METHODS[-1:]:
            rows += learned_and_played(method, one, budget, out / "ur5e")
            saved = save(out, "ur5e", rows, budget=budget, seed=seed)  # a run that is cut off leaves a shorter table
    shown = table("method", "seed", "played", "success", "the paper's arm", "return", "return of successes", "otherwise")
    for found in rows:
        paper = SUCCESS["ur5e"].get(found["method"]) if found["played"] == BOX else None
        shown.add_row(found["method"], str(found["seed"]), found["played"], f"{found['successes']} of {found['episodes']}",
                      f"{paper[0]:.0%}" if paper else "", str(found["return"]), str(found["return_of_successes"]),
                      found["otherwise"])
    console().print(shown)
    return saved


def learned_and_played(method: str, seed: int, budget: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of one method; one that cannot be learned keeps its place, with the reason."""
    wanted = cell(BUDGETS["smoke" if budget == "smoke" else "full"], UR5E, method, seed, at="ur5e")
    prepare_demonstrations(wanted, folder)
    trained = run_cell(wanted, folder)
    if trained["outcome"] != DONE:
        return [{**row(method, seed, where, []), "otherwise": trained["outcome"]} for where in (IN_PROCESS, BOX)]
    policy = folder / "cells" / wanted.key / RUN / "policy"
    played = folder / "deployed" / wanted.key
    graph(played, EPISODES[budget], seed, policy=str(policy), task="ur5e", other_robot="true")
    return [row(method, seed, IN_PROCESS, in_process(policy, EPISODES[budget], seed)),
            {**row(method, seed, BOX, deployed(played)), "interrupted": interrupted(played)}]


def row(method: str, seed: int, played: str, episodes: list[Ended]) -> dict[str, Any]:
    """What came of the episodes of one policy in one place."""
    returns, good = np.array([value for _, value, _ in episodes]), [outcome == "success" for outcome, _, _ in episodes]
    otherwise = Counter(outcome for outcome, _, _ in episodes if outcome != "success")
    return {"method": method, "seed": seed, "played": played, "episodes": len(episodes), "successes": sum(good),
            "return": round(float(returns.mean()), 2) if episodes else "",
            "return_of_successes": round(float(returns[good].mean()), 2) if any(good) else "",
            "otherwise": ", ".join(f"{count} {outcome}" for outcome, count in otherwise.items()), "interrupted": 0}
