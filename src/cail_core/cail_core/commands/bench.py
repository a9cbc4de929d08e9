"""`cail bench`: reproduces a figure or table; every run leaves a CSV and what made it."""

from __future__ import annotations

import argparse
import importlib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from cail_core.cli import whole_number

TABLES = {
    "dataset": "writing, opening and reading demonstrations",
    "pointmass": "all methods on the point mass",
    "throughput": "steps per second of training against bare stepping, cost of the outer step",
    "ablation": "what each departure from the paper is worth, on the point mass",
    "reacher": "CAIL and its baselines on Reacher with the paper's mix",
}
"""Name -> what it shows; the code is the module of that name in `cail_core.benchmarks`. Other packages add theirs under
`cail.benchmarks`, as functions run(budget, out, seed) that return the file they made."""


def added() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group="cail.benchmarks")}


def register(commands: Any) -> None:
    names = [*TABLES, *sorted(added())]
    p = commands.add_parser(
        "bench",
        help="measure, and keep the figures with what made them",
        epilog="tables: " + "; ".join(f"{name}: {text}" for name, text in TABLES.items()),
    )
    p.add_argument("table", choices=names, metavar="TABLE", help=", ".join(names))
    p.add_argument("--budget", choices=("smoke", "short", "full"), default="short", help="default: short")
    p.add_argument("--seed", type=whole_number, default=0)
    p.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    p.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    if args.table in TABLES:
        run = importlib.import_module(f"cail_core.benchmarks.{args.table.replace('-', '_')}").run
    else:
        run = added()[args.table].load()
    print(f"kept in {run(args.budget, args.out, args.seed)}")
