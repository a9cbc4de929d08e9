"""`cail demos rank D`: two episodes side by side in the terminal, one key says which is better."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from cail_core import durable
from cail_core.demos import layout
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.edit import set_ranking
from cail_core.demos.facts import Facts, facts_of, view_of
from cail_core.demos.sketch import View, sketch
from cail_core.ranking.comparisons import Comparisons
from cail_core.ranking.pairwise import Group, Pair
from cail_core.ranking.ranks import Ranking, from_groups, provenance
from cail_core.terminal import Terminal, bold, dim, fit

LEFT, RIGHT, SAME = ("left", "1", "h"), ("right", "2", "l"), ("=", "t", "space")
UNDO, QUIT = ("u", "backspace"), ("q", "escape", "ctrl-c", "ctrl-d", "end")
LEAST_SIZE = (60, 16)
LOOK_AT_SIZE_S = 0.5
FACT_LINES, OTHER_LINES = 6, 5


def rank_by_asking(dataset: DemoDataset, comparisons: Comparisons, who: str) -> Ranking:
    """Ask until everything is ordered or the person quits; the ranks that follow from the answers are then set."""
    with durable.locked(dataset.root / "meta"):  # two people at once would overwrite each other's answers
        with Terminal("rank with --by return or --file R") as terminal:
            Screen(dataset, comparisons, who, terminal).run()
    groups = comparisons.order
    if len(groups) < 2:
        return {}
    ranking = from_groups(groups)
    people = sorted({answer.by for answer in comparisons.answers})
    how = provenance("person", who=people, answers=len(comparisons.answers), ranking=groups)
    set_ranking(dataset.root, ranking, how)
    return ranking


class Screen:
    """Shows the next pair, takes the answer, until all is known or the person leaves."""

    def __init__(self, dataset: DemoDataset, comparisons: Comparisons, who: str, terminal: Terminal) -> None:
        self._dataset, self._comparisons, self._who, self._terminal = dataset, comparisons, who, terminal
        self._replaces = _other_ranks(dataset.root)
        self._spec = view_of(dataset)
        things = () if self._spec is None or self._spec.view is None else self._spec.view.things
        self._marks = {thing.name: "#" if thing.keep_clear else "+" for thing in things}
        self._facts: Callable[[int], Facts] = lru_cache(64)(self._load)

    def run(self) -> None:
        while True:
            question = self._comparisons.progress.question
            pair = None if question is None else (min(question), max(question))
            key = self._next_key(lambda pair=pair: self._question(pair) if pair else self._end())  # type: ignore[misc]
            if key in QUIT or (pair is None and key == "enter"):
                return
            if key in UNDO:
                self._comparisons.undo()
            elif pair is not None and key in (*LEFT, *RIGHT, *SAME):
                self._comparisons.answer(pair, pair[0] if key in LEFT else pair[1] if key in RIGHT else None, self._who)

    def _next_key(self, lines: Callable[[], list[str]]) -> str:
        """One key; keys typed ahead are dropped, because they would answer a question that nobody has seen."""
        drawn_for = None
        while True:
            if self._terminal.size != drawn_for:
                drawn_for = self._terminal.size
                self._terminal.draw(lines())
            keys = self._terminal.keys(LOOK_AT_SIZE_S)
            if keys:
                return keys[0]

    def _question(self, pair: Pair) -> list[str]:
        width, height = self._terminal.size
        if width < LEAST_SIZE[0] or height < LEAST_SIZE[1]:
            return [fit(f"make this window at least {LEAST_SIZE[0]} × {LEAST_SIZE[1]}, it is {width} × {height}", width)]
        half, rows = (width - 3) // 2, height - FACT_LINES - OTHER_LINES
        facts = [self._facts(episode) for episode in pair]
        places = [np.array([place]) for one in facts for place in one.things.values()]
        view = View.of([*(one.path for one in facts), *places], half, rows)
        columns = [self._column(e, one, view, half, rows) for e, one in zip(pair, facts, strict=True)]
        done = self._comparisons.progress.step
        bar = "│" if self._terminal.unicode else "|"
        return [
            self._headline(f"question {done + 1} of at most {self._comparisons.at_most}", width),
            fit(self._replaces, width),
            *(f"{left} {bar} {right}" for left, right in zip(*columns, strict=True)),
            dim(fit(f"{self._legend}   same scale on both sides", width)),
            fit("Which is better?", width),
            bold(fit("← or 1 left   → or 2 right   = as good as each other   u undo   q stop" if self._terminal.unicode else
                     "1 left   2 right   = as good as each other   u undo   q stop", width)),
        ]  # fmt: skip

    def _end(self) -> list[str]:
        width, _ = self._terminal.size
        text, lines = in_words(self._comparisons.order), []
        while text:
            cut = len(text) if len(text) <= width else max(text.rfind(" ", 0, width), 1)
            lines.append(fit(text[:cut], width))
            text = text[cut:].lstrip()
        return [
            self._headline("all answered", width),
            fit(self._replaces, width),
            fit("Best first:", width),
            *lines,
            "",
            bold(fit("Enter writes the ranks   u undo the last answer", width)),
        ]

    def _headline(self, text: str, width: int) -> str:
        return bold(fit(f"{self._dataset.root.name}: {text}, {len(self._comparisons.episodes)} episodes, by {self._who}", width))

    @property
    def _legend(self) -> str:
        end = "×" if self._terminal.unicode else "x"
        return f"from above: o start  {end} end" + "".join(f"  {mark} {name}" for name, mark in self._marks.items())

    def _column(self, episode: int, facts: Facts, view: View, width: int, rows: int) -> list[str]:
        unit = " m" if self._spec else ""
        lines = [
            bold(fit(f"episode {episode}, {self._dataset.rows[episode].demonstrator}", width)),
            fit(f"outcome     {facts.outcome}", width),
            fit(f"length      {facts.seconds:.1f} s, {facts.frames} frames", width),
            fit(f"path        {facts.path_length:.2f}{unit}", width),
            fit(f"smoothness  {facts.roughness:.3f} mean |Δaction|", width),
            fit("" if facts.clearance is None else f"clearance   {facts.clearance:.3f}{unit} at the least", width),
        ]
        ends = facts.path[0], facts.path[-1]
        marks = {self._marks[name]: place for name, place in facts.things.items()}
        marks |= {"o": (ends[0][0], ends[0][1]), "×" if self._terminal.unicode else "x": (ends[1][0], ends[1][1])}
        return lines + sketch(facts.path, view, width, rows, marks, unicode=self._terminal.unicode)

    def _load(self, episode: int) -> Facts:
        return facts_of(self._dataset, episode, self._spec)


def in_words(groups: list[Group]) -> str:
    """Best first: 3 > 17 = 4 > 9."""
    return " > ".join(" = ".join(map(str, group)) for group in groups)


def _other_ranks(root: Path) -> str:
    """A warning where ranks of another origin are about to be replaced."""
    path = root / layout.RANKING
    how: dict[str, Any] = layout.read_json(path) if path.exists() else {}
    known = {"return": "ranks by return", "file": f"the ranks of {how.get('file')}"}
    return f"replaces {known[how['by']]}, set {how.get('at', '')[:10]}" if how.get("by") in known else ""
