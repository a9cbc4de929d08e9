"""`cail tune`: settings of the confidence that order held-out rankings best."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cail_core.cli import whole_number
from cail_core.errors import BadInput
from cail_core.layers import FILE, SET, add_settings_arguments
from cail_core.tasks import get_task


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "tune", help="find settings by rankings that are held out",
        description="Search α, μ and the learning rate of the confidence with Optuna. Settings are scored by how well the "
        "learned confidence orders ranked episodes held out from training; true returns never take part. The search starts "
        "from the settings of the method and the task, and FILE.yaml holds only what differs from them.")
    parser.add_argument("--task", help="as for `cail train` (default: what the demonstrations say)")
    parser.add_argument("--demos", type=Path, required=True, metavar="D", help="folder with ranked demonstrations")
    parser.add_argument("--method", default="cail", help="default: cail")
    parser.add_argument("--trials", type=int, default=30, help="default: 30")
    parser.add_argument("--seed", type=whole_number, default=0)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.yaml", help="settings for `cail train --config`")
    add_settings_arguments(parser)
    several = parser.add_argument_group("several at once")
    several.add_argument("--at-once", type=whole_number, metavar="N",
                         help="trials that do not wait for each other; the outcome depends on it (default: 1, with Ray 8)")
    several.add_argument("--engine", choices=("local", "ray"), default="local", help="where trials run; default: local")
    several.add_argument("--address", metavar="HOST:PORT", help="a running Ray cluster")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import torch

    from cail_core.algorithms.method import method_settings
    from cail_core.demos.dataset import DemoDataset
    from cail_core.tasks.from_dataset import task_of
    from cail_core.tasks.scaling import Scaling
    from cail_core.training.engines import RayEngine
    from cail_core.training.tune import here, tune, write_config

    if args.out.suffix not in (".yaml", ".yml"):
        raise BadInput(f"expected --out to be a .yaml file, given {args.out}")
    if args.out.exists():
        raise BadInput(f"{args.out} exists; choose another --out")
    if args.address is not None and args.engine != "ray":
        raise BadInput(f"expected --address with --engine ray, given --engine {args.engine}; add --engine ray")
    dataset = DemoDataset(args.demos)
    task = get_task(args.task) if args.task else task_of(dataset)
    settings = method_settings(args.method, task.spec.name, args.config, args.set)
    recorded = dataset.demonstrations()
    demos = Scaling.of(task.spec, recorded).demos(recorded)
    torch.set_num_threads(1)
    engine = RayEngine(args.address) if args.engine == "ray" else None
    at_once = args.at_once if args.at_once is not None else 8 if engine else 1
    try:
        found = tune(demos, settings.config, args.trials, args.seed, task.spec.max_steps, at_once=at_once,
                     judges=engine.judge if engine else here)
    finally:
        if engine:
            engine.close()
    write_config(found, args.out, f"what `cail tune` found for {args.method} on {task.spec.name}; for `cail train --config`",
                 settings.differing(FILE, SET))
    beta, offline = found.config.beta, found.config.offline_confidence
    print(f"held-out pairs in order: {100 * found.before:.0f}% before, {100 * found.after:.0f}% with\n"
          f"beta.alpha {beta.alpha:g}, offline_confidence.mu {offline.mu:g}, "
          f"offline_confidence.learning_rate {offline.learning_rate:g}\n"
          f"settings: {args.out}")
    return 0
