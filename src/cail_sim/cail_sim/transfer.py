"""`cail bench transfer`: from demonstrations on the simulated UR5e to a policy on it, all through the graph of deploy.launch.py.

The mix `paper` of scripted people demonstrates over the topics, some episodes are ranked, `cail-bc` learns, and its policy is
deployed. So is a policy of `cail-hybrid` that has seen nothing but the simulated Panda. Both play in the simulator of this
process too. One row for each episode. With `ros2` on the path the graph is started by `ros2 launch`, otherwise its two
processes are. What is done is not done again, so a run that was cut off goes on.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from cail_core.benchmarks.result import save
from cail_core.demos import layout
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.episode import INTERRUPTED
from cail_core.errors import CailError
from cail_core.evaluation import evaluate
from cail_core.policy import load_policy
from cail_core.progress import console, table
from cail_core.tasks import get_task

DEMONSTRATIONS = {"smoke": 2, "short": 50, "full": 50}
EPISODES = {"smoke": 2, "short": 20, "full": 100}
OTHER_EPISODES = {"smoke": 0, "short": 10, "full": 20}
"""Of the policy that comes from the Panda."""
RANKED = 0.1
PANDA_DEMONSTRATIONS, PANDA_RANKED = 200, 0.05
METHODS = {"ur5e": "cail-bc", "panda": "cail-hybrid"}
"""By the task that is learned: what was recorded on an arm is learned from as it is, a simulation is there to practise in."""
CAIL = (sys.executable, "-m", "cail_core.cli")
ENDS_S = 15.0
IN_VAIN = 5
"""Launches in a row without an episode."""
LIBC, PR_SET_PDEATHSIG = ctypes.CDLL(None), 1


def run(budget: str, out: Path, seed: int) -> Path:
    folder = out / "transfer"
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
    return save(out, "transfer", rows, budget=budget, seed=seed, methods=METHODS, demonstrations=wanted, ranked=RANKED,
                launched_by="ros2 launch" if shutil.which("ros2") else "processes")


def graph(dataset: Path, episodes: int, seed: int, **arguments: str) -> None:
    """Let the dataset hold `episodes` episodes of the UR5e's graph; those that it has already count.

    A fault of the arm, as on a machine that stalls, ends an unattended deployment: a person would start the graph again. An
    episode that was interrupted by it stays in the dataset, and another one is played in its place.
    """
    dataset.parent.mkdir(parents=True, exist_ok=True)
    log = dataset.with_suffix(".log")
    have, in_vain = _count(dataset), 0
    while have < episodes:
        with log.open("a") as said:
            launch({**arguments, "episodes": str(episodes - have), "record": "true", "dataset": str(dataset), "input": "none"},
                   str(seed + have + interrupted(dataset)), said)
        before, have = have, _count(dataset)
        in_vain = 0 if have > before else in_vain + 1
        if in_vain == IN_VAIN:
            raise CailError(f"the graph gave {have} of {episodes} episodes; {log} has what it said, the same command goes on")


def _count(dataset: Path) -> int:
    return len(deployed(dataset)) if (dataset / layout.INFO).exists() else 0


def launch(arguments: dict[str, str], seed: str, said: TextIO) -> None:
    """The graph of deploy.launch.py, until it ends."""
    if ros2 := shutil.which("ros2"):
        words = [f"{name}:={value}" for name, value in arguments.items()]
        command = [ros2, "launch", "cail_robot", "deploy.launch.py", "robot:=ur5e_sim", f"seed:={seed}", *words]
        subprocess.run(command, stdout=said, stderr=said, preexec_fn=end_with_parent)
        return
    words = [f"--{name.replace('_', '-')}={value}" for name, value in arguments.items()]
    arm = subprocess.Popen([*CAIL, "up", "ur5e-sim", "--seed", seed], stdout=said, stderr=said, preexec_fn=end_with_parent)
    try:
        desk = [*CAIL, "deploy", "--robot", "running", "--robot-type", "ur5e_sim", *words]
        subprocess.run(desk, stdout=said, stderr=said, preexec_fn=end_with_parent)
    finally:
        arm.send_signal(signal.SIGINT)
        try:
            arm.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            arm.kill()
            arm.wait()


def end_with_parent() -> None:
    """In a new process, before its program begins: it is interrupted when the process that started it ends, killed or not. An arm
    must not go on without its benchmark. Elsewhere than on Linux it does nothing."""
    if hasattr(LIBC, "prctl"):
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGINT)


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


Ended = tuple[str, float, float]
"""How an episode ended, its return, its seconds."""


def deployed(dataset: Path) -> list[Ended]:
    """All episodes but those that were interrupted. Of a failure that is what ended it, where that was written down."""
    demos = DemoDataset(dataset)
    return [(_why(row) or row.outcome, float(row.undiscounted_return or 0.0), row.length / demos.info["fps"])
            for row in demos.rows if row.outcome != INTERRUPTED]


def _why(row: layout.EpisodeRow) -> str:
    return str((row.recording or {}).get("why", "")).split(":")[0] if row.outcome == "failure" else ""


def interrupted(dataset: Path) -> int:
    """Episodes that were no one's doing."""
    if not (dataset / layout.INFO).exists():
        return 0
    return sum(row.outcome == INTERRUPTED for row in DemoDataset(dataset).rows)


def in_process(policy: Path, episodes: int, seed: int) -> list[Ended]:
    task = get_task("ur5e")
    found = evaluate(task, load_policy(policy), episodes, seed)
    return [("success" if good else "failure", float(value), steps / task.spec.fps)
            for good, value, steps in zip(found.success, found.returns, found.lengths, strict=True)]


def _row(trained_on: str, played: str, outcome: str, value: float, seconds: float) -> dict[str, Any]:
    return {"trained_on": trained_on, "played": played, "outcome": outcome, "return": round(value, 2),
            "seconds": round(seconds, 2)}


def summary(rows: list[dict[str, Any]]) -> list[str]:
    returns = np.array([row["return"] for row in rows])
    good = returns[[row["outcome"] == "success" for row in rows]]
    low, high = np.quantile(returns, [0.1, 0.9])
    return [f"{len(good)} of {len(rows)}", f"{good.mean():.1f}" if len(good) else "", f"{low:.1f} … {high:.1f}"]
