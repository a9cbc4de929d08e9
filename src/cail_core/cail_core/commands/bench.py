"""`cail bench`: reproduces a figure or table; every run leaves a CSV and what made it."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from cail_core.cli import whole_number

TABLES = {
    "dataset": "writing, opening and reading demonstrations",
    "pointmass": "all methods on the point mass",
    "throughput": "steps per second of training against bare stepping, cost of the outer step",
    "reacher": "CAIL and its baselines on Reacher with the paper's mix",
}
"""Name -> what it shows; the code is the module of that name in `cail_core.benchmarks`."""


def register(commands: Any) -> None:
    p = commands.add_parser(
        "bench",
        help="measure, and keep the figures with what made them",
        epilog="tables: " + "; ".join(f"{name}: {text}" for name, text in TABLES.items()),
    )
    p.add_argument("table", choices=TABLES, metavar="TABLE", help=", ".join(TABLES))
    p.add_argument("--budget", choices=("smoke", "short", "full"), default="short", help="default: short")
    p.add_argument("--seed", type=whole_number, default=0)
    p.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    p.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    benchmark = importlib.import_module(f"cail_core.benchmarks.{args.table.replace('-', '_')}")
    print(f"kept in {benchmark.run(args.budget, args.out, args.seed)}")
