"""The report's plots; each says one thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cail_core.report.motion import thinned
from cail_core.report.svg import WIDTH, Drawing, Scale, d, frame, number, tick_texts, ticks
from cail_core.tasks.base import View

Floats = NDArray[np.float64]
COLOURS = 9
"""Steps from red (bad) over amber to green (good); the page's CSS gives each a colour and a width."""


@dataclass(frozen=True)
class Estimate:
    """One row of a comparison: a mean with its 95% interval."""

    name: str
    value: float
    low: float
    high: float
    kind: str
    """run0, run1 … for the runs, people for demonstrators, reference for idle and random."""
    episodes: int


def comparison(rows: Sequence[Estimate], what: str, unit: str, low: float | None = None, high: float | None = None) -> str:
    """Dots with their 95% intervals, one row each."""
    row, left, right, top = 25.0, 118.0, WIDTH - 62, 8.0
    lowest, highest = min(r.low for r in rows), max(r.high for r in rows)
    pad = 0.04 * (highest - lowest or 1.0)
    x = Scale(lowest - pad if low is None else low, highest + pad if high is None else high, left, right)
    bottom = top + row * len(rows)
    made = Drawing(bottom + 36, f"{what}: " + "; ".join(f"{r.name} {number(r.value)}{unit}" for r in rows))
    values = ticks(x.low, x.high, 3 if unit == "" else 4)
    for value, label in zip(values, tick_texts(values), strict=True):
        made.line(x(value), top, x(value), bottom, "grid")
        made.text(x(value), bottom + 14, label + unit, "tick", "middle")
    made.text((left + right) / 2, bottom + 31, f"{what}, mean and 95% interval", "name", "middle")
    before = ""
    text = (lambda v: f"{v:.0f}") if unit == "%" else number
    for i, r in enumerate(rows):
        y, group = top + row * (i + 0.5), r.kind[:3]
        if before and group != before:
            made.line(0, y - row / 2, WIDTH, y - row / 2, "rule")
        before = group
        tip = f"{r.name}: {text(r.value)}{unit}, 95% interval {text(r.low)} … {text(r.high)}{unit}, {r.episodes} episodes"
        made.text(left - 8, y + 4, shortened(r.name, 17), "label" + (" strong" if group == "run" else ""), "end")
        if r.value < x.low:
            made.text(left, y + 4, "◂ off the scale", "tick")
        else:
            made.line(x(max(r.low, x.low)), y, x(r.high), y, f"interval {r.kind}")
            made.circle(x(r.value), y, 5 if group == "run" else 4, f"dot {r.kind}", tip)
        made.text(WIDTH - 2, y + 4, text(r.value) + unit, "value" + (" strong" if group == "run" else ""), "end")
    return made.svg()


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def curves(series: Mapping[str, tuple[Floats, Floats, str]], what: str, references: Mapping[str, float] | None = None) -> str:
    """Lines over training steps: name -> steps, values, colour class. References are dashed levels with their names."""
    kept = {}
    for name, (steps, values, cls) in series.items():
        known = np.isfinite(values)
        points = np.stack([steps[known], values[known]], axis=1)
        kept[name] = (smoothed(points), cls)
    every = np.concatenate([points for points, _ in kept.values()])
    levels = [v for v in (references or {}).values() if np.isfinite(v)]
    low, high = min([every[:, 1].min(), *levels]), max([every[:, 1].max(), *levels])
    pad = 0.06 * (high - low or 1.0)
    left, top, bottom = 48.0, 26.0, 180.0
    x, y = Scale(0, every[:, 0].max(), left, WIDTH - 22), Scale(low - pad, high + pad, bottom, top)
    made = Drawing(bottom + 38, f"{what} over training steps, from {number(every[0, 1])} to {number(every[-1, 1])}")
    frame(made, x, y, "training steps", what)
    for name, level in (references or {}).items():
        made.line(left, y(level), x.b, y(level), "level")
        made.text(x.b, y(level) - 4, name, "tick", "end")
    for name, (points, cls) in kept.items():
        placed = np.stack([x.many(points[:, 0]), y.many(points[:, 1])], axis=1)
        made.path(placed, f"curve {cls}", f"{name}: {what} {number(points[-1, 1])} after {number(points[-1, 0], 6)} steps")
        made.circle(placed[-1, 0], placed[-1, 1], 3.5, f"dot {cls}")
    return made.svg()


def smoothed(points: Floats, most: int = 120) -> Floats:
    """At most `most` points: means of equal stretches, so that noise does not hide the trend; the last point stays."""
    if len(points) <= most:
        return points
    parts = np.array_split(points, most)
    return np.concatenate([[part.mean(axis=0) for part in parts], points[-1:]])


def strips(groups: Mapping[str, tuple[Floats, Sequence[str]]], what: str, classes: Mapping[str, str] | None = None,
           levels: Mapping[str, float] | None = None, colours: Mapping[str, NDArray[np.int64]] | None = None,
           decimals: int | None = None) -> str:
    """Every episode as a dot, one row a group, with the group's mean as a bar. `groups`: name -> values, what each dot says."""
    row, left, right, top = 34.0, 104.0, WIDTH - 52, 20.0 if levels else 6.0
    every = np.concatenate([values for values, _ in groups.values()] + [np.array(list((levels or {}).values()))])
    pad = 0.04 * (float(np.ptp(every)) or 1.0)
    x = Scale(float(every.min()) - pad, float(every.max()) + pad, left, right)
    bottom = top + row * len(groups)
    made = Drawing(bottom + 36, f"{what}: " + "; ".join(f"{g} mean {number(float(v.mean()))}" for g, (v, _) in groups.items()))
    values = ticks(x.low, x.high)
    for value, text in zip(values, tick_texts(values), strict=True):
        made.line(x(value), top, x(value), bottom, "grid")
        made.text(x(value), bottom + 14, text, "tick", "middle")
    for name, level in (levels or {}).items():
        made.line(x(level), top, x(level), bottom, "level")
        made.text(x(level), top - 6, name, "tick", "middle")
    made.text((left + right) / 2, bottom + 31, what, "name", "middle")
    rng = np.random.default_rng(0)
    for i, (name, (numbers, tips)) in enumerate(groups.items()):
        y = top + row * (i + 0.5)
        cls = (classes or {}).get(name, "people")
        made.text(left - 8, y + 4, shortened(name, 15), "label" + (" strong" if cls.startswith("run") else ""), "end")
        made.parts.append(f'<g data-who="{i}">')
        for k, (value, tip, off) in enumerate(zip(numbers, tips, rng.uniform(-9, 9, len(numbers)), strict=True)):
            made.circle(x(value), y + off, 2.2, f"f{colours[name][k]}" if colours else f"speck {cls}", tip)
        mean = float(numbers.mean())
        made.line(x(mean), y - 12, x(mean), y + 12, "mean")
        made.parts.append("</g>")
        made.text(WIDTH - 2, y + 4, number(mean) if decimals is None else f"{mean:.{decimals}f}", "value", "end")
    return made.svg()


def scatter(xs: Floats, ys: Floats, tips: Sequence[str], colours: NDArray[np.int64], xlabel: str, ylabel: str) -> str:
    """One dot per episode; the horizontal axis runs over whole ranks from the best."""
    left, top, bottom = 52.0, 26.0, 190.0
    pad = 0.08 * (float(np.ptp(ys)) or 1.0)
    x = Scale(0.4, float(xs.max()) + 0.6, left, WIDTH - 10)
    y = Scale(float(ys.min()) - pad, float(ys.max()) + pad, bottom, top)
    made = Drawing(bottom + 38, f"{ylabel} over {xlabel}, {len(xs)} episodes")
    for value, text in zip(t := ticks(y.low, y.high), tick_texts(t), strict=True):
        made.line(x.a, y(value), x.b, y(value), "grid")
        made.text(x.a - 6, y(value) + 3.5, text, "tick", "end")
    ranks = sorted({int(v) for v in xs})
    for rank in ranks[:: max(1, len(ranks) // 10)]:
        made.text(x(rank), bottom + 15, str(rank), "tick", "middle")
    made.line(x.a, bottom, x.b, bottom, "axis")
    made.text((x.a + x.b) / 2, bottom + 31, xlabel, "name", "middle")
    made.text(4, top - 9, ylabel, "name")
    for a, b, tip, colour in zip(xs, ys, tips, colours, strict=True):
        made.circle(x(a), y(b), 5 if len(xs) < 50 else 3, f"f{colour}", tip)
    return made.svg()


@dataclass(frozen=True)
class Track:
    """One episode's path as it is drawn: a colour step 0 … COLOURS − 1 for each piece between two positions."""

    path: Floats
    colours: NDArray[np.int64]
    tip: str = ""
    who: int = 0
    cls: str = ""


def view_of(tracks: Sequence[Track], things: Sequence[tuple[str, Floats, float, bool]], axes: tuple[int, int], view: View,
            what: str, bounds: Floats | None = None) -> str:
    """Paths seen along one axis, to scale; better ones come later, wider and greener. `things`: name, places, radius, avoid."""
    width, left, top, right = WIDTH, 54.0, 12.0, 8.0
    low, high = extent(tracks, things) if bounds is None else bounds
    low, high = low[list(axes)], high[list(axes)]
    span = np.maximum(high - low, 0.05 * float(np.max(high - low)) + 1e-6)
    scale = min((width - left - right) / span[0], 300.0 / span[1])
    w, h = span * scale
    x0 = left + ((width - left - right) - w) / 2
    x, y = Scale(low[0], low[0] + span[0], x0, x0 + w), Scale(low[1], low[1] + span[1], top + h, top)
    made = Drawing(top + h + 40, what)
    for value, text in zip(t := ticks(x.low, x.high), tick_texts(t), strict=True):
        made.line(x(value), top, x(value), top + h, "grid")
        made.text(x(value), top + h + 15, text, "tick", "middle")
    for value, text in zip(t := ticks(y.low, y.high), tick_texts(t), strict=True):
        made.line(x0, y(value), x0 + w, y(value), "grid")
        made.text(x0 - 6, y(value) + 3.5, text, "tick", "end")
    made.text(x0 + w / 2, top + h + 32, f"{view.labels[axes[0]]}, m", "name", "middle")
    made.parts.append(f'<text class="name" text-anchor="middle" transform="translate(11 {top + h / 2:.1f}) rotate(-90)">'
                      f"{view.labels[axes[1]]}, m</text>")
    for name, places, radius, avoid in things:
        at = places[:, list(axes)]
        centre = np.median(at, axis=0)
        made.circle(x(centre[0]), y(centre[1]), max(4.0, radius * scale), "avoid" if avoid else "goal", name)
    for track in sorted(tracks, key=lambda t: float(t.colours.mean()) if len(t.colours) else 0.0):
        _track(made, track, x, y, axes)
    for name, places, radius, _ in things:
        centre = np.median(places[:, list(axes)], axis=0)
        made.text(x(centre[0]), y(centre[1]) - max(4.0, radius * scale) - 4, name, "thing", "middle")
    return made.svg()


def _track(made: Drawing, track: Track, x: Scale, y: Scale, axes: tuple[int, int]) -> None:
    points, which = thinned(track.path)
    placed = np.stack([x.many(points[:, axes[0]]), y.many(points[:, axes[1]])], axis=1)
    attributes = f' data-tip="{_attribute(track.tip)}"' if track.tip else ""
    made.parts.append(f'<g class="track" data-who="{track.who}"{attributes}>')
    if track.cls:
        made.path(placed, track.cls)
    else:
        pieces = [int(np.round(track.colours[a:b].mean())) for a, b in pairwise(which)]
        start = 0
        for i in range(1, len(pieces) + 1):
            if i == len(pieces) or pieces[i] != pieces[start]:
                made.parts.append(f'<path d="{d(placed[start : i + 1])}" class="c{pieces[start]}"/>')
                start = i
    made.parts.append("</g>")


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def extent(tracks: Sequence[Track], things: Sequence[tuple[str, Floats, float, bool]]) -> Floats:
    """The corners of a box around nearly everything: single strays do not shrink the rest."""
    every = np.concatenate([track.path for track in tracks])
    low, high = np.quantile(every, 0.002, axis=0), np.quantile(every, 0.998, axis=0)
    for _, places, radius, _ in things:
        low, high = np.minimum(low, places.min(axis=0) - radius), np.maximum(high, places.max(axis=0) + radius)
    margin = 0.04 * float(np.max(high - low))
    return np.stack([low - margin, high + margin])


def sketch(track: Track, start: int, end: int, things: Sequence[tuple[str, Floats, float, bool]], bounds: Floats) -> str:
    """A small picture of one episode from above: its path faint, the stretch `start` … `end` in its colour."""
    size, axes = 96.0, (0, 1)
    low, high = bounds[0][list(axes)], bounds[1][list(axes)]
    span = float(np.max(high - low))
    middle = (low + high) / 2
    x = Scale(middle[0] - span / 2, middle[0] + span / 2, 4, size - 4)
    y = Scale(middle[1] - span / 2, middle[1] + span / 2, size - 4, 4)
    made = Drawing(size, track.tip, size)

    def placed(path: Floats) -> Floats:
        points, _ = thinned(path)
        return np.stack([x.many(points[:, axes[0]]), y.many(points[:, axes[1]])], axis=1)

    for name, places, radius, avoid in things:
        centre = np.median(places, axis=0)
        made.circle(x(centre[0]), y(centre[1]), max(3.0, radius * (size - 8) / span), "avoid" if avoid else "goal", name)
    made.path(placed(track.path), "faint")
    stretch = placed(track.path[start : end + 1])
    made.path(stretch, f"c{int(np.round(track.colours[start:end].mean()))} bold")
    made.circle(stretch[0, 0], stretch[0, 1], 2.5, "begin")
    return made.svg()


def confidence_colours(confidence: NDArray[np.floating], high: float) -> NDArray[np.int64]:
    """0 → red, 1 (average) → amber, `high` → green."""
    middle = (COLOURS - 1) / 2
    step = np.where(confidence <= 1, confidence * middle, middle + (confidence - 1) / max(high - 1, 1e-6) * middle)
    return np.clip(np.round(step), 0, COLOURS - 1).astype(np.int64)


def rank_colours(values: NDArray[np.floating]) -> NDArray[np.int64]:
    """By order from worst to best: one collision of −2000 does not make all others look alike."""
    order = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return np.round(order / max(1, len(values) - 1) * (COLOURS - 1)).astype(np.int64)


def colour_legend(left: str, middle: str, right: str) -> str:
    """The bar from red to green with what its ends and its middle mean."""
    boxes = "".join(f'<i class="b{i}"></i>' for i in range(COLOURS))
    return (f'<div class="scale"><div class="bar" aria-hidden="true">{boxes}</div>'
            f"<div><span>{left}</span><span>{middle}</span><span>{right}</span></div></div>")
