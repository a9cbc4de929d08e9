"""Sorts by asking: merge insertion (Ford and Johnson), which needs about k·log2 k answers for k things, ties allowed.

The sort is a generator that yields the next pair to compare, so that a person can be asked, undo an answer and go on
another day: what is known is a list of answers, and the sort is run through them again.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

Pair = tuple[int, int]
Group = list[int]
"""Things that are equally good."""


@dataclass(frozen=True)
class Answer:
    """What a person said of two episodes: which is better, or None where neither is."""

    pair: Pair
    better: int | None
    by: str = ""
    at: str = ""


def most_answers(k: int) -> int:
    """The number of answers that always suffices for k things: Σ ⌈log2(3i/4)⌉ for i = 2 … k."""
    return sum(math.ceil(math.log2(3 * i / 4)) for i in range(2, k + 1))


class Known:
    """What the answers say, also of pairs that were never shown: better than better is better still."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        given = list(answers)
        self._same: dict[int, Group] = {}
        for answer in given:
            if answer.better is None:
                one, other = (self._same.get(e, [e]) for e in answer.pair)
                if one is not other:
                    joined = sorted(one + other)
                    self._same.update(dict.fromkeys(joined, joined))
        self._below: dict[int, set[int]] = {}
        for answer in given:
            if answer.better is not None:
                worse = answer.pair[answer.pair[0] == answer.better]
                self._below.setdefault(self._class(answer.better), set()).add(self._class(worse))

    def compare(self, one: int, other: int) -> int | None:
        """1 if `one` is known to be better, -1 if worse, 0 if they are tied, None if nothing is known."""
        a, b = self._class(one), self._class(other)
        if a == b:
            return 0
        if b in self._all_below(a):
            return 1
        return -1 if a in self._all_below(b) else None

    def longest_order(self, things: Sequence[int]) -> list[Group]:
        """Of `things`, as many as have a known order among all of them, best first."""
        classes: dict[int, Group] = {}
        for thing in things:
            classes.setdefault(self._class(thing), []).append(thing)
        best: dict[int, list[int]] = {}
        for one in sorted(classes, key=lambda c: len(self._all_below(c))):  # what is below something comes before it
            tails = [best[other] for other in best if other in self._all_below(one)]
            best[one] = [one, *max(tails, key=lambda tail: sum(len(classes[c]) for c in tail), default=[])]
        longest = max(best.values(), key=lambda order: (len(order) > 1, sum(len(classes[c]) for c in order)), default=[])
        return [classes[c] for c in longest]

    def _class(self, thing: int) -> int:
        return self._same.get(thing, [thing])[0]

    def _all_below(self, top: int) -> set[int]:
        found: set[int] = set()
        queue = [top]
        while queue:
            for lower in self._below.get(queue.pop(), set()) - found:
                found.add(lower)
                queue.append(lower)
        return found


@dataclass(frozen=True)
class Progress:
    """How far the answers bring the sort: the next pair to ask about, or the order, best first."""

    step: int
    question: Pair | None
    order: list[Group]


def progress(things: Sequence[int], known: Known) -> Progress:
    """Run the sort of `things` through what is known."""
    sort, step, verdict = merge_insertion([[thing] for thing in things]), 0, None
    while True:
        try:
            pair = next(sort) if verdict is None else sort.send(verdict)
        except StopIteration as end:
            return Progress(step, None, [sorted(group) for group in reversed(end.value)])
        verdict = known.compare(*pair)
        if verdict is None:
            return Progress(step, pair, [])
        step += 1


def merge_insertion(groups: list[Group]) -> Generator[Pair, int, list[Group]]:
    """Sort, worst first. Yields pairs and takes 1 (the first is better), -1 (the second is) or 0 (a tie)."""
    if len(groups) < 2:
        return list(groups)
    winners: list[Group] = []
    loser_to: dict[int, Group] = {}
    rest: list[Group] = [groups[-1]] if len(groups) % 2 else []
    for one, other in zip(groups[0::2], groups[1::2], strict=False):
        verdict = yield one[0], other[0]
        if verdict == 0:
            rest.append(one + other)
        else:
            better, worse = (one, other) if verdict > 0 else (other, one)
            winners.append(better)
            loser_to[better[0]] = worse
    chain = yield from merge_insertion(winners)
    pending: list[tuple[Group, int | None]] = [(loser_to[w], w) for group in chain for w in group if w in loser_to]
    pending += [(group, None) for group in rest]
    for i in _insertion_order(len(pending)):
        group, winner = pending[i]
        low, high = 0, len(chain) if winner is None else next(at for at, place in enumerate(chain) if winner in place)
        while low < high:
            middle = (low + high) // 2
            verdict = yield group[0], chain[middle][0]
            if verdict == 0:
                chain[middle] = chain[middle] + group
                break
            low, high = (middle + 1, high) if verdict > 0 else (low, middle)
        else:
            chain.insert(low, group)
    return chain


def _insertion_order(n: int) -> list[int]:
    """0, 2 1, 4 3, 10 … 5, …: in this order each binary search runs over 2^m − 1 places, where an answer tells most."""
    order = list(range(min(n, 1)))
    size = power = 2
    while len(order) < n:
        start = len(order)
        order += reversed(range(start, min(start + size, n)))
        power *= 2
        size = power - size
    return order
