"""`cail bench`: reproduces a figure or table; every run leaves a CSV and what made it."""

from __future__ import annotations

import argparse
import importlib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from cail_core.cli import whole_number
from cail_core.errors import BadInput

MEASUREMENTS = {
    "digests": "fingerprints of short runs, to compare two commits",
    "dataset": "writing, opening and reading demonstrations",
    "pointmass": "all methods on the point mass",
    "throughput": "steps per second of training against bare stepping, cost of the outer step",
    "ablation": "what each departure from the paper is worth, on the point mass",
    "spinning": "CAIL and its baselines on Reacher where all demonstrators but the best spin",
}
"""Name -> what it shows; the code is the module of that name in `cail_bench`. Other packages add theirs under
`cail.benchmarks`, as functions run(budget, out, seed) that return the file they made."""
PAPER = {
    "table1": "the converged return of all methods",
    "success": "success rates over 100 trials",
    "panda": "the whole of pick-place-avoid on two mixes",
    "panda-parts": "what a clone's success there is made of",
    "lapses": "demonstrations of which only a part is bad",
    "label-ratio": "the share of ranked demonstrations",
    "optimality": "the quality of the suboptimal demonstrations",
    "ratio": "the share of optimal demonstrations",
    "suboptimal": "no optimal demonstration at all",
    "confidence": "the confidence of each demonstrator",
    "alpha-mu": "sensitivity to α and μ",
    "theory": "the outer loss with the gate of Theorem 1 and without, and Eq. 7 as Theorem 2 has it",
}
"""The paper's tables and figures: `cail_bench.studies`."""
OURS = ("panda", "panda-parts", "lapses")
"""Those of them that are not the paper's; `paper` runs all others."""


def added() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group="cail.benchmarks")}


def register(commands: Any) -> None:
    tables = {**PAPER, "paper": f"all of these but {', '.join(OURS[:-1])} and {OURS[-1]}", **MEASUREMENTS}
    names = [*tables, *sorted(added())]
    p = commands.add_parser(
        "bench",
        help="measure, and keep the figures with what made them",
        description="A table of the paper is made of cells (method, task, seed). A cell that is done is not run again, one that "
        "was cut off goes on after its last checkpoint.",
        epilog="tables: " + "; ".join(f"{name}: {text}" for name, text in tables.items()),
    )
    p.add_argument("table", choices=names, metavar="TABLE", help=", ".join(names))
    p.add_argument("--budget", choices=("smoke", "short", "full"), default="short", help="default: short")
    p.add_argument("--seed", type=whole_number, default=0, help="the first of the seeds; default: 0")
    p.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    of_paper = p.add_argument_group("the paper's tables")
    of_paper.add_argument("--only", metavar="method=M,env=E", help="a part of the cells; also seed=N and at=COLUMN")
    of_paper.add_argument("--workers", type=int, metavar="N", help="processes on this machine; default: one per core")
    of_paper.add_argument("--engine", choices=("local", "ray"), default="local", help="where cells run; default: local")
    of_paper.add_argument("--address", metavar="HOST:PORT", help="a running Ray cluster; DIR must be on storage that it shares")
    p.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    if args.table not in (*PAPER, "paper"):
        given = [name for name in ("--only", "--workers", "--address") if getattr(args, name[2:]) is not None]
        given += ["--engine ray"] * (args.engine == "ray")
        if given:
            raise BadInput(f"expected {' and '.join(given)} with one of the paper's tables ({', '.join(PAPER)} or paper), "
                           f"given with '{args.table}'; leave it out")
        if args.table in MEASUREMENTS:
            run = importlib.import_module(f"cail_bench.{args.table.replace('-', '_')}").run
        else:
            run = added()[args.table].load()
        print(f"kept in {run(args.budget, args.out, args.seed)}")
        return
    from cail_bench import tables
    from cail_core.training.engines import LocalEngine, RayEngine

    engine = RayEngine(args.address, args.workers) if args.engine == "ray" else LocalEngine(args.workers)
    for name in [name for name in PAPER if name not in OURS] if args.table == "paper" else [args.table]:
        print(f"kept in {tables.run(name, args.budget, args.out, args.seed, engine, args.only)}")
