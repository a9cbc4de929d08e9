"""`cail tune`: settings of the confidence that order held-out rankings best."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cail_core.cli import whole_number
from cail_core.errors import BadInput
from cail_core.tasks import get_task


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "tune", help="find settings by rankings that are held out",
        description="Search α, μ and the learning rate of the confidence with Optuna. A setting is as good as the confidence "
        "learned with it orders ranked episodes whose rank it was not shown; true returns never take part.")
    parser.add_argument("--task", required=True)
    parser.add_argument("--demos", type=Path, required=True, metavar="D", help="folder with ranked demonstrations")
    parser.add_argument("--method", default="cail", help="default: cail")
    parser.add_argument("--trials", type=int, default=30, help="default: 30")
    parser.add_argument("--seed", type=whole_number, default=0)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.yaml", help="settings for `cail train --config`")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import torch

    from cail_core.algorithms.method import method_config
    from cail_core.demos.dataset import DemoDataset
    from cail_core.training.tune import tune, write_config

    if args.out.suffix not in (".yaml", ".yml"):
        raise BadInput(f"expected --out to be a .yaml file, given {args.out}")
    if args.out.exists():
        raise BadInput(f"{args.out} exists; choose another --out")
    config = method_config(args.method)
    task = get_task(args.task)
    demos = DemoDataset(args.demos).demonstrations()
    torch.set_num_threads(1)
    found = tune(demos, config, args.trials, args.seed, task.spec.max_steps)
    write_config(found.config, args.out)
    beta, before = found.config.beta, found.config.before
    print(f"held-out pairs in order: {100 * found.before:.0f}% as installed, {100 * found.after:.0f}% with\n"
          f"beta.alpha {beta.alpha:g}, before.mu {before.mu:g}, before.rate {before.rate:g}\n"
          f"settings: {args.out}")
    return 0
