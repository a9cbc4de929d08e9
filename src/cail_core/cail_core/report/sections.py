"""The sections about the result, the trust, the ranking, the curves and the safety: a question each, answered by plots."""

from __future__ import annotations

from html import escape

import numpy as np

from cail_core.demos.dataset import DemoDataset
from cail_core.evaluation import Evaluation
from cail_core.report import plots
from cail_core.report.findings import Findings
from cail_core.report.plots import COLOURS, Estimate, Track, colour_legend, confidence_colours, rank_colours
from cail_core.report.svg import number
from cail_core.report.trust import Segment
from cail_core.tasks.base import View

CURVES = {
    "evaluation_success": "success in evaluation",
    "evaluation_stricter": "success in the stricter task",
    "evaluation_return": "return in evaluation",
    "success": "success in training",
    "return": "return in training",
    "outer_loss": "ranking loss",
    "confidence_spread": "spread of confidence",
    "inner_loss": "imitation loss",
}
SAYS = {
    "evaluation_success": "Without exploration, in episodes kept for choosing the best checkpoint.",
    "evaluation_stricter": "The same in the form of the task that it practises in, such as with a wider obstacle.",
    "evaluation_return": "Without exploration, in episodes kept for choosing the best checkpoint.",
    "return": "Episodes played for training, with exploration noise.",
    "success": "Share of training episodes that succeed, with exploration noise.",
    "outer_loss": "The outer loss: how far the learned returns disagree with the given ranking.",
    "confidence_spread": "Standard deviation of confidence over episodes; 0 means that all are trusted alike.",
    "inner_loss": "The inner loss, by which the policy or its reward is fitted.",
}


def run_class(number: int) -> str:
    return f"run{min(number, 5)}"


def figure(title: str, sub: str, drawing: str, below: str = "") -> str:
    return (f'<figure><h3>{escape(title)}</h3><p class="sub">{escape(sub)}</p>{drawing}'
            + (f"<figcaption>{below}</figcaption>" if below else "") + "</figure>")


def section(title: str, sub: str, content: str) -> str:
    return f'<section><h2>{escape(title)}</h2><p class="sub">{escape(sub)}</p>{content}</section>'


def _rows(found: Findings, of: str) -> list[Estimate]:
    """Runs, then demonstrators from the best, then idle and random."""

    def estimate(name: str, result: Evaluation, kind: str) -> Estimate:
        if of == "success":
            low, high = result.success_interval()
            return Estimate(name, 100 * result.success_rate, 100 * low, 100 * high, kind, len(result.returns))
        return Estimate(name, result.mean, *result.mean_interval(), kind, len(result.returns))

    made = [estimate(run.name, found.played[run.name].evaluation, run_class(i)) for i, run in enumerate(found.runs)
            if run.name in found.played]
    people = [(person.name, person.evaluation) for person in found.people if person.evaluation is not None]
    made += [estimate(name, result, "people") for name, result in sorted(people, key=lambda one: -one[1].mean)]
    return made + [estimate(name, played.evaluation, "reference") for name, played in found.references.items()]


def results(found: Findings) -> str:
    returns = _rows(found, "return")
    if not returns:
        return ""
    drawn, successes = [], _rows(found, "success") if found.has_success else []
    if successes:
        drawn.append(figure("Success", "Share of episodes that end in success. Higher is better.",
                             plots.comparison(successes, "success", "%", 0, 100)))
    cut = _without_disasters(returns)
    drawn.append(figure("Return", "Sum of the task's rewards in an episode. Higher is better."
                         + (f" Returns below {number(cut)} are off the scale." if cut is not None else ""),
                         plots.comparison(returns, "return", "", low=cut)))
    head = "<tr><th>who</th>" + ("<th>success</th>" if successes else "") + "<th>return</th><th>episodes</th></tr>"
    lines = []
    for i, row in enumerate(returns):
        success = (f"<td>{successes[i].value:.0f}%<small>{successes[i].low:.0f} … {successes[i].high:.0f}</small></td>"
                   if successes else "")
        lines.append(f"<tr><td>{escape(row.name)}</td>{success}<td>{number(row.value)}<small>{number(row.low)} … "
                     f"{number(row.high)}</small></td><td>{row.episodes}</td></tr>")
    key = ('<ul class="key"><li><i class="run0"></i>learned policies, fresh episodes</li><li><i class="people"></i>'
           'demonstrators, as recorded</li><li><i class="reference"></i>idle and random actions</li></ul>')
    return section("How good is the policy?", "Beside the people it learned from and what takes no skill at all.",
                    f'<div class="grid">{"".join(drawn)}</div>{key}<details><summary>All numbers</summary>'
                    f"<table>{head}{''.join(lines)}</table></details>")


def _without_disasters(rows: list[Estimate]) -> float | None:
    """Where to cut the axis when a few rows are so far below that the others could not be told apart."""
    values = sorted(row.low for row in rows)
    upper = [value for value in values if value >= float(np.median(values))]
    span = max(row.high for row in rows) - upper[0]
    floor = upper[0] - 2.0 * max(span, 1e-9)
    return floor if values[0] < floor - 4 * span else None


def _demos(found: Findings) -> DemoDataset:
    if found.dataset is None:
        raise ValueError("without demonstrations there is nothing to draw of them")
    return found.dataset


def _tip(found: Findings, episode: int) -> str:
    row = _demos(found).rows[episode]
    parts = [f"episode {episode}", row.demonstrator]
    if found.trusting is not None:
        parts.append(f"confidence {found.confidence_of_episode[episode]:.2f}")
    if row.undiscounted_return is not None:
        parts.append(f"return {number(row.undiscounted_return)}")
    parts += [row.outcome] * (row.outcome != "unknown") + ([f"rank {row.rank}"] if row.rank else [])
    return " · ".join(parts)


def _high(found: Findings) -> float:
    """The confidence that is drawn in full green."""
    run = found.trusting
    return max(1.2, float(np.quantile(run.confidence, 0.98))) if run is not None and run.confidence is not None else 2.0


def _tracks(found: Findings, by: str) -> list[Track]:
    dataset, run = _demos(found), found.trusting
    names = [person.name for person in found.people]
    good = rank_colours(dataset.returns) if dataset.returns is not None else np.full(dataset.episodes, COLOURS // 2)
    made = []
    for row, motion in zip(dataset.rows, found.motions, strict=True):
        if by == "confidence" and run is not None and run.confidence is not None:
            colours = confidence_colours(run.confidence[row.from_index : row.to_index], _high(found))
        else:
            colours = np.full(row.length, good[row.episode_index])
        made.append(Track(motion.path, colours, _tip(found, row.episode_index), names.index(row.demonstrator)))
    return made


def _things(found: Findings) -> list[tuple[str, plots.Floats, float, bool]]:
    view = _view(found)
    return [(thing.name, np.stack([motion.things[thing.name] for motion in found.motions]), thing.radius_m, thing.keep_clear)
            for thing in view.things]


def _view(found: Findings) -> View:
    if found.spec is None or found.spec.view is None:
        raise ValueError("there are motions only where the task has a view")
    return found.spec.view


def trust(found: Findings) -> str:
    if found.dataset is None or not found.people:
        return ""
    content, run = "", found.trusting
    if run is not None:
        content += _confidence_by_person(found)
    if found.motions:
        content += _views(found, "confidence" if run is not None else "return")
    buttons = "".join(f'<button type="button" data-choose="{i}" aria-pressed="false">{escape(person.name)}</button>'
                      for i, person in enumerate(found.people))
    chooser = f'<div class="choose" role="group" aria-label="Show one demonstrator">{buttons}</div>'
    if run is None and not content:
        return ""
    if run is None:
        return section("The demonstrations", "This run learned no confidence: all demonstrations count alike.", chooser + content)
    return section("Whom did it trust?", f"The confidence that {run.name} gave to every step of every demonstration; 1 is "
                    "average. Choose a demonstrator to see only their episodes.", chooser + content)


def _confidence_by_person(found: Findings) -> str:
    values, groups, colours = found.confidence_of_episode, {}, {}
    for person in found.people:
        which = np.array([row.episode_index for row in person.rows])
        groups[person.name] = (values[which], [_tip(found, int(i)) for i in which])
        colours[person.name] = confidence_colours(values[which], _high(found))
    most, least = found.people[0], found.people[-1]
    title = (f"{most.name} is trusted {number(most.confidence / max(least.confidence, 1e-9), 2)} times as much as {least.name}"
             if len(found.people) > 1 and least.confidence > 0 else "Confidence of every episode")
    drawn = figure(title, "One dot per episode: its mean confidence. The bar is the demonstrator's mean.",
                    plots.strips(groups, "confidence (1 is average)", levels={"average": 1.0}, colours=colours, decimals=2),
                    _legend(found))
    returns = found.dataset.returns if found.dataset is not None else None
    if returns is not None and found.correlation is not None:
        drawn += _against_return(found, returns)
    return f'<div class="grid">{drawn}</div>'


def _against_return(found: Findings, returns: plots.Floats) -> str:
    order = (1 + np.argsort(np.argsort(-returns, kind="stable"), kind="stable")).astype(np.float64)
    values = found.confidence_of_episode
    drawing = plots.scatter(order, values, [_tip(found, i) for i in range(len(values))], confidence_colours(values, _high(found)),
                            "episodes by true return, best first", "confidence")
    follows = (found.correlation or 0) > 0.4
    title = "The better, the more trusted" if follows else "Trust does not follow quality"
    return figure(title, f"The true returns were never shown to the learner. Rank correlation {found.correlation:.2f}.", drawing,
                  _legend(found))


def _legend(found: Findings) -> str:
    return colour_legend("0 · not trusted", "1 · average", f"{number(_high(found), 2)} · trusted")


def _views(found: Findings, by: str) -> str:
    view, dataset = _view(found), _demos(found)
    things, drawn = _things(found), []
    by_return = dataset.returns is not None
    kinds = (["confidence"] if by == "confidence" else []) + (["return"] if by_return else [])
    tracks = {kind: _tracks(found, kind) for kind in kinds or ["return"]}
    own = _own_tracks(found)
    bounds = plots.extent([*next(iter(tracks.values())), *own], things)
    sides: list[tuple[str, tuple[int, int]]] = [("From above", (0, 1))]
    if len(view.position) > 2:
        sides.append(("From the side", (0, 2)))
    for kind, made in tracks.items():
        for where, axes in sides:
            title = f"{where}: {'what was trusted' if kind == 'confidence' else 'how good it really was'}"
            sub = (f"Path of the {view.moves} in {dataset.episodes} demonstrations, coloured by "
                   + ("learned confidence." if kind == "confidence" else "true return, by order."))
            legend = _legend(found) if kind == "confidence" else _return_legend(dataset.returns)
            drawn.append(figure(title, sub, plots.view_of(made, things, axes, view, title, bounds), legend))
    if own:
        key = '<ul class="key"><li><i class="run0"></i>' + (
            'success</li><li><i style="border-color:var(--c0);border-top-style:dashed"></i>no success</li></ul>'
            if found.has_success else "an episode of the policy</li></ul>")
        for where, axes in sides:
            title = f"{where}: what the policy does"
            drawn.append(figure(title, f"{len(own)} fresh episodes of {found.subject.name}, to the same scale.",
                                 plots.view_of(own, things, axes, view, title, bounds), key))
    return f'<div class="grid{" three" if len(drawn) == 3 else ""}">{"".join(drawn)}</div>'


def _own_tracks(found: Findings) -> list[Track]:
    """Fresh episodes of the policy."""
    played, made = found.played.get(found.subject.name), []
    for path, value, success in zip(played.paths, played.returns, played.success, strict=False) if played is not None else ():
        outcome = ("success · " if success else "no success · ") if found.has_success else ""
        made.append(Track(np.array(path), np.full(len(path) - 1, COLOURS - 1), f"{outcome}return {number(value)}", -1,
                          "own failed" if found.has_success and not success else "own"))
    return made


def _return_legend(returns: plots.Floats | None) -> str:
    if returns is None:
        return ""
    return colour_legend(f"{number(float(returns.min()))} · worst", f"{number(float(np.median(returns)))} · median",
                         f"{number(float(returns.max()))} · best")


def stretches(found: Findings) -> str:
    if not found.most:
        return ""
    dataset = _demos(found)
    fps = int(dataset.info["fps"])
    whole = all(part.start == 0 and part.end == dataset.rows[part.episode].length for part in found.most + found.least)
    tracks, things = (_tracks(found, "confidence"), _things(found)) if found.motions else ([], [])
    bounds = plots.extent(tracks, things) if tracks else None

    def item(part: Segment) -> str:
        row = dataset.rows[part.episode]
        picture = plots.sketch(tracks[part.episode], part.start, part.end, things, bounds) if bounds is not None else ""
        when = "the whole episode" if part.start == 0 and part.end == row.length else (
            f"{part.start / fps:.1f}–{part.end / fps:.1f} s of {row.length / fps:.1f} s")
        result = "" if row.undiscounted_return is None else f"return {number(row.undiscounted_return)}"
        facts = [t for t in (when, result, row.outcome if row.outcome != "unknown" else "") if t]
        return (f"<li>{picture}<div><b>{part.confidence:.2f}</b>episode {part.episode}, {escape(row.demonstrator)}"
                + "".join(f"<span>{escape(fact)}</span>" for fact in facts) + "</div></li>")

    sub = ("With this method all steps of an episode share its confidence, so the stretches are whole episodes." if whole else
           "An episode is looked at in tenths; the bold stretch has the confidence given.")
    lists = "".join(f"<h3>{title}</h3><ul class=\"pieces\">{''.join(map(item, parts))}</ul>"
                    for title, parts in (("Most trusted", found.most), ("Least trusted", found.least)))
    return section("The most and the least trusted stretches", sub, lists
                    + ('<p class="note">Seen from above. ● is where the stretch begins.</p>' if bounds is not None else ""))


def ranking(found: Findings) -> str:
    """Confidence and learned return of the ranked episodes over their rank."""
    drawn, run = [], found.trusting or found.subject
    if found.trusting is not None and found.pairs is not None and found.pairs[1]:
        rows = sorted((row for row in _demos(found).rows if row.rank), key=lambda row: row.rank or 0)
        values = found.confidence_of_episode[[row.episode_index for row in rows]]
        drawn.append(_over_rank("Confidence", found.pairs, np.array([float(row.rank or 0) for row in rows]), values,
                                [_tip(found, row.episode_index) for row in rows], f"Mean confidence of {run.name}.",
                                "confidence"))
    if len(run.ranked) > 1 and found.learned_pairs is not None and found.learned_pairs[1]:
        known = found.dataset is not None and max(one.episode for one in run.ranked) < found.dataset.episodes
        tips = [f"learned return {number(one.learned_return)} · " + (_tip(found, one.episode) if known else f"rank {one.rank}")
                for one in run.ranked]
        settings = run.config["settings"]
        what = "of the learned reward" if "ppo" in settings else "the policy's log-likelihood of its steps"
        per = "discounted sum" if (settings.get("outer") or {}).get("returns") == "sum" else "mean"
        drawn.append(_over_rank("Learned return", found.learned_pairs, np.array([float(one.rank) for one in run.ranked]),
                                np.array([one.learned_return for one in run.ranked]), tips,
                                f"Learned return of {run.name}: the {per} {what}.", "learned return"))
    return section("Does it see the ranking?", "The better an episode was ranked, the higher it should stand: from left to "
                   "right the dots should fall.", f'<div class="grid">{"".join(drawn)}</div>') if drawn else ""


def _over_rank(what: str, pairs: tuple[int, int], ranks: plots.Floats, values: plots.Floats, tips: list[str], sub: str,
               axis: str) -> str:
    drawing = plots.scatter(ranks, values, tips, rank_colours(-ranks), "rank given (1 is best)", axis)
    return figure(f"{what}: {pairs[0]} of {pairs[1]} ranked pairs in order", sub, drawing,
                  colour_legend("worst rank", "", "best rank"))


def curves(found: Findings) -> str:
    drawn = []
    for column, what in CURVES.items():
        series = {}
        for i, run in enumerate(found.runs):
            values = run.curves.get(column, np.zeros(0))
            known = values[np.isfinite(values)]
            if len(known) < 2:
                continue
            says_something = found.has_success if "success" in column else column != "confidence_spread" or np.ptp(known) > 0
            if says_something:
                series[run.name] = (run.curves["steps"], values, run_class(i))
        if not series:
            continue
        references = {}
        if column.endswith("return") and found.best_person is not None:
            references = {f"best demonstrator ({found.best_person[0]})": found.best_person[1]}
        says = SAYS[column]
        if column == "outer_loss" and all("joint_confidence" not in run.config["settings"] for run in found.runs):
            says += " Only watched here: the confidence was not learned by it in this stage."
        drawn.append(figure(what[0].upper() + what[1:], says, plots.curves(series, what, references)))
    if not drawn:
        return ""
    key = "".join(f'<li><i class="{run_class(i)}"></i>{escape(run.name)}</li>' for i, run in enumerate(found.runs) if run.curves)
    return section("How did it learn?", "Measured during training; long curves are means over short stretches.",
                   f'<ul class="key">{key}</ul><div class="grid">{"".join(drawn)}</div>')


def safety(found: Findings) -> str:
    """Clearance and speed of the policies beside the demonstrators'."""
    gaps = _by_episode(found, "closest", "closest gap, m", "Distance kept", "at least",
                       "Smallest gap to what must be kept clear of, seen from above. Below 0 they overlap.", {"touching": 0.0})
    speeds = _by_episode(found, "top_speed", "top speed, m/s", "Top speed", "at most",
                         "Highest speed in each episode, between two observations.", None)
    if not gaps and not speeds:
        return ""
    title = "Is it safe?" if gaps else "How fast does it move?"
    return section(title, "Simulated or recorded motion, not a proof: on the arm the safety filter decides.",
                   f'<div class="grid">{gaps}{speeds}</div>')


def _by_episode(found: Findings, what: str, axis: str, title: str, bound: str, sub: str, levels: dict[str, float] | None) -> str:
    groups: dict[str, tuple[plots.Floats, list[str]]] = {}
    classes = {}
    for i, run in enumerate(found.runs):
        values = getattr(found.played.get(run.name), what, [])
        if values:
            groups[run.name] = (np.array(values), [f"{run.name}, episode {k}: {number(v)}" for k, v in enumerate(values)])
            classes[run.name] = run_class(i)
    if not groups:
        return ""
    own = next(iter(groups.values()))[0]
    worst = float(own.min() if what == "closest" else own.max())
    for person in found.people if found.motions else []:
        values = [getattr(found.motions[row.episode_index], what) for row in person.rows]
        groups[person.name] = (np.array(values), [f"{_tip(found, row.episode_index)}: {number(value)}"
                                                  for row, value in zip(person.rows, values, strict=True)])
    unit = axis.rsplit(" ", 1)[1]
    key = ('<ul class="key"><li><i class="disc" style="background:var(--run0)"></i>learned policy, one dot per episode</li><li>'
           '<i class="disc" style="background:var(--people)"></i>demonstrator</li><li>▎mean</li></ul>')
    return figure(f"{title}: {next(iter(classes))} {bound} {number(worst)} {unit}", sub,
                  plots.strips(groups, axis, classes, levels), key)
