"""Settings chosen by rankings that were held out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cail_bench.methods import demonstrate
from cail_core.algorithms.eq7 import selection
from cail_core.algorithms.eq7.selection import ordered_pairs, select
from cail_core.algorithms.method import MethodConfig, method_config
from cail_core.demos.demonstrations import Demonstrations
from cail_core.tasks.pointmass import PointMass


@pytest.fixture(scope="module")
def demos() -> Demonstrations:
    return demonstrate(PointMass(), "paper", 0)[0]


def config(which: str) -> MethodConfig:
    made = method_config("cail-bc")
    return replace(made, before=replace(made.before, steps=9, batch=100, select=which))


def test_ordered_pairs_by_hand() -> None:
    # Ranked are 0, 1, 3 (and 2 not); 1 and 3 are tied. Held out: 1. Pairs with it: only (0, 1), for a tie says nothing.
    rank = np.array([1, 2, 0, 2])
    assert ordered_pairs(np.array([2.0, 1.0, 9.0, 5.0], np.float32), rank, np.array([1])) == (1, 1)
    assert ordered_pairs(np.array([1.0, 2.0, 9.0, 0.0], np.float32), rank, np.array([1])) == (0, 1)
    assert ordered_pairs(np.array([1.0, 2.0, 9.0, 0.0], np.float32), rank, np.array([0, 1])) == (1, 2)  # none counted twice


def test_the_ranks_of_a_fold_are_not_shown_to_the_confidence_that_is_judged_by_them(
    demos: Demonstrations, monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[Demonstrations] = []
    learn = selection.learn_confidence_before

    def watched(data: Demonstrations, *rest: object) -> object:
        shown.append(data)
        return learn(data, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(selection, "learn_confidence_before", watched)
    select(demos, config("steps"), torch.Generator().manual_seed(0), 50)
    assert len(shown) == 3 * 5
    assert all((data.rank > 0).sum() == 8 for data in shown)
    hidden = [set(np.flatnonzero((demos.rank > 0) & (data.rank == 0)).tolist()) for data in shown[:5]]
    assert set().union(*hidden) == set(demos.ranked.tolist())
    assert sum(map(len, hidden)) == 10


def test_the_best_on_held_out_rankings_is_taken(demos: Demonstrations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "held_out_accuracy", lambda d, c, g, h, f: {9: 0.7, 3: 0.9, 27: 0.8}[c.before.steps])
    assert select(demos, config("steps"), torch.Generator().manual_seed(0), 50).before.steps == 3


def test_nothing_is_chosen_where_too_few_are_ranked(demos: Demonstrations) -> None:
    few = replace(demos, rank=np.where(demos.rank <= 3, demos.rank, 0))
    assert select(few, config("share"), torch.Generator().manual_seed(0), 50) == config("share")
    assert select(demos, config("none"), torch.Generator().manual_seed(0), 50) == config("none")
