"""`cail train`: learns a confidence for every demonstration pair and a policy."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cail_core.algorithms import method_names
from cail_core.cli import whole_number
from cail_core.errors import BadInput
from cail_core.layers import add_settings_arguments
from cail_core.report.make import EPISODES, report_after_training
from cail_core.tasks import Task, get_task


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "train", help="learn confidences and a policy from demonstrations",
        description="Fill the run folder RUN; a run that is there already goes on after its last checkpoint.",
        epilog=f"methods: {', '.join(method_names())}; docs/algorithms.md describes them")
    add_arguments(parser)
    parser.add_argument("--show-config", action="store_true",
                        help="print every setting and where it comes from, and end there")
    parser.add_argument("--no-stress", action="store_true",
                        help="do not play the short form of `cail stress` at the end, where the task has it")
    parser.add_argument("--report-episodes", type=whole_number, default=EPISODES, metavar="N",
                        help=f"fresh episodes in the run's report, 0 for none (default: {EPISODES})")
    parser.set_defaults(run=run)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to train, on what, and where it goes."""
    parser.add_argument("--task", help="an installed task, or gym:[MODULE:]ID for a Gymnasium environment (default: what the "
                                       "demonstrations say; without an environment, methods that need none)")
    parser.add_argument("--demos", type=Path, metavar="D", help="folder with demonstrations")
    parser.add_argument("--method", default="cail", help="default: cail")
    parser.add_argument("--seed", type=whole_number, default=0, help="the same seed gives the same run; default: 0")
    parser.add_argument("--steps", type=_steps, metavar="N",
                        help="environment steps, for methods without an environment gradient steps; default: the method's")
    add_settings_arguments(parser)
    parser.add_argument("--out", type=Path, metavar="RUN", help="run folder")


def _steps(text: str) -> int | None:
    return None if text == "default" else whole_number(text)


def run(args: argparse.Namespace) -> int:
    if args.show_config:
        from cail_core.algorithms.method import method_settings

        task = args.task or ("" if args.demos is None else _task(args).spec.name)
        settings = method_settings(args.method, task, args.config, args.set)
        in_place = "" if args.steps is None else f"# --steps: {args.steps} in place of the steps below\n"
        print(in_place + settings.text())
        return 0
    train_as_asked(args, show=True)
    print(f"policy: {args.out / 'policy'}\nconfidence: {args.out / 'confidence.parquet'}\ncurves: {args.out / 'metrics.csv'}")
    report_after_training(args.out, args.demos, args.report_episodes, stress=not args.no_stress)
    return 0


def train_as_asked(args: argparse.Namespace, *, show: bool = False, stop: Callable[[], bool] | None = None,
                   watch: Callable[[int, int, Mapping[str, float]], None] | None = None) -> None:
    """What `add_arguments` describes; `watch` and `stop` as in `cail_core.training.train`."""
    import torch  # here, so that the other commands start at once

    from cail_core.algorithms.method import method_settings
    from cail_core.algorithms.registry import get_method
    from cail_core.demos.dataset import DemoDataset
    from cail_core.training import train

    if missing := [f"--{name}" for name in ("demos", "out") if getattr(args, name) is None]:
        raise BadInput(f"the following arguments are required: {', '.join(missing)}")
    get_method(args.method)  # an unknown one is said before anything is read
    task = _task(args)
    config = method_settings(args.method, task.spec.name, args.config, args.set).config
    demos = DemoDataset(args.demos).demonstrations()
    torch.set_num_threads(1)  # the networks are small: more threads cost more than they bring, and change the last bits
    train(task, demos, args.method, config, seed=args.seed, out=args.out, steps=args.steps, demos_name=args.demos.name,
          demos_folder=args.demos, show=show, watch=watch, stop=stop)


def _task(args: argparse.Namespace) -> Task:
    """The one asked for, else the one that the demonstrations are of."""
    from cail_core.demos.dataset import DemoDataset
    from cail_core.tasks.from_dataset import task_of

    return get_task(args.task) if args.task else task_of(DemoDataset(args.demos))
