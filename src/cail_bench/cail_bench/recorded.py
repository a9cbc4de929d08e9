"""`cail bench recorded`: from demonstrations on the simulated UR5e to a policy on it, all through the graph of deploy.launch.py.

The mix `paper` of scripted people demonstrates over the topics, some episodes are ranked, `cail-bc` learns, and its policy is
deployed. So is a policy of `cail-hybrid` that has seen nothing but the simulated Panda. Both play in the simulator of this
process too. One row for each episode. What is done is not done again, so a run that was cut off goes on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from cail_bench.graph import CAIL, deployed, graph, in_process
from cail_bench.result import save
from cail_core.demos import layout
from cail_core.demos.dataset import DemoDataset
from cail_core.errors import CailError
from cail_core.progress import console, table

DEMONSTRATIONS = {"smoke": 2, "short": 50, "full": 50}
EPISODES = {"smoke": 2, "short": 20, "full": 100}
OTHER_EPISODES = {"smoke": 0, "short": 10, "full": 20}
"""Of the policy that comes from the Panda."""
RANKED = 0.1
PANDA_DEMONSTRATIONS, PANDA_RANKED = 200, 0.05
METHODS = {"ur5e": "cail-bc", "panda": "cail-hybrid"}
"""By the task that is learned: what was recorded on an arm is learned from as it is, a simulation is there to practise in."""


def run(budget: str, out: Path, seed: int) -> Path:
    folder = out / "recorded"
    demos, wanted = folder / "ur5e-demos", DEMONSTRATIONS[budget]
    graph(demos, wanted, seed, policy="mix:paper", task="ur5e")
    if not any(row.rank for row in DemoDataset(demos).rows):
        _cail("demos", "rank", demos, "--by", "return", "--fraction", max(RANKED, 2 / wanted))
    policies = {"ur5e": learn("ur5e", demos, folder / "ur5e-run", seed)}
    if budget != "smoke":
        policies["panda"] = learn("panda", panda_demonstrations(folder / "panda-demos", seed), folder / "panda-run", seed)
    rows: list[dict[str, Any]] = []
    for trained_on, policy in policies.items():
        played, count = folder / f"{trained_on}-policy-deployed", (OTHER_EPISODES if trained_on == "panda" else EPISODES)[budget]
        other = "true" if trained_on == "panda" else "false"
        graph(played, count, seed + 1, policy=str(policy), task=trained_on, other_robot=other)
        rows += [_row(trained_on, "graph", *found) for found in deployed(played)]
        rows += [_row(trained_on, "in process", *found) for found in in_process(policy, count, seed + 1)]
    shown = table("trained on", "played", "success", "mean return of successes", "return, 10% and 90%")
    for trained_on in policies:
        for where in ("graph", "in process"):
            shown.add_row(trained_on, where, *summary([r for r in rows if (r["trained_on"], r["played"]) == (trained_on, where)]))
    console().print(shown)
    return save(out, "recorded", rows, budget=budget, seed=seed, methods=METHODS, demonstrations=wanted, ranked=RANKED,
                launched_by="ros2 launch" if shutil.which("ros2") else "processes")


def _cail(*words: object) -> None:
    if subprocess.run([*CAIL, *map(str, words)], env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode:
        raise CailError(f"`cail {' '.join(map(str, words))}` did not end well; its messages are above")


def learn(task: str, demos: Path, out: Path, seed: int) -> Path:
    _cail("train", "--task", task, "--demos", demos, "--method", METHODS[task], "--seed", seed, "--out", out)
    return out / "policy"


def panda_demonstrations(demos: Path, seed: int) -> Path:
    if not (demos / layout.RANKING).exists():
        _cail("demos", "collect", "--task", "panda", "--mix", "paper", "--episodes", PANDA_DEMONSTRATIONS, "--seed", seed,
              "--out", demos)
        _cail("demos", "rank", demos, "--by", "return", "--choose", "unalike", "--fraction", PANDA_RANKED)
    return demos


def _row(trained_on: str, played: str, outcome: str, value: float, seconds: float) -> dict[str, Any]:
    return {"trained_on": trained_on, "played": played, "outcome": outcome, "return": round(value, 2),
            "seconds": round(seconds, 2)}


def summary(rows: list[dict[str, Any]]) -> list[str]:
    returns = np.array([row["return"] for row in rows])
    good = returns[[row["outcome"] == "success" for row in rows]]
    low, high = np.quantile(returns, [0.1, 0.9])
    return [f"{len(good)} of {len(rows)}", f"{good.mean():.1f}" if len(good) else "", f"{low:.1f} … {high:.1f}"]
