"""Episodes to rank are chosen by kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cail_core.cli import main
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.demonstrations import Demonstrations
from cail_core.errors import BadInput
from cail_core.ranking.diverse import unalike


def three_kinds(counts: tuple[int, int, int] = (50, 45, 5)) -> tuple[Demonstrations, list[int]]:
    """Walks that end in one of three places; the last kind is rare."""
    rng = np.random.default_rng(0)
    places = np.array([[5.0, 0.0], [-5.0, 0.0], [0.0, 5.0]])
    kinds = rng.permutation(np.repeat([0, 1, 2], counts)).tolist()
    walks = [np.linspace(0, 1, 11)[:, None] * places[k] + rng.normal(0, 0.1, (11, 2)) for k in kinds]
    states, nexts = (np.concatenate([w[a:b] for w in walks]).astype(np.float32) for a, b in ((0, 10), (1, 11)))
    n = len(kinds)
    return Demonstrations(states, np.zeros((10 * n, 1), np.float32), nexts, np.zeros(10 * n, bool),
                          10 * np.arange(n + 1, dtype=np.int64), np.zeros(n, np.int64)), kinds


@pytest.mark.parametrize("seed", range(5))
def test_a_rare_kind_is_among_the_chosen(seed: int) -> None:
    demos, kinds = three_kinds()
    for count in (3, 4, 6):
        chosen = unalike(demos, count, seed)
        assert len(set(chosen)) == count
        assert {kinds[e] for e in chosen} == {0, 1, 2}
    assert unalike(demos, 6, seed) == unalike(demos, 6, seed)


def test_episodes_that_are_all_the_same_can_still_be_chosen() -> None:
    demos, _ = three_kinds((4, 0, 0))
    same = Demonstrations(np.ones_like(demos.states), demos.actions, np.ones_like(demos.states), demos.terminated, demos.starts,
                          demos.rank)
    assert sorted(unalike(same, 4, 0)) == [0, 1, 2, 3]
    with pytest.raises(BadInput, match="expected 2 … 4 episodes to rank, given 5"):
        unalike(same, 5, 0)


def test_the_command_ranks_unalike_episodes_by_return(tmp_path: Path) -> None:
    out = tmp_path / "demos"
    assert main(["demos", "collect", "--task", "pointmass", "--episodes", "20", "--out", str(out)]) == 0
    assert main(["demos", "rank", str(out), "--by", "return", "--choose", "unalike", "--fraction", "0.25"]) == 0
    dataset = DemoDataset(out)
    ranked = sorted((row for row in dataset.rows if row.rank), key=lambda row: row.rank or 0)
    assert len(ranked) == 5
    returns = [row.undiscounted_return for row in ranked]
    assert returns == sorted(returns, reverse=True)
