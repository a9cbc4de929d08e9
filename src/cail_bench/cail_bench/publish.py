"""What a study leaves behind: a CSV with every seed, a Markdown table beside the paper's numbers, figures, one HTML page."""

from __future__ import annotations

import base64
import csv
import html
import io
import math
import re
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cail_bench.cells import DIVERGED, DONE, EQUATION_7, ORACLE, RUN, Cell, Row, curve
from cail_bench.paper_numbers import Number
from cail_bench.studies import Study
from cail_core import durable
from cail_core.errors import MissingDependency, how_to_add
from cail_core.machine import describe

Results = Sequence[tuple[Cell, Row]]
COLUMNS = ("at", "task", "method", "seed", "outcome", "steps", "return", "return_std", "success", "spearman",
           "spearman_episodes", "confidence", "outer_first", "outer_last", "outer_rise", "rising", "mu", "gradient_first",
           "gradient_least", "gradient_bound", "evaluations",
           "auc_within", "bad_share", "bad_share_of_data", "effective_share", "auc", "seconds")
BINS = 40  # points of a curve


class Summary(NamedTuple):
    """All seeds of one method in one column."""

    values: NDArray[np.float64]
    diverged: int
    failed: int

    def text(self, percent: bool) -> str:
        scale, digits = (100.0, 0) if percent else (1.0, 2)
        lost = [f"{n} {what}" for n, what in ((self.diverged, "diverged"), (self.failed, "failed")) if n]
        if not len(self.values):
            return ", ".join(lost) or "–"
        shown = f"{scale * self.values.mean():.{digits}f}{'%' if percent else ''}"
        if len(self.values) > 1:
            shown += f" ± {scale * self.values.std(ddof=1):.{digits}f}"
        return f"{shown} ({', '.join(lost)})" if lost else shown


def summarise(results: Results, value: str) -> dict[str, dict[str, Summary]]:
    """By column and method, both in the order in which they came."""
    made: dict[str, dict[str, list[Row]]] = {}
    for cell, row in results:
        made.setdefault(cell.at, {}).setdefault(cell.method, []).append(row)
    return {at: {method: Summary(np.array([row[value] for row in rows if _usable(row, value)], dtype=np.float64),
                                 sum(row["outcome"].startswith(DIVERGED) for row in rows),
                                 sum(not row["outcome"].startswith((DONE, DIVERGED)) for row in rows))
                 for method, rows in methods.items()} for at, methods in made.items()}


def _usable(row: Row, value: str) -> bool:
    return row["outcome"] == DONE and isinstance(row.get(value), (int, float)) and math.isfinite(row[value])


def welch(better: NDArray[np.float64], other: NDArray[np.float64]) -> float | None:
    """p of Welch's t-test, null hypothesis: the first mean is not larger (the paper's footnote). None below two values each.

    Where neither varies it is 0 or 1, and None for equal ones.
    """
    if len(better) < 2 or len(other) < 2:
        return None
    if np.ptp(better) == 0 and np.ptp(other) == 0:
        return None if better[0] == other[0] else float(better[0] < other[0])
    try:
        from scipy.stats import ttest_ind
    except ImportError:
        raise MissingDependency(f"p-values need SciPy; {how_to_add('bench')}") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one side may not vary at all
        return float(ttest_ind(better, other, equal_var=False, alternative="greater").pvalue)


def published(number: Number | None, percent: bool) -> str:
    if number is None:
        return ""
    mean, std = number
    if percent:
        return f"{100 * mean:.0f}%"
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def table(study: Study, results: Results) -> list[list[str]]:
    """Header and rows: methods down; for each column the measured value, the paper's, and p against ours."""
    columns, percent = summarise(results, study.value), study.value == "success"
    methods = list(dict.fromkeys(cell.method for cell, _ in results))
    compared = study.value in ("return", "success") and any(method in methods for method in study.ours)
    header = ["method"]
    for at in columns:
        header += [at, *([f"{at}, paper"] if at in study.published else []), *(["p"] if compared else [])]
    rows = [header]
    for method in methods:
        row = [method]
        for at, found in columns.items():
            summary = found.get(method)
            row.append(summary.text(percent) if summary else "")
            if at in study.published:
                row.append(published(study.published[at].get(method), percent))
            if compared:
                ours = next((name for name in study.ours if name in found), None)
                p = None if method in (ours, ORACLE) or summary is None or ours is None else welch(
                    found[ours].values, summary.values)
                row.append("" if p is None else f"{p:.2g}")
        rows.append(row)
    return rows


def markdown(name: str, study: Study, results: Results, budget: str, skipped: Sequence[str]) -> str:
    header, *rows = table(study, results)
    seeds, methods = sorted({cell.seed for cell, _ in results}), {cell.method for cell, _ in results}
    notes = [f"Budget `{budget}`, seeds {seeds[0]} to {seeds[-1]}; mean ± standard deviation over seeds."]
    if "p" in header:
        notes.append(f"p: Welch's t-test, null hypothesis that {_first_run(study.ours)} is not better.")
    if ORACLE in methods:
        notes.append(f"`{ORACLE}` is the best demonstrator.")
    if EQUATION_7 in methods:
        notes.append(f"The outer loss after the last step. `{EQUATION_7}` is Eq. 7 by plain gradient steps on one batch, with "
                     "α = C₁/√T and μ = C₂/T (Theorem 2); the CSV has the share of its steps that raise it (`rising`) "
                     "and the gradient.")
    shown = [header, ["---"] * len(header), *rows]
    return "\n".join([f"# {name}: {study.text}", "", *notes, "", *(f"| {' | '.join(row)} |" for row in shown), "",
                      *(f"Skipped: {text}" for text in skipped), ""])


def _first_run(names: Sequence[str]) -> str:
    first, *others = (f"`{name}`" for name in names)
    return f"{first} (where it was not run, {' or '.join(others)})" if others else first


def write(name: str, study: Study, results: Results, budget: str, skipped: Sequence[str], out: Path) -> Path:
    """All of a study's files; the page shows every study that `out` holds."""
    durable.make_folder(out)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for cell, row in results:
        trust = " ".join(f"{who}:{value}" for who, value in row.get("confidence", {}).items())
        along = " ".join(f"{steps:.0f}:{value:g}" for steps, value in curve(out / "cells" / cell.key / RUN, "evaluation_success"))
        within = " ".join(f"{who}:{value}" for who, value in row.get("auc", {}).items())
        writer.writerow({**row, "at": cell.at, "confidence": trust, "evaluations": along, "auc": within})
    durable.write_bytes(out / f"{name}.csv", text.getvalue().encode())
    durable.write_json(out / f"{name}.json", {
        **describe(), "study": name, "budget": budget, "skipped": list(skipped),
        "seconds": round(sum(row["seconds"] for _, row in results), 1),
        "changes": {cell.at: cell.changes for cell, _ in results}})
    durable.write_bytes(out / f"{name}.md", markdown(name, study, results, budget, skipped).encode())
    for kind in study.figures:
        durable.write_bytes(out / f"{name}-{kind}.png", FIGURES[kind](study, results, out))
    page = out / "index.html"
    durable.write_bytes(page, _page(out).encode())
    return page


# --- figures ----------------------------------------------------------------------------------------------------------------


def _canvas(panels: int) -> tuple[Any, list[Any]]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, max(1, panels), figsize=(5.2 * max(1, panels), 3.8), layout="constrained", squeeze=False)
    return figure, list(axes[0])


def _png(figure: Any) -> bytes:
    from matplotlib import pyplot

    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=100, metadata={"Software": None})
    pyplot.close(figure)
    return image.getvalue()


def band(curves: Sequence[Sequence[tuple[float, float]]], end: float) -> tuple[Any, Any, Any]:
    """Steps, mean and standard deviation over seeds, of curves whose points lie at different steps."""
    edges = np.linspace(0.0, end, BINS + 1)
    binned = np.full((len(curves), BINS), np.nan)
    for i, points in enumerate(curves):
        place = np.clip(np.searchsorted(edges, [x for x, _ in points], side="left") - 1, 0, BINS - 1)
        for k in set(place.tolist()):
            binned[i, k] = np.mean([y for (_, y), at in zip(points, place, strict=True) if at == k])
    some = ~np.isnan(binned).all(axis=0)
    return edges[1:][some], np.nanmean(binned[:, some], axis=0), np.nanstd(binned[:, some], axis=0)


def _curves(study: Study, results: Results, out: Path, what: str = "return") -> bytes:
    """A panel for each task in which somebody acted while learning; their returns are those with exploration."""
    from matplotlib.ticker import EngFormatter

    panels: dict[str, dict[str, list[list[tuple[float, float]]]]] = {}
    for cell, _ in results:
        place, label = (cell.at, cell.method) if what == "return" else (cell.method, cell.at)
        points = curve(out / "cells" / cell.key / RUN, what)
        if cell.method == EQUATION_7:
            points = [(step / cell.steps, value) for step, value in points]
        if points:
            panels.setdefault(place, {}).setdefault(label, []).append(points)
    figure, axes = _canvas(len(panels))
    for panel, (place, series) in zip(axes, panels.items(), strict=False):  # one, empty, where there is no curve at all
        for label, curves in series.items():
            x, mean, std = band(curves, max(points[-1][0] for points in curves))
            line, = panel.plot(x, mean, label=label)
            panel.fill_between(x, mean - std, mean + std, alpha=0.2, color=line.get_color())
        panel.set(xlabel="environment steps", ylabel="return while exploring" if what == "return" else "outer loss", title=place)
        if place == EQUATION_7:
            panel.set(xlabel="share of the T steps")
        else:
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _png(figure)


def _bars(study: Study, results: Results, out: Path) -> bytes:
    columns = summarise(results, study.value)
    figure, axes = _canvas(len(columns))
    for panel, (at, found) in zip(axes, columns.items(), strict=True):
        names = [method for method, summary in found.items() if len(summary.values)]
        means = [found[method].values.mean() for method in names]
        panel.barh(names, means, xerr=[found[method].values.std() for method in names], color="#3d6fb4")
        panel.invert_yaxis()
        panel.set(title=at, xlabel=study.value, **({"xlim": (0.0, 1.02)} if study.value == "success" else {}))
    return _png(figure)


def _lines(study: Study, results: Results, out: Path) -> bytes:
    columns = summarise(results, study.value)
    figure, (panel,) = _canvas(1)
    for number, method in enumerate(dict.fromkeys(cell.method for cell, _ in results)):
        measured = [at for at, found in columns.items() if method in found and len(found[method].values)]
        for name, group in groupby(measured, key=lambda at: at.partition("=")[0] if "=" in at else ""):  # a line for each setting
            places = list(group)
            values = [columns[at][method].values for at in places]
            panel.errorbar(places, [v.mean() for v in values], yerr=[v.std() for v in values], marker="o", capsize=3,
                           color=f"C{number}", label=method if name in ("", measured[0].partition("=")[0]) else None)
    panel.set(ylabel=study.value, title=textwrap.fill(study.text, 45))
    panel.tick_params(axis="x", labelrotation=45)
    panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _png(figure)


def _confidence(study: Study, results: Results, out: Path) -> bytes:
    groups: dict[str, list[Mapping[str, float]]] = {}
    for cell, row in results:
        if row.get("confidence"):
            groups.setdefault(f"{cell.method} on {cell.task}", []).append(row["confidence"])
    figure, axes = _canvas(len(groups))
    for panel, (title, seeds) in zip(axes, groups.items(), strict=False):
        places = max(len(seed) for seed in seeds)
        by_place = np.array([[*seed.values()] for seed in seeds if len(seed) == places])
        panel.bar([str(k + 1) for k in range(places)], by_place.mean(axis=0), yerr=by_place.std(axis=0), color="#2a9d6f")
        panel.set(title=title, xlabel="demonstrators, best first", ylabel="mean confidence")
    return _png(figure)


def _outer(study: Study, results: Results, out: Path) -> bytes:
    return _curves(study, results, out, "outer_loss")


def _rate(study: Study, results: Results, out: Path) -> bytes:
    """Theorem 2: the least ‖∇_β L_out‖² of T steps against T, where it is not 0, and its bound; every seed."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for cell, row in results:
        if _usable(row, "gradient_least") and row["gradient_least"] > 0:
            found.setdefault(cell.changes["loss"], []).append((cell.steps, row["gradient_least"], row["gradient_bound"]))
    figure, (panel,) = _canvas(1)
    for number, (loss, points) in enumerate(found.items()):
        steps, least, bound = zip(*points, strict=True)
        panel.loglog(steps, least, "o", color=f"C{number}", label=loss)
        panel.loglog(steps, bound, "_", color=f"C{number}", label=f"{loss}: the bound, O(1/√T)")
    panel.set(xlabel="T", ylabel="least ‖∇β L_out‖² of T steps", title=f"{EQUATION_7} (without those that reach 0)")
    if found:
        panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _png(figure)


FIGURES = {"curves": _curves, "bars": _bars, "lines": _lines, "confidence": _confidence, "outer": _outer, "rate": _rate}

STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left}img{max-width:100%}.wide{overflow-x:auto}"""


def _page(out: Path) -> str:
    """Every study of the folder, from its Markdown and its figures, in one file that needs nothing else."""
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>CAIL: the paper's tables</title><style>{STYLE}</style>"]
    for path in sorted(out.glob("*.md")):
        if not path.with_suffix(".csv").is_file():
            continue
        parts.append(_html(path.read_text(encoding="utf-8")))
        for image in sorted(out.glob(f"{path.stem}-*.png")):
            if image.stem.removeprefix(f"{path.stem}-") in FIGURES:
                data = base64.b64encode(image.read_bytes()).decode()
                parts.append(f'<p><img alt="{html.escape(image.stem)}" src="data:image/png;base64,{data}"></p>')
    return "\n".join(parts)


def _html(text: str) -> str:
    made, in_table = [], False
    for line in text.splitlines():
        if line.startswith("| "):
            kind = "td" if in_table else "th"
            if not in_table:
                in_table = True
                made.append("<div class=wide><table>")
            if not set(line) <= set("|- "):
                parts = (html.escape(part.strip()) for part in line[2:-2].split(" | "))
                made.append("<tr>" + "".join(f"<{kind}>{part}</{kind}>" for part in parts) + "</tr>")
            continue
        if in_table:
            in_table = False
            made.append("</table></div>")
        if line.startswith("# "):
            made.append(f"<h2>{html.escape(line[2:])}</h2>")
        elif line:
            text = re.sub("`(.+?)`", r"<code>\1</code>", html.escape(line))
            made.append(f"<p>{text}</p>")
    return "\n".join(made)
