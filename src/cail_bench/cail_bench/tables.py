"""`cail bench` for the paper's tables: which cells are wanted, which are there, run the rest, publish."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cail_bench import publish
from cail_bench.cells import UNTRAINED, Cell, Row, config_of, finished, mix_of, prepare_demonstrations, run_cell
from cail_bench.studies import BUDGETS, STUDIES
from cail_core.errors import BadInput, CailError
from cail_core.progress import bar, console
from cail_core.progress import table as shown_table
from cail_core.tasks.base import get_task
from cail_core.training.engines import Engine

ONLY = ("method", "env", "seed", "at")


def parse_only(text: str | None) -> dict[str, set[str]]:
    """`method=cail,env=reacher,env=ant` → {"method": {"cail"}, "env": {"reacher", "ant"}}."""
    wanted: dict[str, set[str]] = {}
    for part in (text or "").split(","):
        name, sign, value = part.partition("=")
        if not text:
            break
        if not sign or name not in ONLY or not value:
            raise BadInput(f"--only: expected NAME=VALUE,… with a name out of {', '.join(ONLY)}, given '{part}'")
        wanted.setdefault(name, set()).add(value)
    return wanted


def chosen(cells: list[Cell], only: Mapping[str, set[str]]) -> list[Cell]:
    def facts(cell: Cell) -> dict[str, str]:
        return {"method": cell.method, "env": cell.task, "seed": str(cell.seed), "at": cell.at}

    kept = [cell for cell in cells if all(facts(cell)[name] in values for name, values in only.items())]
    if not kept:
        have = {name: sorted({facts(cell)[name] for cell in cells}) for name in only}
        raise BadInput("--only leaves no cell; there are " + "; ".join(f"{name}: {', '.join(v)}" for name, v in have.items()))
    return kept


def runnable(cells: list[Cell]) -> tuple[list[Cell], list[str]]:
    """Without the cells of tasks that are not installed or bring no demonstrators; and a line for each such task."""
    reasons: dict[str, str] = {}
    for cell in cells:
        if cell.task not in reasons:
            try:
                task = get_task(cell.task)
                mix_of(task, cell.mix)
                task.make_env(1).close()  # what it needs may be missing only here
                reasons[cell.task] = ""
            except CailError as fault:
                reasons[cell.task] = f"{cell.task}: {' '.join(str(fault).split())}"
    return [cell for cell in cells if not reasons[cell.task]], [reason for reason in reasons.values() if reason]


def run(name: str, budget: str, out: Path, seed: int, engine: Engine, only: str | None = None) -> Path:
    """Run what is not done yet of a table, then write the table, its figures and the page."""
    study = STUDIES[name]
    wanted, skipped = runnable(chosen(study.make(BUDGETS[budget], seed), parse_only(only)))
    for text in skipped:
        console(stderr=True).print(f"skipped: {text}")
    if not wanted:
        raise BadInput(f"nothing of {name} can run here: {'; '.join(skipped)}")
    for cell in wanted:
        if cell.method not in UNTRAINED:
            config_of(cell)  # a wrong setting is said before hours of training
    rows: dict[str, Row] = {cell.key: row for cell in wanted if (row := finished(cell, out)) is not None}
    left = list({cell.key: cell for cell in wanted if cell.key not in rows}.values())
    sources = list({cell.demos_key: cell for cell in left}.values())
    with bar(f"{name}: demonstrations", len(sources)) as advance:
        for done, _ in enumerate(engine.run(prepare_demonstrations, sources, out), start=1):
            advance(done)
    with bar(name, len(left)) as advance:
        for done, (cell, row) in enumerate(engine.run(run_cell, left, out), start=1):
            rows[cell.key] = row
            advance(done)
            if not console(stderr=True).is_terminal:  # a log shows no bar until it ends
                what = f"{row['outcome']} {row.get(study.value, '')}"
                console(stderr=True).print(f"{name} {done}/{len(left)}: {cell.key}: {what} in {row['seconds']} s", soft_wrap=True)
    results = [(cell, rows[cell.key]) for cell in wanted]
    page = publish.write(name, study, results, budget, skipped, out)
    header, *lines = publish.table(study, results)
    shown = shown_table(*header)
    for line in lines:
        shown.add_row(*line)
    console().print(shown)
    return page
