"""Sorting by asking: the right order, few answers, ties, and what half an order is worth."""

from __future__ import annotations

import itertools
import random

import pytest

from cail_core.ranking.pairwise import Answer, Known, most_answers, progress


def ask(things: list[int], worth: dict[int, int], answers: list[Answer] | None = None) -> tuple[list[list[int]], list[Answer]]:
    """Sort by the answers of someone who judges by `worth`."""
    given = list(answers or [])
    while (pair := (state := progress(things, Known(given))).question) is not None:
        one, other = pair
        better = None if worth[one] == worth[other] else one if worth[one] > worth[other] else other
        given.append(Answer(pair, better))
    return state.order, given


def test_the_bound_is_that_of_merge_insertion() -> None:
    # Knuth, The Art of Computer Programming 3, section 5.3.1, table 1
    assert [most_answers(k) for k in range(1, 13)] == [0, 1, 3, 5, 7, 10, 13, 16, 19, 22, 26, 30]


@pytest.mark.parametrize("k", [2, 3, 4, 5, 6])
def test_every_order_of_few_things_is_found_within_the_bound(k: int) -> None:
    worst = 0
    for order in itertools.permutations(range(k)):
        found, answers = ask(list(range(k)), dict(enumerate(order)))
        assert [worth for group in found for worth in (order[e] for e in group)] == sorted(order, reverse=True)
        worst = max(worst, len(answers))
    assert worst == most_answers(k)  # no fewer would do for all orders


@pytest.mark.parametrize("k", [10, 21])
def test_many_things_need_about_k_log_k_answers(k: int) -> None:
    rng = random.Random(k)
    for _ in range(8):
        things = rng.sample(range(1000), k)
        worth = {thing: rng.random() for thing in things}
        found, answers = ask(things, worth)  # type: ignore[arg-type]
        assert [e for (e,) in found] == sorted(things, key=lambda e: -worth[e])
        assert len(answers) <= most_answers(k)


@pytest.mark.parametrize("levels", [1, 2, 3, 5])
def test_ties_are_grouped_and_never_cost_more(levels: int) -> None:
    rng = random.Random(levels)
    for k in (2, 3, 5, 8, 13, 20):
        for _ in range(8):
            worth = {thing: rng.randrange(levels) for thing in range(k)}
            found, answers = ask(list(range(k)), worth)
            expected = [sorted(e for e in worth if worth[e] == level) for level in sorted(set(worth.values()), reverse=True)]
            assert [sorted(group) for group in found] == expected
            assert len(answers) <= most_answers(k)


def test_a_resumed_sort_asks_nothing_twice() -> None:
    worth = {e: (7 * e) % 13 for e in range(13)}
    _, all_answers = ask(list(range(13)), worth)
    for kept in range(len(all_answers) + 1):
        _, answers = ask(list(range(13)), worth, all_answers[:kept])
        assert answers == all_answers


def test_other_episodes_use_what_is_known_of_the_old_ones() -> None:
    worth = {e: e for e in range(12)}
    _, answers = ask(list(range(10)), worth)
    order, more = ask(list(range(12)), worth, answers)
    assert [e for (e,) in order] == list(reversed(range(12)))
    assert len(more) - len(answers) <= 8  # two more by binary search among ten


def test_what_follows_is_known_without_being_asked() -> None:
    known = Known([Answer((1, 2), 1), Answer((3, 2), 2), Answer((3, 4), None), Answer((5, 1), None)])
    assert known.compare(1, 3) == known.compare(5, 4) == 1
    assert known.compare(4, 1) == -1
    assert known.compare(5, 1) == 0
    assert known.compare(6, 1) is None


def test_half_an_order_keeps_the_longest_part_that_is_certain() -> None:
    known = Known([Answer((0, 1), 0), Answer((2, 3), 2), Answer((0, 2), 0), Answer((3, 4), None)])
    assert known.longest_order([0, 1, 2, 3, 4]) == [[0], [2], [3, 4]]
    assert Known([]).longest_order([0, 1]) == [[0]]
    only_a_tie = Known([Answer((0, 1), None), Answer((2, 3), 2)])
    assert only_a_tie.longest_order([0, 1, 2, 3]) == [[2], [3]], "a tie alone orders nothing"
