"""`cail report`: from run folders to the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cail_core import durable
from cail_core.cli import say
from cail_core.errors import BadInput

REPORT = "report.html"
EPISODES = 100


def write_report(folders: Sequence[Path], out: Path, *, demos: Path | None = None, episodes: int = EPISODES,
                 seed: int = 0, stress: bool = True) -> Path:
    """Put the report on `folders` at `out`, whole or not at all; an older report there is replaced. `stress`: where the task can
    be played under other conditions, the short form of it, which goes onto the first policy's card."""
    from cail_core.report.findings import gather
    from cail_core.report.page import page

    if out.is_dir():
        raise BadInput(f"expected --out to be a file such as {out / REPORT}, given a folder")
    if not out.absolute().parent.is_dir():
        raise BadInput(f"expected {out.absolute().parent} to be a folder in which {out.name} can be made; create it first")
    durable.write_bytes(out, page(gather(folders, demos, episodes, seed, stress=stress)).encode())
    return out


def report_after_training(run: Path, demos: Path, episodes: int = EPISODES, *, stress: bool = True) -> None:
    """Write `RUN/report.html` and say where it is. The run is complete without it, so that whatever fails here is one line."""
    try:
        print(f"report: {write_report([run], run / REPORT, demos=demos, episodes=episodes, stress=stress)}")
    except Exception as fault:
        say(f"warning: the run is complete, its report is not ({type(fault).__name__}: {fault}); try `cail report {run}`")
