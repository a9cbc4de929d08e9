"""What goes into a dataset comes out, bit for bit, in the layout that LeRobot v3 readers expect."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import episode, fast_folder, features, same_episode, write
from hypothesis import given, settings
from hypothesis import strategies as st

from cail_core.demos.check import check
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.edit import merge
from cail_core.demos.features import ACTION, CONFIDENCE, REQUESTED, REWARD, STATE, SUCCESS, Feature
from cail_core.demos.stats import episode_stats, merge_stats
from cail_core.demos.writer import DemoWriter
from cail_core.errors import BadInput, DatasetError


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=40),
    dtype=st.sampled_from(["float32", "float64"]),
    reward=st.booleans(),
    success=st.booleans(),
    requested=st.booleans(),
    reopen=st.integers(0, 60),
    seed=st.integers(0, 1000),
)
def test_what_goes_in_comes_out_for_any_episode_lengths(
    lengths: list[int], dtype: str, reward: bool, success: bool, requested: bool, reopen: int, seed: int
) -> None:
    like = features(dtype, reward=reward, success=success, requested=requested)
    episodes = [
        episode(n, seed + i, like, truncated=i % 2 == 0, rank=i + 1 if i % 5 == 0 else None) for i, n in enumerate(lengths)
    ]
    with fast_folder() as folder:
        root = Path(folder, "demos")
        dataset = write(root, episodes[:reopen], like)
        with DemoWriter.open(root) as writer:
            writer.save_all(episodes[reopen:])
        dataset = DemoDataset(root)
        assert dataset.episodes == len(episodes)
        for given_, found in zip(episodes, dataset.iterate(), strict=True):
            same_episode(given_, found)
        assert dataset.column(STATE).tobytes() == np.concatenate([e.frames[STATE] for e in episodes]).tobytes()
        assert check(root) == []


@settings(max_examples=25, deadline=None)
@given(
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=3, max_size=3),
    text=st.text(min_size=1, max_size=20).filter(lambda t: t.isprintable()),
)
def test_extreme_numbers_and_names_survive(values: list[float], text: str) -> None:
    like = features()
    odd = episode(2, 0, like)
    odd.frames[STATE][0] = values
    odd.frames[STATE][1] = [0.0, -0.0, np.finfo(np.float32).tiny]
    odd.demonstrator = text
    with fast_folder() as folder:
        dataset = write(Path(folder, "demos"), [odd], like)
        same_episode(odd, dataset.episode(0))


def test_learner_sees_what_was_asked_for_where_an_arm_executed_something_else(tmp_path: Path) -> None:
    like = features(requested=True)
    recorded = episode(3, 0, like)
    learned_from = write(tmp_path / "d", [recorded], like).demonstrations().actions
    np.testing.assert_array_equal(learned_from, recorded.frames[REQUESTED])
    assert not np.array_equal(learned_from, recorded.frames[ACTION])


def test_learner_sees_pairs_successors_and_order_but_no_returns(tmp_path: Path) -> None:
    like = features()
    episodes = [episode(3, 0, like, truncated=True, rank=2), episode(2, 1, like), episode(4, 2, like, rank=1)]
    demonstrations = write(tmp_path / "d", episodes, like).demonstrations()
    assert demonstrations.episodes == 3
    assert demonstrations.starts.tolist() == [0, 3, 5, 9]
    assert demonstrations.ranked.tolist() == [2, 0]
    assert demonstrations.terminated.tolist() == [False, False, False, False, True, False, False, False, True]
    np.testing.assert_array_equal(demonstrations.next_states[:2], demonstrations.states[1:3])
    np.testing.assert_array_equal(demonstrations.next_states[2], episodes[0].final_state)
    np.testing.assert_array_equal(demonstrations.next_states[8], episodes[2].final_state)
    assert not [name for name in vars(demonstrations) if "return" in name or "reward" in name]


def test_layout_is_what_lerobot_v3_readers_expect(dataset: DemoDataset) -> None:
    root = dataset.root
    info = json.loads((root / "meta/info.json").read_text())
    assert info["codebase_version"] == "v3.0"
    assert info["total_episodes"] == 30
    assert info["total_frames"] == dataset.frames
    assert info["splits"] == {"train": "0:30"}
    assert isinstance(info["fps"], int)
    for name in (
        "observation.state",
        "action",
        "next.reward",
        "next.done",
        "next.success",
        "timestamp",
        "frame_index",
        "episode_index",
        "index",
        "task_index",
    ):
        assert set(info["features"][name]) == {"dtype", "shape", "names"}, name

    data = pq.read_table(root / info["data_path"].format(chunk_index=0, file_index=0))
    assert data.schema.field("observation.state").type == pa.list_(pa.float32(), 3)
    assert data.schema.field("next.done").type == pa.bool_()
    hub = json.loads(data.schema.metadata[b"huggingface"])["info"]["features"]
    assert hub["observation.state"] == {"feature": {"dtype": "float32", "_type": "Value"}, "length": 3, "_type": "List"}
    assert hub["index"] == {"dtype": "int64", "_type": "Value"}

    rows = pa.concat_tables([pq.read_table(p) for p in sorted((root / "meta/episodes").rglob("*.parquet"))])
    assert rows.column("episode_index").to_pylist() == list(range(30))
    assert rows.column("dataset_to_index").to_pylist()[-1] == dataset.frames
    assert rows.column("tasks").to_pylist()[0] == ["Reach the goal."]
    for name in (
        "data/chunk_index",
        "data/file_index",
        "meta/episodes/chunk_index",
        "stats/action/mean",
        "stats/next.reward/q99",
    ):
        assert name in rows.column_names

    tasks = pq.read_table(root / "meta/tasks.parquet")
    assert tasks.column("__index_level_0__").to_pylist() == ["Reach the goal."]
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["__index_level_0__"]


def test_stats_are_those_of_all_frames(dataset: DemoDataset) -> None:
    stats = json.loads((dataset.root / "meta/stats.json").read_text())
    for name in (STATE, ACTION, REWARD):
        values = dataset.column(name).astype(np.float64).reshape(dataset.frames, -1)
        np.testing.assert_allclose(stats[name]["mean"], values.mean(axis=0), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(stats[name]["std"], values.std(axis=0), rtol=1e-9)
        np.testing.assert_allclose(stats[name]["min"], values.min(axis=0))
        np.testing.assert_allclose(stats[name]["max"], values.max(axis=0))
        assert stats[name]["count"] == [dataset.frames]


def test_episode_stats_by_hand() -> None:
    stats = episode_stats(np.array([[1.0], [2.0], [3.0], [4.0], [5.0]]))
    assert stats["min"].base is None  # a view would keep the frames
    assert stats["max"].base is None
    assert (stats["min"][0], stats["max"][0], stats["mean"][0], stats["count"][0]) == (1, 5, 3, 5)
    assert stats["std"][0] == pytest.approx(np.sqrt(2))
    assert (stats["q01"][0], stats["q50"][0]) == (pytest.approx(1.04), 3)
    merged = merge_stats([stats, episode_stats(np.array([[9.0]]))])
    assert merged["mean"][0] == pytest.approx(4)
    assert merged["std"][0] == pytest.approx(np.std([1, 2, 3, 4, 5, 9]))


def test_wrong_episodes_are_refused_with_every_fault_and_nothing_is_written(dataset: DemoDataset) -> None:
    bad = episode(3, 0, features())
    bad.frames[STATE][1, 2] = np.nan
    bad.frames[ACTION] = bad.frames[ACTION][:, :1]
    bad.frames[REWARD] = bad.frames[REWARD].astype(np.float64)
    bad.outcome = "splendid"
    before = sorted(p for p in dataset.root.rglob("*"))
    with DemoWriter.open(dataset.root) as writer, pytest.raises(BadInput) as fault:
        writer.save_episode(bad)
    for part in (
        "observation.state: 1 frame(s) are not finite, the first is frame 1",
        "action: expected 2",
        "next.reward: expected float32",
        "'splendid'",
    ):
        assert part in str(fault.value)
    assert sorted(p for p in dataset.root.rglob("*")) == before
    assert check(dataset.root) == []


def test_check_lists_all_faults_at_once(dataset: DemoDataset) -> None:
    data = sorted(dataset.root.glob("data/*/*.parquet"))
    data[3].write_bytes(data[3].read_bytes()[:100])
    data[7].write_bytes(b"")
    data[9].unlink()
    table = pq.read_table(data[11])
    broken = table.column(REWARD).to_numpy().copy()
    broken[0] = np.inf
    pq.write_table(table.set_column(table.column_names.index(REWARD), REWARD, pa.array(broken)), data[11])
    (dataset.root / "meta/stats.json").write_text("{}")
    faults = check(dataset.root)
    text = "\n".join(faults)
    for part in ("episode 3:", "episode 7:", "episode 9:", "episode 11: next.reward", "meta/stats.json"):
        assert part in text
    with pytest.raises(DatasetError, match=r"file-003\.parquet: empty, cut short or not Parquet"):
        dataset.column(STATE)


def test_a_folder_that_is_no_dataset_is_named(tmp_path: Path, dataset: DemoDataset) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        DemoDataset(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match=r"meta/info\.json"):
        DemoDataset(tmp_path / "empty")
    info = json.loads((dataset.root / "meta/info.json").read_text())
    (dataset.root / "meta/info.json").write_text(json.dumps({**info, "codebase_version": "v2.1"}))
    with pytest.raises(DatasetError, match=r"v3\.0, given v2\.1"):
        DemoDataset(dataset.root)


def test_two_writers_cannot_hold_one_dataset(dataset: DemoDataset) -> None:
    with DemoWriter.open(dataset.root), pytest.raises(DatasetError, match="being written by another process"):
        DemoWriter.open(dataset.root)
    DemoWriter.open(dataset.root).close()


def test_a_reader_keeps_its_view_while_a_writer_appends(dataset: DemoDataset) -> None:
    with DemoWriter.open(dataset.root) as writer:
        writer.save_episode(episode(5, 77, features()))
    assert dataset.episodes == 30
    assert len(dataset.column(STATE)) == dataset.frames
    assert DemoDataset(dataset.root).episodes == 31


def test_extra_features_such_as_confidence_are_kept(tmp_path: Path) -> None:
    like = {**features(), CONFIDENCE: Feature("float32", (1,)), "force": Feature("float32", (6,), tuple("abcdef"))}
    one = episode(4, 0, features())
    one.frames[CONFIDENCE] = np.array([0.5, 1.0, 2.0, 0.0], dtype=np.float32)
    one.frames["force"] = np.ones((4, 6), dtype=np.float32)
    same_episode(one, write(tmp_path / "d", [one], like).episode(0))


def test_packing_many_small_files_keeps_every_bit(dataset: DemoDataset, tmp_path: Path) -> None:
    packed = merge([dataset.root], tmp_path / "packed")
    assert len(list(packed.root.glob("data/*/*.parquet"))) == 1
    for a, b in zip(dataset.iterate(), packed.iterate(), strict=True):
        same_episode(a, b)
    assert check(packed.root) == []
    same_episode(packed.episode(17), dataset.episode(17))


def test_a_dataset_can_be_moved_and_copied(dataset: DemoDataset, tmp_path: Path) -> None:
    shutil.copytree(dataset.root, tmp_path / "copy")
    assert check(tmp_path / "copy") == []
    assert SUCCESS in DemoDataset(tmp_path / "copy").features


def test_a_save_that_fails_half_way_stops_the_writer_and_is_completed_on_reopening(dataset: DemoDataset) -> None:
    one, obstacle = episode(5, 77, features()), dataset.root / "meta/info.json.tmp"
    with DemoWriter.open(dataset.root) as writer:
        obstacle.mkdir()
        with pytest.raises(IsADirectoryError):
            writer.save_episode(one)
        obstacle.rmdir()
        with pytest.raises(DatasetError, match="open the dataset again"):
            writer.save_episode(one)
    DemoWriter.open(dataset.root).close()
    healed = DemoDataset(dataset.root)
    assert healed.episodes == 31
    same_episode(healed.episode(30), one)
    assert check(dataset.root) == []
