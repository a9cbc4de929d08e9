"""The section about what the policy holds when the arm, the tracker or the grasp differ: sentences, intervals, all numbers."""

from __future__ import annotations

from html import escape

import numpy as np

from cail_core.evaluation import Evaluation
from cail_core.report import plots
from cail_core.report.findings import Findings
from cail_core.report.plots import Estimate
from cail_core.report.sections import figure, section
from cail_core.stress.findings import baseline, leans, rows, sentences
from cail_core.stress.played import AS_TRAINED, Result, loses
from cail_core.stress.show import PLAYED, gap_text, row_name, strengths, value_text

TITLE = "Does it hold on another arm?"


def transfer(found: Findings) -> str:
    """Nothing for tasks that have no other conditions to be played under."""
    if not found.stress:
        if not found.unstressed:
            return ""
        return section(TITLE, "Not tried.", f"<p>Find out before an arm moves:</p><pre>{escape(found.unstressed)}</pre>")
    said = "".join(f"<li>{escape(text[0].upper() + text[1:])}.</li>" for text in sentences(found.stress))
    drawing = figure(
        "Success when one thing differs", "At the end of the range that policies practise in.",
        plots.comparison([_estimate(name, result) for name, result in _at_the_end(found.stress)], "success", "%", 0, 100))
    return section(TITLE, "Simulated: delay, speed, grasp and tracker differ from what it learned in.",
                   f'<ul class="said">{said}</ul><div class="grid">{drawing}{_steered(found.stress)}</div>'
                   f"<details><summary>All numbers</summary>{_table(found.stress)}</details>")


def _at_the_end(results: list[Result]) -> list[tuple[str, Result]]:
    """As trained, and of each condition the result at the end of the practised range."""
    found = [(AS_TRAINED, baseline(results))]
    for key, series in rows(results).items():
        found += [(row_name(*key), result) for result in series if result.strength == 1.0]
    return found


def _estimate(name: str, result: Result) -> Estimate:
    flags = np.arange(result.episodes) >= result.failures
    made = Evaluation(np.zeros(result.episodes), np.zeros(result.episodes, np.int64), flags)
    low, high = made.success_interval()
    kind = "run0" if result.what == AS_TRAINED else "people"
    return Estimate(name, 100 * made.success_rate, 100 * low, 100 * high, kind, result.episodes)


def _steered(results: list[Result]) -> str:
    """Observations that it steers by more than their sensors allow."""
    told = leans(results)
    if not told:
        return ""
    drawn = plots.comparison([_estimate(one.observation, one) for one in told], "success", "%", 0, 100)
    return figure(f"It steers by {told[0].observation}",
                  "Success when an observation is off by what its sensors may be wrong by.", drawn)


def _table(results: list[Result]) -> str:
    usual, columns = baseline(results), strengths(results)
    head = "".join(f"<th>{PLAYED.get(s, f'× {s:g}')}</th>" for s in columns)
    lines = [f"<tr><td>{AS_TRAINED}</td><td>{usual.success:.0%}<small>{usual.episodes} episodes</small></td>"
             f"{'<td></td>' * (len(columns) - 1)}<td>{gap_text([usual])}</td></tr>"]
    for key, series in rows(results).items():
        at = {one.strength: one for one in series}
        cells = "".join(f"<td>{_cell(at[s], usual)}</td>" if s in at else "<td></td>" for s in columns)
        lines.append(f"<tr><td>{escape(row_name(*key))}</td>{cells}<td>{gap_text(series)}</td></tr>")
    return f"<table><tr><th>condition</th>{head}<th>closest gap</th></tr>{''.join(lines)}</table>"


def _cell(result: Result, usual: Result) -> str:
    text = f"{result.success:.0%}"
    return f"{f'<b>{text} ✗</b>' if loses(result, usual) else text}<small>{escape(value_text(result))}</small>"
