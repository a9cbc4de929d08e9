"""`cail oracle`: demonstrators of graded quality for a task, out of one run of reinforcement learning on its true reward."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from cail_core.cli import whole_number
from cail_core.errors import BadInput
from cail_core.tasks import get_task


def register(commands: Any) -> None:
    p = commands.add_parser(
        "oracle",
        help="train demonstrators of graded quality on a task's own reward",
        description="Train on the task's own reward (SAC for reacher, PPO elsewhere) and keep the last policy as DIR/optimal and "
                    "intermediate ones beside it. `cail demos collect --policies DIR` lets them demonstrate. Killed, PPO goes "
                    "on after its last checkpoint when it is started again; SAC starts anew.",
    )
    p.add_argument("--task", required=True)
    p.add_argument("--steps", type=whole_number, metavar="N", help="environment steps (default: reacher 400000, ant 3000000, "
                                                                   "others 1000000)")
    p.add_argument("--seed", type=whole_number, default=0)
    p.add_argument("--out", type=Path, required=True, metavar="DIR",
                   help="folder for the policies' folders; new, or of a PPO run that was cut off")
    p.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    import torch

    from cail_bench.demonstrators.oracle import CHECKPOINT, Snapshot, choose, recipe_of, save_demonstrators, train_oracle
    from cail_core.evaluation import evaluate
    from cail_core.policy import Mode, network_of
    from cail_core.training.display import Display

    task, recipe = get_task(args.task), recipe_of(args.task)
    if args.steps is not None:
        recipe = replace(recipe, steps=args.steps)
    resumable = recipe.method == "ppo" and (args.out / CHECKPOINT).is_file()
    if args.out.exists() and not resumable and (not args.out.is_dir() or any(args.out.iterdir())):
        raise BadInput(f"expected a new or empty folder as --out, {args.out} is not")
    torch.set_num_threads(1)  # networks this small lose time to threads
    snapshots = []
    with Display(recipe.steps, 0, f"{recipe.method} on {task.spec.name}", show=True) as display:
        for snapshot in train_oracle(task, recipe, args.seed, args.out):
            snapshots.append(snapshot)
            display.show(snapshot.steps, {"return": snapshot.mean_return})
            print(f"{snapshot.steps} steps, {snapshot.updates} updates: return {snapshot.mean_return:.2f}", flush=True)

    def again(snapshot: Snapshot) -> float:
        return evaluate(task, Mode(network_of(snapshot.actor)), 100, args.seed + 2).mean

    chosen = choose(snapshots, recipe.wanted, recipe.candidates, again if recipe.candidates > 1 else lambda s: s.mean_return)
    for name, value in save_demonstrators(chosen, task, recipe, args.seed, args.out).items():
        print(f"{name}: return {value:.2f}, {args.out / name}")
    (args.out / CHECKPOINT).unlink(missing_ok=True)
