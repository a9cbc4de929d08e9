"""What the cases of a stress test mean: how far each condition may go, what the policy steers by, and that in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from cail_core import __version__
from cail_core.stress.played import ALL, AS_TRAINED, SEES, WORKS, Result, falls, loses
from cail_core.tasks.variation import NOMINAL, WORDS, Conditions, shown

LEAST = "_least"
"""Ends the name of how far a condition may go down, such as `speed_least`; without it up."""


def baseline(results: Sequence[Result]) -> Result:
    return next(result for result in results if result.what == AS_TRAINED)


def rows(results: Sequence[Result]) -> dict[tuple[str, bool], list[Result]]:
    """Of each condition, upwards (True) or downwards, the results from mild to strong."""
    found: dict[tuple[str, bool], list[Result]] = {}
    for result in sorted(results, key=lambda one: one.strength):
        if result.what not in (AS_TRAINED, SEES):
            found.setdefault((result.what, result.value >= getattr(NOMINAL, result.what, 0.0)), []).append(result)
    order = {result.what: i for i, result in reversed(list(enumerate(results)))}
    return dict(sorted(found.items(), key=lambda row: (order[row[0][0]], row[0][1])))


def holds(results: Sequence[Result]) -> dict[str, float]:
    """How far each condition may go without a loss, as far as it was played: the last value before the first loss."""
    usual, found = baseline(results), {}
    if usual.success < WORKS:
        return {}
    for (what, more), series in rows(results).items():
        value = getattr(NOMINAL, what, 0.0)
        for result in series:
            if loses(result, usual):
                break
            value = result.value
        found[what if more else what + LEAST] = value
    return found


def leans(results: Sequence[Result]) -> list[Result]:
    """Observations that, moved either way by what they may be wrong by, make episodes fail; the worst first."""
    usual, worst = baseline(results), dict[str, Result]()
    for result in results:
        if result.what == SEES and loses(result, usual):
            before = worst.get(result.observation)
            worst[result.observation] = result if before is None or result.success < before.success else before
    return sorted(worst.values(), key=lambda result: result.success)


def sentences(results: Sequence[Result]) -> list[str]:
    """What a person must know: what it has as trained, then what it loses by."""
    usual = baseline(results)
    said = [f"as trained: {usual.success:.0%} of {usual.episodes} episodes succeed"]
    if usual.success < WORKS:
        return [*said, "so few that it cannot be said what it holds: train it better first"]
    said += _losses(results)
    for result in leans(results):
        said.append(f"steers by {result.observation}: moved by {abs(result.value):.2g}, which its sensors may be wrong by, "
                    f"{result.success:.0%} succeed")
    if len(said) == 1:
        most = max((result.strength for result in results if result.what == ALL), default=0.0)
        moves = any(result.what == SEES for result in results)
        far = "over the whole practised ranges" if most == 1.0 else f"up to {most:g} times the practised ranges"
        said.append(f"holds every condition that was played, each alone and all together {far}"
                    + (", and steers by no observation more than its sensors allow" if moves else ""))
    return said


def _losses(results: Sequence[Result]) -> Iterator[str]:
    usual = baseline(results)
    for (what, more), series in rows(results).items():
        lost = next((result for result in series if loses(result, usual)), None)
        first = lost or next((result for result in series if falls(result, usual)), None)
        if first is None:
            continue
        end = f"{first.success:.0%} succeed" if lost else f"{first.success:.0%} of {first.episodes} succeed, which may be chance"
        where = (f"with everything together at {first.strength:g} times the practised ranges" if what == ALL else
                 f"from {WORDS[what]} {shown(what, first.value)} {'on' if more else 'down'}")
        yield f"{'fails' if lost else 'perhaps fails'} {where}: {end}"


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """For the policy's card. Of the moved observations it has those that it steers by; `results_of` reads it."""
    told = leans(results)
    return {"episodes": sum(result.episodes for result in results), "success": round(baseline(results).success, 4),
            "holds": holds(results), "leans": [result.observation for result in told], "sentences": sentences(results),
            "cases": [asdict(result) | {"success": round(result.success, 4)} for result in results
                      if result.what != SEES or result in told],
            "moved": len({result.observation for result in results if result.what == SEES}), "cail": __version__}


def results_of(stress: Mapping[str, Any]) -> list[Result]:
    """The cases that a card tells of."""
    return [Result(**case) for case in stress["cases"]]


def faults(stress: Any) -> list[str]:
    """What is wrong with a card's `stress`; empty, it was never played."""
    if stress == {}:
        return []
    try:
        whole = all(isinstance(name, str) for what in ("leans", "sentences") for name in stress[what])
        numbers = [stress["success"], stress["episodes"], *stress["holds"].values()]
        whole &= all(isinstance(value, (int, float)) and math.isfinite(value) for value in numbers)
        whole &= isinstance(stress["cases"], list) and all(
            set(case) == {f.name for f in fields(Result)} for case in stress["cases"])
        whole &= baseline(results_of(stress)).episodes >= 1
    except (KeyError, TypeError, AttributeError, ValueError, StopIteration):
        whole = False
    return [] if whole else ["key 'stress': expected what `cail stress` writes (success, holds, leans, sentences, cases), found "
                             "something else; remove the key and run `cail stress` again"]


def condition_text(result: Result) -> str:
    """A row's name for people."""
    if result.what == ALL:
        return f"all together, × {result.strength:g}"
    if result.what == AS_TRAINED:
        return AS_TRAINED
    if result.what == SEES:
        return f"{result.observation} {result.value:+.2g}"
    return Conditions(**{result.what: result.value}).text()
