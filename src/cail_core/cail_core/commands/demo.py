"""`cail demo`: the whole loop on a simulated task, command by command, from mixed demonstrations to a policy and its report."""

from __future__ import annotations

import argparse
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cail_core.cli import whole_number
from cail_core.errors import CailError, how_to_add
from cail_core.progress import console, table

METHOD, PLAIN = "cail-hybrid", "bc"
STORIES = {
    "panda": "People of different skill carry a bottle around an obstacle with a Panda; some detour, some collide, some drop it.",
    "pointmass": "Five people of different skill steer a point mass.",
}
RANKED = 10


@dataclass(frozen=True)
class Size:
    """How much of everything; what is not named trains as long as the method's own settings say."""

    demonstrations: int
    steps: dict[tuple[str, str], int]
    """By task and method."""
    played: int
    """Fresh episodes in the report, by each policy."""


FULL = Size(200, {("panda", METHOD): 57_600}, 100)  # fewer steps than usual, for those who are watching
QUICK = Size(20, {("panda", METHOD): 14_400, ("panda", PLAIN): 200, ("pointmass", METHOD): 2_000, ("pointmass", PLAIN): 200}, 4)
OVER_TOPICS = 10


def register(commands: Any) -> None:
    p = commands.add_parser("demo", help="the whole loop once: demonstrate, rank, train, evaluate, report")
    p.add_argument("--task", choices=tuple(STORIES), help="default: panda where PyBullet is installed, else pointmass")
    p.add_argument("--out", type=Path, metavar="DIR", help="goes on where it stopped (default: demo, or demo-TASK)")
    p.add_argument("--seed", type=whole_number, default=0)
    p.add_argument("--quick", action="store_true", help="little of everything: shows that all of it runs, not what it can do")
    p.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    from cail_core.cli import main
    from cail_core.demos.dataset import DemoDataset
    from cail_core.report.make import REPORT

    task = args.task or _default_task()
    if args.task is None and task == "pointmass":
        print(f"the simulated Panda needs PyBullet, which is not here, so a point mass instead; {how_to_add('sim')}")
    out: Path = args.out or Path("demo" if args.task is None else f"demo-{task}")
    demos, seed, size = out / "demonstrations", str(args.seed), QUICK if args.quick else FULL
    say = console().print

    def cail(*words: object) -> None:
        command = [str(word) for word in words]
        say(f"\n$ cail {' '.join(command)}", style="bold")
        code = main(command)
        if code == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        if code != 0:
            raise CailError(f"cail {' '.join(command)} did not succeed; see above")

    say(f"{STORIES[task]} {RANKED} of their {size.demonstrations} demonstrations get ranked.")
    cail("demos", "collect", "--task", task, "--mix", "paper", "--episodes", size.demonstrations, "--seed", seed,
         "--out", demos)
    if not any(row.rank for row in DemoDataset(demos).rows):
        cail("demos", "rank", demos, "--by", "return", "--choose", "unalike", "--fraction", RANKED / size.demonstrations,
             "--seed", seed)
    for method in (PLAIN, METHOD):
        fewer = ("--steps", size.steps[task, method]) if (task, method) in size.steps else ()
        cail("train", "--task", task, "--demos", demos, "--method", method, "--seed", seed, *fewer,
             *(("--report-episodes", size.played) if args.quick else ()),
             *(("--no-stress",) if args.quick or method == PLAIN else ()), "--out", out / method)
    film = out / METHOD / "episode.mp4"
    if task == "panda" and not film.exists() and not film.with_suffix(".gif").exists():
        cail("watch", "--policy", out / METHOD / "policy", "--seed", seed, "--out", film)
    cail("report", out / METHOD, out / PLAIN, "--episodes", size.played, *(("--no-stress",) if args.quick else ()),
         "--out", out / REPORT)
    _summary(task, out, demos, size.played)
    if size.played > OVER_TOPICS:
        _over_topics(task, out, args.seed)
    print(f"The report: {out / REPORT}\nThe policy: {out / METHOD / 'policy'}")
    print(f"Next: open the report; cail watch --policy {out / METHOD / 'policy'}; cail record --help to demonstrate yourself")


def _default_task() -> str:
    from importlib.util import find_spec

    return "panda" if find_spec("cail_sim") and find_spec("pybullet") else "pointmass"


def _over_topics(task: str, out: Path, seed: int) -> None:
    """The last promise: the same policy through the simulated arm's node, in real time."""
    from cail_core.over_topics import available, node_seed, play_over_topics
    from cail_core.tasks import get_task

    robot = get_task(task).spec.simulated_by
    if not robot:
        return
    if why := available():
        print(f"Not played over the ROS 2 topics: {why}")
        return
    console().print(f"\n$ cail eval --policy {out / METHOD / 'policy'} --over topics --episodes {OVER_TOPICS}", style="bold")
    try:
        played = play_over_topics(out / METHOD / "policy", robot, OVER_TOPICS, node_seed(seed))
    except CailError as fault:
        print(f"Over the ROS 2 topics it could not be played to the end: {fault}")
        return
    good = sum(one.outcome == "success" for one in played)
    print(f"Over the ROS 2 topics, in real time, behind the safety filter: {good} of {len(played)} episodes succeed")


def _summary(task: str, out: Path, demos: Path, episodes: int) -> None:
    """Whom the policy trusted, and what it does beside plain cloning, doing nothing and the demonstrators themselves."""
    from cail_core.demos.dataset import DemoDataset
    from cail_core.demos.layout import read_parquet
    from cail_core.policy import load_policy
    from cail_core.report.played import Played, play_for
    from cail_core.tasks import get_task

    dataset = DemoDataset(demos)
    rows, returns = dataset.rows, dataset.returns
    assert returns is not None
    confidence = read_parquet(out / METHOD / "confidence.parquet").column("confidence").to_numpy()
    people = sorted({row.demonstrator for row in rows},
                    key=lambda who: -np.mean([returns[row.episode_index] for row in rows if row.demonstrator == who]))
    shown = table("demonstrator", "episodes", "return", "success", "mean confidence")
    for who in people:
        mine = [row for row in rows if row.demonstrator == who]
        trust = np.concatenate([confidence[row.from_index : row.to_index] for row in mine]).mean()
        shown.add_row(who, str(len(mine)), f"{np.mean([returns[row.episode_index] for row in mine]):.1f}",
                      f"{100 * np.mean([row.outcome == 'success' for row in mine]):.0f}%", f"{trust:.2f}")
    console().print(shown)

    played: dict[str, Played] = {}
    for method, name in ((METHOD, METHOD), (PLAIN, f"{PLAIN}, all alike")):
        policy = load_policy(out / method / "policy")
        found = play_for(out / method, get_task(task), policy, episodes, 0, with_references=method == METHOD)
        played[name] = found.pop("policy")
        played |= found
    shown = table("policy", "episodes", "return", "success")
    for name, one in played.items():
        result = one.evaluation
        shown.add_row(name, str(len(result.returns)), f"{result.mean:.1f} ± {result.std:.1f}",
                      f"{100 * result.success_rate:.0f}%")
    console().print(shown)
