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

from cail_core.benchmarks.cells import RUN, prepare_demonstrations, run_cell
from cail_core.benchmarks.result import save
from cail_core.benchmarks.studies import BUDGETS, UR5E, cell
from cail_core.errors import CailError
from cail_core.progress import console, table
from cail_sim.transfer import Ended, deployed, graph, in_process

METHODS = ("cail-hybrid", "cail-bc", "bc")
SEEDS = {"smoke": 1, "short": 1, "full": 3}
EPISODES = {"smoke": 2, "short": 20, "full": 100}
IN_PROCESS, BOX = "in process", "control box"


def run(budget: str, out: Path, seed: int) -> Path:
    folder, rows = out / "ur5e", []
    for one in range(seed, seed + SEEDS[budget]):
        for method in METHODS if budget != "smoke" else METHODS[-1:]:
            wanted = cell(BUDGETS["smoke" if budget == "smoke" else "full"], UR5E, method, one, at="ur5e")
            prepare_demonstrations(wanted, folder)
            trained = run_cell(wanted, folder)
            if trained["outcome"] != "done":
                raise CailError(f"{method} with seed {one} was not learned: {trained['outcome']}")
            policy = folder / "cells" / wanted.key / RUN / "policy"
            played = folder / "deployed" / wanted.key
            graph(played, EPISODES[budget], one, policy=str(policy), task="ur5e", other_robot="true")
            rows += [row(method, one, IN_PROCESS, in_process(policy, EPISODES[budget], one)),
                     row(method, one, BOX, deployed(played))]
    shown = table("method", "seed", "played", "success", "return", "return of successes", "otherwise")
    for found in rows:
        shown.add_row(found["method"], str(found["seed"]), found["played"], f"{found['successes']} of {found['episodes']}",
                      str(found["return"]), str(found["return_of_successes"]), found["otherwise"])
    console().print(shown)
    return save(out, "ur5e", rows, budget=budget, seed=seed)


def row(method: str, seed: int, played: str, episodes: list[Ended]) -> dict[str, Any]:
    """What came of the episodes of one policy in one place."""
    returns, good = np.array([value for _, value, _ in episodes]), [outcome == "success" for outcome, _, _ in episodes]
    otherwise = Counter(outcome for outcome, _, _ in episodes if outcome != "success")
    return {"method": method, "seed": seed, "played": played, "episodes": len(episodes), "successes": sum(good),
            "return": round(float(returns.mean()), 2),
            "return_of_successes": round(float(returns[good].mean()), 2) if any(good) else "",
            "otherwise": ", ".join(f"{count} {outcome}" for outcome, count in otherwise.items())}
