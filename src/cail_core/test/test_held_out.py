"""How well a confidence orders ranked trajectories that were held out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cail_bench.methods import demonstrate
from cail_core.algorithms.eq7 import held_out
from cail_core.algorithms.eq7.held_out import FOLDS, held_out_accuracy, ordered_pairs
from cail_core.algorithms.method import method_config
from cail_core.demos.demonstrations import Demonstrations
from cail_core.tasks.pointmass import PointMass


@pytest.fixture(scope="module")
def demos() -> Demonstrations:
    return demonstrate(PointMass(), "paper", 0)[0]


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
    learn = held_out.learn_confidence_offline

    def watched(data: Demonstrations, *rest: object) -> object:
        shown.append(data)
        return learn(data, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(held_out, "learn_confidence_offline", watched)
    config = method_config("cail-bc", changes={"offline_confidence.steps": 9, "offline_confidence.batch_size": 100})
    generator = torch.Generator().manual_seed(0)
    accuracy = held_out_accuracy(demos, config, generator, 50, np.array_split(demos.ranked, FOLDS))
    assert 0.0 <= accuracy <= 1.0
    assert len(shown) == 5
    assert all((data.rank > 0).sum() == 8 for data in shown)
    hidden = [set(np.flatnonzero((demos.rank > 0) & (data.rank == 0)).tolist()) for data in shown]
    assert set().union(*hidden) == set(demos.ranked.tolist())
    assert sum(map(len, hidden)) == 10
