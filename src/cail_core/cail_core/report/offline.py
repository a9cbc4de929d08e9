"""What a report and `cail eval` tell of a run without an environment: demonstrations and ranks that were held out."""

from __future__ import annotations

from html import escape

import numpy as np

from cail_core.errors import BadInput
from cail_core.held_out import HeldOut, held_out, kept_or_made
from cail_core.progress import bar
from cail_core.report import plots
from cail_core.report.findings import Findings
from cail_core.report.material import RunFolder
from cail_core.report.plots import Estimate
from cail_core.report.sections import figure, run_class, section
from cail_core.report.svg import number
from cail_core.report.trust import per_episode, segments
from cail_core.tasks.from_dataset import DatasetTask


def of_run(run: RunFolder) -> HeldOut:
    """Cross-validation of a run, from its folder where it was made before."""
    dataset = run.dataset
    if dataset is None:
        raise BadInput(run.missing[-1] if run.missing else f"the demonstrations of {run.folder} are not here")
    demos = dataset.demonstrations()
    if run.policy is None:
        raise BadInput(f"{run.folder} has no policy yet; let the training go on")
    if demos.digest() != run.config.get("demonstrations"):
        raise BadInput(f"{dataset.root} has changed since the training; train again to know how it does on what was held out")
    trust = np.ones(dataset.episodes) if run.confidence is None else per_episode(dataset, run.confidence)

    def make() -> HeldOut:
        with bar("cross-validation", 100) as advance:
            return held_out(DatasetTask(dataset), demos, run.method, run.config["settings"], run.seed, run.trained or run.steps,
                            trust, lambda share: advance(round(100 * share)))

    return kept_or_made(run.folder, make, {"demonstrations": demos.digest(), "seed": run.seed})


def who_is_trusted(run: RunFolder) -> list[str]:
    """Lines about demonstrators and stretches, where the run learned a confidence."""
    dataset = run.dataset
    if dataset is None or run.confidence is None or not run.learned_confidence:
        return []
    trust = per_episode(dataset, run.confidence)
    by_name = {name: float(np.mean([trust[row.episode_index] for row in dataset.rows if row.demonstrator == name]))
               for name in dict.fromkeys(row.demonstrator for row in dataset.rows)}
    lines = ["confidence (1 is average):"]
    if len(by_name) > 1:
        best_first = sorted(by_name.items(), key=lambda one: -one[1])
        lines.append("        " + ", ".join(f"{name} {value:.2f}" for name, value in best_first))
    for what, parts in zip(("most", "least"), segments(dataset, run.confidence, 3), strict=True):
        shown = ", ".join(f"episode {part.episode}" + ("" if part.end - part.start == dataset.rows[part.episode].length else
                          f" frames {part.start}–{part.end - 1}") + f" ({part.confidence:.2f})" for part in parts)
        lines.append(f"        trusted {what}: {shown}")
    return lines


def held_out_section(found: Findings) -> str:
    """The answer to "How good is the policy?" where nothing can play."""
    runs = [run for run in found.runs if run.name in found.held_out and found.held_out[run.name].episodes]
    if not runs:
        return ""
    rows = [Estimate(run.name, found.held_out[run.name].error, *found.held_out[run.name].interval(), run_class(i),
                     len(found.held_out[run.name].episodes)) for i, run in enumerate(runs)]
    rows.append(Estimate("mean action", 1.0, 1.0, 1.0, "reference", rows[0].episodes))
    drawn = figure("Action error", "Root mean square over the held-out episodes, in spreads of the trusted actions. Lower is "
                   "better.", plots.comparison(rows, "error", "", 0))
    lines = []
    for run in runs:
        for one in found.held_out[run.name].actions:
            unit = f" {escape(one.unit)}" if one.unit else ""
            lines.append(f"<tr><td>{escape(run.name)}</td><td>{escape(one.name)}</td><td>{number(one.error)}{unit}</td>"
                         f"<td>{number(one.of_mean)}{unit}</td></tr>")
    table = f"<table><tr><th>run</th><th>action</th><th>mean error</th><th>of the mean action</th></tr>{''.join(lines)}</table>"
    return section(
        "How good is the policy?", "There is no environment to play in. So policies were trained the same way without a fifth of "
        "the demonstrations at a time, and compared with what the trusted ones among these did.",
        f'<div class="grid">{drawn}</div><p class="note">A small error means that it does what trusted people do in the states '
        "they were in. What it does where its own small errors lead, only an environment or the arm can tell.</p>"
        f"<details open><summary>By action</summary>{table}</details>")
