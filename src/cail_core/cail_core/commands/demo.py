"""`cail demo`: the whole loop on a simulated task, command by command, from mixed demonstrations to a policy and its report."""

from __future__ import annotations

import argparse
import signal
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
STEPS = {"panda": 57_600}
"""Fewer than usual, for those who are watching."""


def register(commands: Any) -> None:
    p = commands.add_parser("demo", help="the whole loop once: demonstrate, rank, train, evaluate, report")
    p.add_argument("--task", choices=tuple(STORIES), help="default: panda where PyBullet is installed, else pointmass")
    p.add_argument("--out", type=Path, metavar="DIR", help="goes on where it stopped (default: demo, or demo-TASK)")
    p.add_argument("--seed", type=whole_number, default=0)
    p.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    from cail_core.cli import main
    from cail_core.demos.dataset import DemoDataset
    from cail_core.report.make import REPORT

    task = args.task or _default_task()
    out: Path = args.out or Path("demo" if args.task is None else f"demo-{task}")
    demos, seed = out / "demonstrations", str(args.seed)
    say = console().print

    def cail(*words: object) -> None:
        command = [str(word) for word in words]
        say(f"\n$ cail {' '.join(command)}", style="bold")
        code = main(command)
        if code == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        if code != 0:
            raise CailError(f"cail {' '.join(command)} did not succeed; see above")

    if args.task is None and task == "pointmass":
        say(f"A point mass, since the simulated Panda needs PyBullet: {how_to_add('sim')}")
    say(f"{STORIES[task]} 10 of their 200 demonstrations get ranked.")
    cail("demos", "collect", "--task", task, "--mix", "paper", "--episodes", 200, "--seed", seed, "--out", demos)
    if not any(row.rank for row in DemoDataset(demos).rows):
        cail("demos", "rank", demos, "--by", "return", "--choose", "unalike", "--fraction", 0.05, "--seed", seed)
    for method in (PLAIN, METHOD):
        fewer = ("--steps", STEPS[task]) if method == METHOD and task in STEPS else ()
        cail("train", "--task", task, "--demos", demos, "--method", method, "--seed", seed, *fewer, "--out", out / method)
    film = out / METHOD / "episode.mp4"
    if task == "panda" and not film.exists() and not film.with_suffix(".gif").exists():
        cail("watch", "--policy", out / METHOD / "policy", "--seed", seed, "--out", film)
    cail("report", out / METHOD, out / PLAIN, "--out", out / REPORT)
    _summary(task, out, demos)
    print(f"The report: {out / REPORT}\nThe policy: {out / METHOD / 'policy'}")
    print(f"Next: open the report; cail watch --policy {out / METHOD / 'policy'}; cail record --help to demonstrate yourself")


def _default_task() -> str:
    from importlib.util import find_spec

    return "panda" if find_spec("cail_sim") and find_spec("pybullet") else "pointmass"


def _summary(task: str, out: Path, demos: Path) -> None:
    """Whom the policy trusted, and what it does beside plain cloning, doing nothing and the demonstrators themselves."""
    from cail_core.demos.dataset import DemoDataset
    from cail_core.demos.layout import read_parquet
    from cail_core.policy import load_policy
    from cail_core.report.make import EPISODES
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
        found = play_for(out / method, get_task(task), policy, EPISODES, 0, with_references=method == METHOD)
        played[name] = found.pop("policy")
        played |= found
    shown = table("policy", "episodes", "return", "success")
    for name, one in played.items():
        result = one.evaluation
        shown.add_row(name, str(len(result.returns)), f"{result.mean:.1f} ± {result.std:.1f}",
                      f"{100 * result.success_rate:.0f}%")
    console().print(shown)
