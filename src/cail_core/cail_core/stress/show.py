"""A stress test as a table in the terminal, as a picture and as the section of a policy's card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from cail_core.errors import BadInput
from cail_core.figures import GOOD_TO_BAD, PICTURES, saved
from cail_core.progress import table
from cail_core.stress.findings import baseline, rows, sentences
from cail_core.stress.played import ALL, AS_TRAINED, SEES, Result, loses
from cail_core.tasks.variation import WORDS, shown

PLAYED = {0.5: "half way", 1.0: "end of range", 1.5: "beyond"}
"""The strengths, as the columns are called."""
LESS = {"period": "shorter period", "speed": "lower speed limit"}
"""How a condition is called that becomes less, where it is not just that."""


def row_name(what: str, more: bool) -> str:
    if what == ALL:
        return "all together"
    return WORDS[what] if more else LESS.get(what, f"less {WORDS[what]}")


def value_text(result: Result) -> str:
    return f"× {result.strength:g}" if result.what == ALL else shown(result.what, result.value)


def gap_text(results: Sequence[Result]) -> str:
    gaps = [result.closest_m for result in results if result.closest_m is not None]
    return f"{1e3 * min(gaps):.0f} mm" if gaps else "–"


def strengths(results: Sequence[Result]) -> list[float]:
    """The columns; one where nothing but as trained was played."""
    return sorted({result.strength for series in rows(results).values() for result in series}) or [1.0]


def conditions_table(results: Sequence[Result]) -> Table:
    """A line for each condition: its value and the success at each strength, and the closest gap of all. `!` marks a loss."""
    usual, columns = baseline(results), strengths(results)
    made = table("condition", *(PLAYED.get(s, f"× {s:g}") for s in columns), "gap")
    made.add_row(AS_TRAINED, _percent(usual, usual), *("" for _ in columns[1:]), gap_text([usual]))
    for (what, more), series in rows(results).items():
        at = {result.strength: result for result in series}
        cells = [f"{value_text(at[s])} {_percent(at[s], usual)}" if s in at else "" for s in columns]
        made.add_row(row_name(what, more), *cells, gap_text(series))
    return made


def _percent(result: Result, usual: Result) -> str:
    return f"{result.success:4.0%}{'!' if loses(result, usual) else ' '}"


def moved_table(results: Sequence[Result]) -> Table | None:
    """A line for each moved observation; None where none was moved."""
    usual, found = baseline(results), dict[str, dict[bool, Result]]()
    for result in results:
        if result.what == SEES:
            found.setdefault(result.observation, {})[result.value > 0] = result
    if not found:
        return None
    made = table("observation", "moved by", "less", "more")
    for name, sides in found.items():
        cells = [_percent(sides[up], usual) if up in sides else "" for up in (False, True)]
        made.add_row(name, f"{max(abs(one.value) for one in sides.values()):.2g}", *cells)
    return made


def figure(results: Sequence[Result], title: str, file: Path) -> Path:
    """Success by condition and strength, green to red; a loss has a frame."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    if file.suffix.lower() not in PICTURES:
        raise BadInput(f"expected a picture's name that ends in {', '.join(PICTURES)}, given {file}")
    usual, columns = baseline(results), strengths(results)
    lines = [(AS_TRAINED, {0: (f"{usual.episodes} episodes", usual)})]
    lines += [(row_name(*key), {columns.index(r.strength): (value_text(r), r) for r in series})
              for key, series in rows(results).items()]
    sides: dict[str, dict[int, tuple[str, Result]]] = {}
    for r in results:
        if r.what == SEES:
            sides.setdefault(r.observation, {})[int(r.value > 0)] = (f"{r.value:+.2g}", r)
    panels = [("condition", [PLAYED.get(s, f"× {s:g}") for s in columns], lines)]
    panels += [("observation moved by", ["less", "more"], list(sides.items()))] if sides else []
    colours = LinearSegmentedColormap.from_list("success", GOOD_TO_BAD[::-1])
    height = 1.5 + 0.34 * max(len(panel[2]) for panel in panels)
    drawn, axes_of = pyplot.subplots(1, len(panels), figsize=(6.2 * len(panels), height), layout="constrained", squeeze=False)
    for axes, (name, heads, content) in zip(axes_of[0], panels, strict=True):
        for y, (_, cells) in enumerate(content):
            for x, (text, r) in cells.items():
                lost = loses(r, usual)
                axes.add_patch(Rectangle((x - 0.47, y - 0.42), 0.94, 0.84, facecolor=colours(r.success), alpha=0.75,
                                         edgecolor="black" if lost else "none", linewidth=1.8))
                axes.text(x, y, f"{text}: {r.success:.0%}", ha="center", va="center", fontsize=9,
                          fontweight="bold" if lost else "normal")
        axes.set(xlim=(-0.55, len(heads) - 0.45), ylim=(len(content) - 0.4, -0.6), title=name)
        axes.set_xticks(range(len(heads)), heads)
        axes.set_yticks(range(len(content)), [line[0] for line in content])
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
    drawn.suptitle(f"{title}: {usual.success:.0%} as trained; a frame marks a loss")
    return saved(drawn, file)


def markdown(results: Sequence[Result]) -> str:
    """The section of a policy's card, without its heading."""
    usual, columns = baseline(results), strengths(results)
    said = "".join(f"- {text}\n" for text in sentences(results))
    heads = " | ".join(PLAYED.get(s, f"× {s:g}") for s in columns)
    lines = [f"| condition | {heads} |", "| --- |" + " --- |" * len(columns)]
    lines += [] if rows(results) else [f"| {AS_TRAINED} | {usual.success:.0%} |"]
    for (what, more), series in rows(results).items():
        at = {r.strength: f"{value_text(r)}: {r.success:.0%}{' (loss)' if loses(r, usual) else ''}" for r in series}
        lines.append(f"| {row_name(what, more)} | " + " | ".join(at.get(s, "") for s in columns) + " |")
    return (f"Success when one thing differs from the simulator that it learned in (`cail stress`, docs/stress.md):\n\n{said}\n"
            + "\n".join(lines) + "\n")
