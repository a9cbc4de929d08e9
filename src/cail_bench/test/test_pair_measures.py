"""The measures of a confidence of pairs, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cail_bench.pair_measures import auc, auc_within, effective_share, measured, share_on_bad
from cail_bench.told import told
from cail_core.demos.demonstrations import Demonstrations
from cail_core.errors import BadInput

BAD = np.array([False, True, False, True, False, False, True, True, False])
SCORE = np.array([0.9, 0.1, 0.5, 0.6, 1.0, 2.0, 0.0, 1.5, 3.0])
STARTS = np.array([0, 4, 6, 9])


def test_the_area_counts_pairs_in_order_and_ties_half() -> None:
    # good 0.9, 0.5; bad 0.1, 0.6: in order (0.9, 0.1), (0.9, 0.6), (0.5, 0.1), not (0.5, 0.6)
    assert auc(SCORE[:4], BAD[:4]) == pytest.approx(3 / 4)
    assert auc(np.ones(4), BAD[:4]) == pytest.approx(0.5)
    assert auc(-SCORE[:4], BAD[:4]) == pytest.approx(1 / 4)
    assert np.isnan(auc(SCORE[4:6], BAD[4:6]))


def test_within_demonstrations_only_those_with_both_kinds_count() -> None:
    # the second demonstration has no bad frame; of the third all pairs are in order
    assert auc_within(SCORE, BAD, STARTS) == pytest.approx((3 / 4 + 1) / 2)
    assert auc_within(SCORE, BAD, STARTS, [0, 1]) == pytest.approx(3 / 4)
    assert np.isnan(auc_within(SCORE, BAD, STARTS, [1]))


def test_what_differs_between_demonstrations_does_not_count_within_them() -> None:
    higher = SCORE + np.repeat([0.0, 50.0, 100.0], [4, 2, 3])
    assert auc_within(higher, BAD, STARTS) == auc_within(SCORE, BAD, STARTS)


def test_shares_by_hand() -> None:
    weight = np.array([1.0, 3.0, 0.0, 0.0])
    assert share_on_bad(weight, np.array([False, True, True, False])) == pytest.approx(3 / 4)
    assert effective_share(weight) == pytest.approx(16 / (4 * 10))
    assert effective_share(np.full(7, 0.2)) == pytest.approx(1.0)


def test_all_are_reported_together_and_by_demonstrator() -> None:
    found = measured(SCORE, np.ones(9), BAD, STARTS, ["a", "b", "a"])
    assert found == {"auc_within": 0.875, "bad_share": round(4 / 9, 4), "bad_share_of_data": round(4 / 9, 4),
                     "effective_share": 1.0, "auc": {"a": 0.875}}


def test_clones_that_are_told_the_truth_get_nothing_bad() -> None:
    demos = Demonstrations(
        states=np.arange(9, dtype=np.float32)[:, None], actions=np.zeros((9, 1), np.float32),
        next_states=np.zeros((9, 1), np.float32), terminated=np.zeros(9, bool), starts=STARTS, rank=np.array([1, 2, 0]),
        demonstrator=["a", "b", "a"])
    experts = told(demos, BAD, "bc-experts")
    assert experts.states[:, 0].tolist() == [4, 5]
    assert (experts.starts.tolist(), experts.demonstrator) == ([0, 2], ["b"])
    good = told(demos, BAD, "bc-good-frames")
    assert good.states[:, 0].tolist() == [0, 2, 4, 5, 8]
    assert (good.starts.tolist(), good.rank.tolist()) == ([0, 2, 4, 5], [0, 0, 0])
    with pytest.raises(BadInput, match="not bad"):
        told(demos, np.ones(9, bool), "bc-good-frames")
