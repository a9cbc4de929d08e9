"""Delete, merge, split: the episodes that stay are untouched, and nothing is half done."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import episode, features, same_episode, write

from cail_core.demos.check import check
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.edit import delete, merge, parse_ids, set_ranking, split
from cail_core.demos.ranking import provenance
from cail_core.errors import BadInput


def test_delete_keeps_the_others_and_their_ranks(dataset: DemoDataset) -> None:
    set_ranking(dataset.root, {2: 1, 5: 2, 7: 3}, provenance("test"))
    episodes = list(DemoDataset(dataset.root).iterate())
    delete(dataset.root, [0, 5, 29])
    left = DemoDataset(dataset.root)
    for one, other in zip([e for i, e in enumerate(episodes) if i not in (0, 5, 29)], left.iterate(), strict=True):
        same_episode(one, other)
    assert left.demonstrations().ranked.tolist() == [1, 5]
    assert check(dataset.root) == []


def test_delete_of_unknown_or_all_episodes_changes_nothing(dataset: DemoDataset) -> None:
    with pytest.raises(BadInput, match=r"0 … 29, given 30, 99"):
        delete(dataset.root, [1, 99, 30])
    with pytest.raises(BadInput, match="all 30"):
        delete(dataset.root, list(range(30)))
    assert DemoDataset(dataset.root).episodes == 30


def test_merge_joins_and_refuses_what_does_not_fit(dataset: DemoDataset, tmp_path: Path) -> None:
    like = features()
    other = write(tmp_path / "other", [episode(7, 100 + i, like) for i in range(3)], like)
    set_ranking(other.root, {0: 1, 2: 2}, provenance("test"))
    both = merge([dataset.root, other.root], tmp_path / "both")
    assert both.episodes == 33
    assert both.demonstrations().ranked.tolist() == [30, 32]
    assert check(both.root) == []
    with pytest.raises(BadInput, match="does not exist yet"):
        merge([dataset.root], tmp_path / "both")
    wide = features("float64")
    write(tmp_path / "wide", [episode(2, 0, wide)], wide)
    with pytest.raises(BadInput, match=r"do not fit together(.|\n)*action"):
        merge([dataset.root, tmp_path / "wide"], tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_merge_of_two_ranked_datasets_drops_ranks_that_cannot_be_compared(dataset: DemoDataset, tmp_path: Path) -> None:
    like = features()
    other = write(tmp_path / "other", [episode(7, 100 + i, like, rank=i + 1) for i in range(3)], like)
    set_ranking(dataset.root, {0: 1, 2: 2}, provenance("test"))
    assert len(merge([dataset.root, other.root], tmp_path / "both").demonstrations().ranked) == 0


def test_split_makes_two_and_keeps_the_old(dataset: DemoDataset, tmp_path: Path) -> None:
    split(dataset.root, {tmp_path / "a": [3, 4], tmp_path / "b": [0, 1]})
    same_episode(DemoDataset(tmp_path / "a").episode(1), dataset.episode(4))
    assert check(tmp_path / "a") == check(tmp_path / "b") == check(dataset.root) == []
    with pytest.raises(BadInput):
        split(dataset.root, {tmp_path / "c": [3, 4], tmp_path / "b": [0, 1]})
    assert not (tmp_path / "c").exists()


def test_ids_are_read_as_people_write_them() -> None:
    assert parse_ids(["3", "7", "10-12", "1,2"]) == [3, 7, 10, 11, 12, 1, 2]
    with pytest.raises(BadInput, match="given '-4'"):
        parse_ids(["-4"])
