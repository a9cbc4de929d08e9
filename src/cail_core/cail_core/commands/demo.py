"""`cail demo`: the whole loop on a simulated task, command by command, from mixed demonstrations to a policy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from cail_core.cli import whole_number
from cail_core.errors import CailError
from cail_core.progress import console, table

EPISODES = 100


def register(commands: Any) -> None:
    p = commands.add_parser("demo", help="the whole loop once: demonstrate, rank, train, evaluate")
    p.add_argument("--out", type=Path, default=Path("demo"), metavar="DIR", help="goes on where it stopped (default: demo)")
    p.add_argument("--seed", type=whole_number, default=0)
    p.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    from cail_core.cli import main
    from cail_core.demos.dataset import DemoDataset

    out, demos, seed = args.out, args.out / "demonstrations", str(args.seed)
    say = console().print

    def cail(*words: object) -> None:
        command = [str(word) for word in words]
        say(f"\n$ cail {' '.join(command)}", style="bold")
        if main(command) != 0:
            raise CailError(f"cail {' '.join(command)} did not succeed; see above")

    say("Five people of different skill steer a point mass; only 10 of their 200 demonstrations get ranked.")
    cail("demos", "collect", "--task", "pointmass", "--mix", "paper", "--episodes", 200, "--seed", seed, "--out", demos)
    if not any(row.rank for row in DemoDataset(demos).rows):
        cail("demos", "rank", demos, "--by", "return", "--fraction", 0.05, "--seed", seed)
    for method in ("bc", "cail-bc"):
        cail("train", "--task", "pointmass", "--demos", demos, "--method", method, "--seed", seed, "--out", out / method)
    _summary(out, demos, args.seed)


def _summary(out: Path, demos: Path, seed: int) -> None:
    from cail_core.demos.dataset import DemoDataset
    from cail_core.demos.layout import read_parquet
    from cail_core.evaluation import Evaluation, evaluate
    from cail_core.figures import demo_figure
    from cail_core.policy import load_policy
    from cail_core.tasks import Policy, get_task

    task, dataset = get_task("pointmass"), DemoDataset(demos)
    rng = np.random.default_rng(seed)
    policies: dict[str, Policy] = {
        "cail-bc": load_policy(out / "cail-bc" / "policy"),
        "bc, all alike": load_policy(out / "bc" / "policy"),
        "doing nothing": lambda x: np.zeros((len(x), 2), np.float32),
        "random": lambda x: rng.uniform(-1, 1, (len(x), 2)).astype(np.float32),
    }
    results: dict[str, Evaluation] = {name: evaluate(task, policy, EPISODES, seed) for name, policy in policies.items()}
    confidence = read_parquet(out / "cail-bc" / "confidence.parquet").column("confidence").to_numpy()
    people = sorted({row.demonstrator for row in dataset.rows}, key=lambda who: -_mean_return(dataset, who))

    shown = table("demonstrator", "return", "mean confidence")
    trust = {}
    for who in people:
        pairs = np.concatenate([confidence[r.from_index : r.to_index] for r in dataset.rows if r.demonstrator == who])
        trust[who] = float(pairs.mean())
        shown.add_row(who, f"{_mean_return(dataset, who):.2f}", f"{trust[who]:.2f}")
    console().print(shown)
    shown = table(f"policy, {EPISODES} episodes", "return", "success")
    for name, result in results.items():
        shown.add_row(name, f"{result.mean:.2f} ± {result.std:.2f}", f"{100 * result.success_rate:.0f}%")
    console().print(shown)
    picture = demo_figure(
        out / "demo.png",
        dataset,
        confidence,
        trust,
        {"best person": _mean_return(dataset, people[0]), **{name: r.mean for name, r in results.items()}},
    )
    print(f"The picture: {picture}\nThe policy: {out / 'cail-bc' / 'policy'}")
    print(f"Next: cail eval --policy {out / 'cail-bc' / 'policy'}, or bring your own: cail demos import --help")


def _mean_return(dataset: Any, who: str) -> float:
    return float(np.mean([row.undiscounted_return for row in dataset.rows if row.demonstrator == who]))
