"""The page: sections in the order in which a reader asks, and nothing that comes from another file or host."""

from __future__ import annotations

import base64
from html import escape
from importlib.resources import files
from pathlib import Path

import yaml

from cail_core import machine
from cail_core.report import words
from cail_core.report.findings import Findings
from cail_core.report.offline import held_out_section
from cail_core.report.plots import COLOURS
from cail_core.report.sections import curves, ranking, results, safety, section, stretches, trust
from cail_core.report.svg import number
from cail_core.report.transfer import transfer

LARGEST_VIDEO = 12_000_000
"""Bytes; a page with more than this inside opens slowly, so that larger files are named instead."""


def page(found: Findings) -> str:
    """The whole HTML text."""
    sections = [_head(found), held_out_section(found) or results(found), trust(found), stretches(found), ranking(found),
                curves(found), transfer(found), safety(found), _video(found), _next(found), _details(found)]
    title = words.headline(found)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; img-src data:; media-src data:\">"
        f'<title>{escape(title)}</title><link rel="icon" href="data:,">'
        f"<style>{_text('page.css')}{_colour_rules()}</style></head>\n<body><main>"
        + "\n".join(section for section in sections if section)
        + f'</main><div id="tip" role="status"></div><script>{_text("page.js")}</script></body></html>\n'
    )


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _colour_rules() -> str:
    """Width grows with colour, so that good and bad differ without red and green too."""
    steps = [f".c{i}{{stroke:var(--c{i});stroke-width:{0.7 + 1.3 * i / (COLOURS - 1):.2f}}}.f{i}{{fill:var(--c{i})}}"
             f".b{i}{{background:var(--c{i})}}" for i in range(COLOURS)]
    kinds = [f".interval.{k},.curve.{k}{{stroke:var(--{k})}}.dot.{k},.speck.{k}{{fill:var(--{k})}}"
             f"i.{k}{{border-color:var(--{k})}}" for k in (*(f"run{i}" for i in range(6)), "people", "reference")]
    dashes = [f".curve.run{i}{{stroke-dasharray:{dash}}}" for i, dash in enumerate(("none", "6 3", "2 3", "9 3 2 3"))]
    return "".join(steps + kinds + dashes)


def _head(found: Findings) -> str:
    run = found.subject
    text = found.spec.text if found.spec is not None else found.dataset.text if found.dataset is not None else ""
    facts = []
    if found.result is not None:
        if found.has_success:
            low, high = found.result.success_interval()
            facts.append(("success", words.percent(found.result.success_rate),
                          f"95% interval {100 * low:.0f}–{100 * high:.0f}%, {len(found.result.returns)} fresh episodes"))
        low, high = found.result.mean_interval()
        best = found.best_person
        facts.append(("mean return", number(found.result.mean), f"95% interval {number(low)} … {number(high)}"
                      + (f"; best demonstrator {number(best[1])}" if best else "")))
    held = found.held_out.get(run.name)
    if held is not None and held.episodes:
        low, high = held.interval()
        facts.append(("action error", f"{held.error:.2f}", f"of the spread, on {len(held.episodes)} trusted demonstrations held "
                      f"out; 95% interval {low:.2f} … {high:.2f}; the mean action: 1"))
    if held is not None and held.pairs is not None:
        facts.append(("held-out pairs in order", f"{held.pairs[0]}/{held.pairs[1]}",
                      "by a confidence that was not shown their ranks"))
    if found.correlation is not None:
        facts.append(("confidence follows quality", f"{found.correlation:.2f}",
                      "rank correlation with true returns; 1 is perfect"))
    if found.pairs is not None and found.pairs[1]:
        facts.append(("ranked pairs in order", f"{found.pairs[0]}/{found.pairs[1]}",
                      f"by confidence; {found.ranked_episodes} episodes are ranked"))
    tiles = "".join(f"<div><dt>{escape(name)}</dt><dd><b>{escape(value)}</b><span>{escape(note)}</span></dd></div>"
                    for name, value, note in facts)
    notes = "".join(f"<p>{escape(text)}</p>" for text in found.missing)
    return (f'<header><p class="eyebrow">{escape(run.task)} · {escape(text)}</p><h1>{escape(words.headline(found))}</h1>'
            + words.paragraphs(words.summary(found))
            + (f'<dl class="facts">{tiles}</dl>' if tiles else "")
            + (f'<div class="warn" role="note"><p><b>Not everything is here</b></p>{notes}</div>' if notes else "") + "</header>")


def _video(found: Findings) -> str:
    made, left = [], LARGEST_VIDEO
    for run in found.runs:
        for path in run.videos:
            size = path.stat().st_size
            if size > left:
                made.append(f"<p>{escape(run.folder.name)}/{escape(path.name)} ({size / 1e6:.0f} MB) is too large for "
                            "this page; open it from the run folder.</p>")
                continue
            left -= size
            made.append(_clip(path, run.name))
    return section("See it", "Recorded from the run.", "".join(made)) if made else ""


def _clip(path: Path, name: str) -> str:
    content = base64.b64encode(path.read_bytes()).decode()
    label = escape(f"{name}: {path.name}", quote=True)
    if path.suffix.lower() == ".gif":
        return f'<p><img class="clip" alt="{label}" src="data:image/gif;base64,{content}"></p>'
    return (f'<p><video controls muted loop playsinline preload="metadata" aria-label="{label}" '
            f'src="data:video/{path.suffix[1:].lower()};base64,{content}"></video></p>')


def _next(found: Findings) -> str:
    items = "".join(f"<li>{escape(text)}" + (f"<pre>{escape(command)}</pre>" if command else "") + "</li>"
                    for text, command in words.next_steps(found))
    return section("What to do next", "In this order.", f'<ol class="next">{items}</ol>') if items else ""


def _details(found: Findings) -> str:
    parts = []
    for run in found.runs:
        settings = yaml.safe_dump(run.config, sort_keys=False, allow_unicode=True)
        card = run.policy.card if run.policy is not None else None
        versions = ", ".join(f"{name} {version}" for name, version in card.versions.items()) if card is not None else "unknown"
        parts.append(f"<details><summary>{escape(run.name)}: configuration and versions</summary>"
                     f"<p>Run folder {escape(str(run.folder))}, seed {run.seed}, {run.trained} of {run.steps} steps, with "
                     f"{escape(versions)}.</p><pre>{escape(settings)}</pre></details>")
    now = machine.describe()
    here = ", ".join(f"{name} {version}" for name, version in now["versions"].items())
    data = ""
    if found.dataset is not None:
        info = found.dataset.info
        data = (f"<p>Demonstrations {escape(str(found.dataset.root))}: {found.dataset.episodes} episodes, "
                f"{found.dataset.frames} frames at {info['fps']} Hz, robot {escape(str(info['robot_type']))}.</p>")
    return section("How it was made", "Everything that is needed to repeat it.", data + "".join(parts)) + (
        f"<footer>Made by <code>cail report</code> with {escape(here)}. Returns: mean with a 95% bootstrap interval; success: "
        "95% Wilson interval.</footer>")
