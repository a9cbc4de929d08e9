"""`cail demo`: the whole loop on a simulated task, from mixed demonstrations to a policy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def register(commands: Any) -> None:
    p = commands.add_parser("demo", help="the whole loop once: demonstrate, rank, train, evaluate")
    p.add_argument("--out", type=Path, default=Path("demo"), metavar="DIR", help="default: demo")
    p.add_argument("--seed", type=int, default=0)
    p.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    raise SystemExit("not yet")
