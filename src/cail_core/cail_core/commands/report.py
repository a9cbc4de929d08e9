"""`cail report`: one self-contained HTML page about one run or several."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cail_core.cli import whole_number
from cail_core.report.make import EPISODES, REPORT, write_report


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "report", help="make one HTML page of runs: result, trust, curves, what to do next",
        description="Make a page that opens anywhere, without network: how good the policy is beside its references, whom it "
        "trusted, how it learned. The first RUN is what it is about, the others are compared with it.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders of `cail train`, all of one task")
    parser.add_argument("--out", type=Path, metavar="FILE.html", help=f"default: RUN/{REPORT} for one run, {REPORT} for several")
    parser.add_argument("--demos", type=Path, metavar="D", help="the demonstrations, where the run folder does not lead to them")
    parser.add_argument("--episodes", type=whole_number, default=EPISODES, metavar="N",
                        help=f"fresh episodes for each policy, 0 for none (default: {EPISODES}); kept in the run folder")
    parser.add_argument("--seed", type=whole_number, default=0, metavar="S", help="which fresh episodes (default: 0)")
    parser.add_argument("--no-stress", action="store_true",
                        help="do not play the short form of `cail stress` where the policy's card does not have it yet")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    out = args.out or (args.runs[0] / REPORT if len(args.runs) == 1 else Path(REPORT))
    if args.out is None and len(args.runs) == 1 and not args.runs[0].is_dir():
        out = Path(REPORT)  # so that the run, and not its report, is what is said to be missing
    written = write_report(args.runs, out, demos=args.demos, episodes=args.episodes, seed=args.seed, stress=not args.no_stress)
    print(f"report: {written}")
    return 0
