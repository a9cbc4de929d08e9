"""`cail bench transfer`: does a policy do on other arms, links and trackers what it does where it learned?

Each method learns from 200 demonstrations of the mix `paper` on the simulated Panda, and again on the simulated UR5e (the cells
of `cail bench table1`). Its policy then plays where it learned; over the topics, in lockstep and in real time by the graph of
deploy.launch.py; at half the speed, with 40 ms of delay, with a tracker that is wrong by 2 mm and shakes by 2 mm, and with all
that is practised under at once. The UR5e's plays in process and on its control box, the Panda's also on the UR5e. One row for
each method, seed and place. What is done is not done again, so a run that was cut off goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from cail_bench.cells import DONE, RUN, prepare_demonstrations, run_cell
from cail_bench.graph import CAIL, ENDS_S, deployed, end_with_parent, graph, interrupted
from cail_bench.result import save
from cail_bench.studies import BUDGETS, PANDA, UR5E, Environment, cell
from cail_core import durable
from cail_core.errors import CailError
from cail_core.evaluation import Evaluation, evaluate
from cail_core.over_topics import own_domain
from cail_core.policy import load_policy
from cail_core.progress import console, table
from cail_core.tasks.base import Task
from cail_core.tasks.variation import NOMINAL, Variation
from cail_sim.tasks.panda import Panda
from cail_sim.tasks.ur5e import UR5e

METHODS = ("cail-bc", "cail-hybrid", "bc", "cail")
SEEDS = {"smoke": 1, "short": 1, "full": 5}
EPISODES = {"smoke": 2, "short": 20, "full": 50}
CLOCKED = {"smoke": 2, "short": 20, "full": 20}
"""Where the clock runs."""


@dataclass(frozen=True)
class Row:
    """What came of one policy in one place."""

    method: str
    seed: int
    place: str
    episodes: int
    successes: int
    mean_return: float
    otherwise: str = ""
    interrupted: int = 0
    """Episodes that a stalled machine ended; others were played in their place."""


Play = Callable[[Path, str, int, str, Path], Row]
"""Policy, method, seed, budget, and a folder for what is kept."""


def run(budget: str, out: Path, seed: int) -> Path:
    rows: list[Row] = []
    methods = METHODS if budget != "smoke" else ("bc",)
    for env in (PANDA, UR5E):
        for method in methods:
            for one in range(seed, seed + SEEDS[budget]):
                rows += learned_and_played(env, method, one, budget, out / "transfer")
                saved = save(out, "transfer", [asdict(row) for row in rows], budget=budget, seed=seed,
                             launched_by="ros2 launch" if shutil.which("ros2") else "processes")
    show(rows)
    return saved


def learned_and_played(env: Environment, method: str, seed: int, budget: str, folder: Path) -> list[Row]:
    wanted = cell(BUDGETS["smoke" if budget == "smoke" else "full"], env, method, seed, at=env.task)
    prepare_demonstrations(wanted, folder)
    trained = run_cell(wanted, folder)
    places = PLACES[env.task]
    if trained["outcome"] != DONE:
        return [Row(method, seed, place, 0, 0, float("nan"), trained["outcome"]) for place in places]
    policy, kept = folder / "cells" / wanted.key / RUN / "policy", folder / "played" / f"{wanted.key}-{budget}"
    return [once(kept / f"{name}.json", lambda play=play: play(policy, method, seed, budget, kept), name)  # type: ignore[misc]
            for name, play in places.items()]


def once(file: Path, play: Callable[[], Row], place: str) -> Row:
    """What the file has, or what is played now and then kept in it."""
    if file.exists():
        return Row(**json.loads(file.read_text()))
    found = replace(play(), place=place)
    durable.make_folder(file.parent)
    durable.write_bytes(file, json.dumps(asdict(found)).encode())
    return found


def _of(result: Evaluation, method: str, seed: int) -> Row:
    failed = int((~result.success).sum())
    return Row(method, seed, "", len(result.success), int(result.success.sum()), round(result.mean, 2),
               f"{failed} failed" if failed else "")


def here(task: Callable[[], Task]) -> Play:
    """In this process."""
    def play(policy: Path, method: str, seed: int, budget: str, kept: Path) -> Row:
        return _of(evaluate(task(), load_policy(policy), EPISODES[budget], seed), method, seed)

    return play


def lockstep(policy: Path, method: str, seed: int, budget: str, kept: Path) -> Row:
    """Over the topics of a simulator whose time waits for commands."""
    env = {**os.environ, "ROS_DOMAIN_ID": own_domain(), "OMP_NUM_THREADS": "1"}
    arm = subprocess.Popen([*CAIL, "up", "sim", "--pace", "commands"], env=env, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, preexec_fn=end_with_parent)
    try:
        words = ("--policy", policy, "--task", "panda-ros", "--episodes", CLOCKED[budget], "--seed", seed, "--no-references")
        command = [*CAIL, "eval", *map(str, words)]
        said = subprocess.run(command, env=env, capture_output=True, text=True, preexec_fn=end_with_parent)
        if said.returncode:
            raise CailError(f"lockstep: {said.stderr.strip() or said.stdout.strip()}")
    finally:
        arm.send_signal(signal.SIGINT)
        try:
            arm.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            arm.kill()
            arm.wait()
    number = {line.split(":")[0]: line.split(":")[1].split()[0].rstrip("%") for line in said.stdout.splitlines() if ": " in line}
    good = round(float(number["success"]) / 100 * CLOCKED[budget])
    failed = CLOCKED[budget] - good
    return Row(method, seed, "", CLOCKED[budget], good, float(number["return"]), f"{failed} failed" if failed else "")


def by_graph(robot: str, task: str) -> Play:
    """Through the arm's own node, in real time."""
    def play(policy: Path, method: str, seed: int, budget: str, kept: Path) -> Row:
        dataset = kept / robot
        graph(dataset, CLOCKED[budget], 1000 * seed, robot, policy=str(policy), task=task)
        ended = deployed(dataset)
        good = [outcome for outcome, _, _ in ended if outcome == "success"]
        others = [outcome for outcome, _, _ in ended if outcome != "success"]
        return Row(method, seed, "", len(ended), len(good), round(float(np.mean([value for _, value, _ in ended])), 2),
                   ", ".join(f"{others.count(name)} {name}" for name in sorted(set(others))), interrupted(dataset))

    return play


def under(**conditions: float) -> Play:
    return here(lambda: Panda().under(Variation.only(replace(NOMINAL, **conditions))))


def pandas_on_ur5e() -> UR5e:
    """What `cail deploy --other-robot` makes of the Panda's task on a UR5e: its limits, paced to the UR5e's speed."""
    config = Panda().config
    slower = UR5e().config.limits.max_linear_speed / config.limits.max_linear_speed
    made = UR5e.of(config, Variation.only(replace(NOMINAL, speed=min(1.0, slower))))
    assert isinstance(made, UR5e)
    return made


PLACES: dict[str, dict[str, Play]] = {
    "panda": {
        "in process": here(Panda),
        "lockstep": lockstep,
        "real time": by_graph("panda_sim", "panda"),
        "half speed": under(speed=0.5),
        "40 ms delay": under(delay_s=0.04),
        "tracker noise and bias": under(noise_m=0.002, bias_m=0.002),
        "all together": here(lambda: Panda().under(Panda().variation)),
        "Panda's policy on the UR5e": here(pandas_on_ur5e),
    },
    "ur5e": {"UR5e in process": here(UR5e), "UR5e on its control box": by_graph("ur5e_sim", "ur5e")},
}


def show(rows: Sequence[Row]) -> None:
    """A row for each method, a column for each place: successes of the seeds, in percent."""
    places = [place for of_task in PLACES.values() for place in of_task]
    shown = table("place", *dict.fromkeys(row.method for row in rows))
    for place in places:
        cells = []
        for method in dict.fromkeys(row.method for row in rows):
            mine = [row for row in rows if (row.place, row.method) == (place, method)]
            shares = [f"{100 * row.successes / row.episodes:.0f}" if row.episodes else row.otherwise for row in mine]
            cells.append(", ".join(shares))
        shown.add_row(place, *cells)
    console().print(shown)

