"""Delete, merge, split: the episodes that stay are untouched, and nothing is half done."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import episode, features, same_episode, write

from cail_core.demos.check import check
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.edit import delete, merge, parse_ids, set_ranking, split
from cail_core.demos.writer import DemoWriter
from cail_core.errors import BadInput
from cail_core.ranking.ranks import provenance


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


def test_what_an_arm_recorded_joins_what_a_simulator_gave(tmp_path: Path) -> None:
    plain, recorded = features(), features(requested=True)
    one = write(tmp_path / "simulated", [episode(5, 0, plain)], plain)
    other = write(tmp_path / "recorded", [episode(6, 1, recorded)], recorded)
    both = merge([one.root, other.root], tmp_path / "both")
    first, second = both.iterate()
    assert (first.frames["action.requested"] == one.episode(0).frames["action"]).all()
    same_episode(second, other.episode(0))
    assert check(both.root) == []


def test_merge_of_two_ranked_datasets_drops_ranks_that_cannot_be_compared(dataset: DemoDataset, tmp_path: Path) -> None:
    like = features()
    other = write(tmp_path / "other", [episode(7, 100 + i, like, rank=i + 1) for i in range(3)], like)
    set_ranking(dataset.root, {0: 1, 2: 2}, provenance("test"))
    assert len(merge([dataset.root, other.root], tmp_path / "both").demonstrations().ranked) == 0


def test_split_makes_two_and_keeps_the_old(dataset: DemoDataset, tmp_path: Path) -> None:
    split(dataset.root, [(tmp_path / "a", [3, 4]), (tmp_path / "b", [0, 1])])
    same_episode(DemoDataset(tmp_path / "a").episode(1), dataset.episode(4))
    assert check(tmp_path / "a") == check(tmp_path / "b") == check(dataset.root) == []
    with pytest.raises(BadInput):
        split(dataset.root, [(tmp_path / "c", [3, 4]), (tmp_path / "b", [0, 1])])
    assert not (tmp_path / "c").exists()


def test_ids_are_read_as_people_write_them() -> None:
    assert parse_ids(["3", "7", "10-12", "1,2"], 20) == [1, 2, 3, 7, 10, 11, 12]
    for wrong in ("-4", "9-3", "²", "5-20", "0-9999999999"):
        with pytest.raises(BadInput, match=f"{wrong}"):
            parse_ids([wrong], 20)


def test_a_change_through_a_link_changes_the_dataset_and_keeps_the_link(dataset: DemoDataset, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(dataset.root)
    set_ranking(link, {0: 1, 1: 2}, provenance("test"))
    delete(link, [29])
    assert link.is_symlink()
    assert DemoDataset(dataset.root).episodes == 29
    assert DemoDataset(dataset.root).demonstrations().ranked.tolist() == [0, 1]
    assert [p.name for p in tmp_path.iterdir()] == ["link"]


def test_delete_keeps_what_others_put_into_the_folder_and_its_permissions(dataset: DemoDataset) -> None:
    (dataset.root / "bags").mkdir()
    (dataset.root / "bags" / "episode_0.mcap").write_text("recorded")
    (dataset.root / "notes.tmp").write_text("mine")
    dataset.root.chmod(0o750)
    delete(dataset.root, [3])
    DemoWriter.open(dataset.root).close()
    assert (dataset.root / "bags" / "episode_0.mcap").read_text() == "recorded"
    assert (dataset.root / "notes.tmp").read_text() == "mine"
    assert dataset.root.stat().st_mode & 0o777 == 0o750
    assert check(dataset.root) == []


def test_an_episode_whose_save_was_cut_off_is_completed_before_a_change(dataset: DemoDataset, tmp_path: Path) -> None:
    tables = {p: p.read_bytes() for p in (dataset.root / "meta").rglob("*") if p.is_file()}
    one = episode(5, 77, features())
    with DemoWriter.open(dataset.root) as writer:
        writer.save_episode(one)
    for path, content in tables.items():  # as a kill between the data file and the tables leaves it
        path.write_bytes(content)
    assert DemoDataset(dataset.root).episodes == 30
    same_episode(merge([dataset.root], tmp_path / "copy").episode(30), one)
    delete(dataset.root, [0])
    same_episode(DemoDataset(dataset.root).episode(29), one)


def test_a_packed_save_cut_off_between_two_tables_is_completed(dataset: DemoDataset) -> None:
    like = features()
    more = [episode(2, 100 + i, like) for i in range(60)]
    with DemoWriter.open(dataset.root) as writer:
        writer.save_all(more)
    last = sorted((dataset.root / "meta/episodes").glob("*/*.parquet"))[-1]
    last.unlink()
    DemoWriter.open(dataset.root).close()
    found = list(DemoDataset(dataset.root).iterate())
    assert len(found) == 90
    same_episode(found[-1], more[-1])
    assert check(dataset.root) == []


def test_split_into_one_folder_twice_is_refused(dataset: DemoDataset, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="different folders"):
        split(dataset.root, [(tmp_path / "a", [0]), (tmp_path / "b" / ".." / "a", [1])])
    assert not (tmp_path / "a").exists()
