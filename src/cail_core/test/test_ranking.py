"""Ranks: from returns, from hand-written files; only the order counts."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from cail_core.demos.dataset import DemoDataset
from cail_core.demos.edit import set_ranking
from cail_core.errors import BadInput
from cail_core.ranking.ranks import provenance, rank_by_return, read_ranking


def test_ranking_by_return_spreads_over_all_qualities() -> None:
    returns = np.random.default_rng(3).permutation(200).astype(np.float64)
    ranking = rank_by_return(returns, 0.05, seed=0)
    assert sorted(ranking.values()) == list(range(1, 11))
    best_first = sorted(ranking, key=lambda e: ranking[e])
    assert all(returns[a] > returns[b] for a, b in itertools.pairwise(best_first))
    # one of each tenth of the qualities
    assert [int((199 - returns[e]) // 20) for e in best_first] == list(range(10))
    assert rank_by_return(returns, 0.05, seed=0) == ranking
    assert rank_by_return(returns, 0.05, seed=1) != ranking


def test_equal_returns_share_a_rank_and_two_episodes_are_the_least() -> None:
    assert rank_by_return(np.array([1.0, 1.0, 0.0]), 1.0, seed=0) == {0: 1, 1: 1, 2: 3}
    assert len(rank_by_return(np.arange(100.0), 0.001, seed=0)) == 2
    with pytest.raises(BadInput, match="fraction"):
        rank_by_return(np.arange(100.0), 0.0, seed=0)
    with pytest.raises(BadInput, match="at least 2 episodes"):
        rank_by_return(np.arange(1.0), 1.0, seed=0)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("r.yaml", "[5, 3, 1]", {5: 1, 3: 2, 1: 3}),
        ("r.yaml", "- 5\n- [3, 2]\n- 1\n", {5: 1, 3: 2, 2: 2, 1: 4}),
        ("r.yml", "ranking: [0, 7]\nwho: anna\n", {0: 1, 7: 2}),
        ("r.csv", "5\n3,2\n1\n", {5: 1, 3: 2, 2: 2, 1: 4}),
        ("r.csv", "# best first\nepisode\n4\n2\n", {4: 1, 2: 2}),
        ("r.csv", "episode,rank\n4,2\n2,1\n9,2\n", {2: 1, 4: 2, 9: 2}),
        ("r.csv", "\ufeffepisode,rank\n4,2\n2,1\n", {2: 1, 4: 2}),  # as Excel saves it
    ],
)
def test_hand_written_rankings_are_read(tmp_path: Path, name: str, text: str, expected: dict[int, int]) -> None:
    (tmp_path / name).write_text(text)
    assert read_ranking(tmp_path / name, episodes=10) == expected


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        (
            "r.yaml",
            "[5, 99, 3, 5, oak]",
            ["3 faults", "names episode 99, the dataset has 0 … 9", "names episode 5 twice", "'oak'"],
        ),
        ("r.yaml", "[5]", ["at least 2 episodes"]),
        ("r.yaml", "[[5, 3]]", ["orders nothing"]),
        ("r.yaml", "best: 5", ["expected a list"]),
        ("r.yaml", "[5, 3", ["not valid YAML"]),
        ("r.csv", "", ["at least 2 episodes"]),
        ("r.csv", "episode,rank\n4\n", ["expected lines 'episode,rank'"]),
        ("r.csv", "episode,rank\n4,nan\n5,-inf\n", ["2 faults", "given '4,nan'", "given '5,-inf'"]),
        ("r.yaml", "[2020-13-45]", ["not valid YAML"]),
        ("r.txt", "5", ["as .yaml or .csv"]),
    ],
)
def test_wrong_rankings_list_every_fault(tmp_path: Path, name: str, text: str, parts: list[str]) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Exception) as fault:
        read_ranking(tmp_path / name, episodes=10)
    for part in parts:
        assert part in str(fault.value)


def test_ranks_are_kept_with_the_episodes_and_replaced_as_a_whole(dataset: DemoDataset) -> None:
    before = [p.stat().st_ino for p in sorted(dataset.root.glob("data/*/*.parquet"))]
    set_ranking(dataset.root, {3: 1, 8: 2, 29: 2}, provenance("file", file="r.yaml"))
    assert DemoDataset(dataset.root).demonstrations().ranked.tolist() == [3, 8, 29]
    set_ranking(dataset.root, {1: 1, 2: 2}, provenance("file", file="r.yaml"))
    ranked = DemoDataset(dataset.root)
    assert {row.episode_index: row.rank for row in ranked.rows if row.rank} == {1: 1, 2: 2}
    assert [p.stat().st_ino for p in sorted(dataset.root.glob("data/*/*.parquet"))] == before, "frames must not be rewritten"
    assert not [p for p in dataset.root.parent.iterdir() if p.name.startswith(".")]
