"""Other tools' files: what is exported comes back identical, and what others wrote is understood."""

from __future__ import annotations

import json
import warnings
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import episode, fast_folder, features, same_dataset, write
from hypothesis import given, settings
from hypothesis import strategies as st

from cail_core.demos.check import check
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.features import DONE, REWARD, STATE, TRUNCATED
from cail_core.demos.importing import export_demos, import_demos
from cail_core.errors import BadInput, CailError
from cail_core.tasks import get_task

SUFFIX = {"npz": ".npz", "robomimic": ".hdf5", "minari": ""}


@settings(max_examples=12, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    dtype=st.sampled_from(["float32", "float64"]),
    reward=st.booleans(),
    success=st.booleans(),
    requested=st.booleans(),
    form=st.sampled_from(sorted(SUFFIX)),
)
def test_import_of_an_export_is_the_same_dataset(
    lengths: list[int], dtype: str, reward: bool, success: bool, requested: bool, form: str
) -> None:
    like = features(dtype, reward=reward, success=success, requested=requested)
    with fast_folder() as folder:
        episodes = [episode(n, i, like, truncated=i % 3 == 0, rank=i + 1 if i % 4 == 0 else None) for i, n in enumerate(lengths)]
        original = write(Path(folder, "original"), episodes, like)
        exported = Path(folder, f"exported{SUFFIX[form]}")
        export_demos(original, form, exported)
        back, notes = import_demos(exported, Path(folder, "back"))
        same_dataset(original, back)
        assert notes == []
        assert check(back.root) == []


def test_import_of_our_own_folder_is_the_same_dataset(dataset: DemoDataset, tmp_path: Path) -> None:
    back, _ = import_demos(dataset.root, tmp_path / "back")
    same_dataset(dataset, back)


def transitions(lengths: list[int], width: int = 4, actions: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """Trajectories whose successors are the next states, each from a start of its own."""
    rng = np.random.default_rng(seed)
    paths = [rng.normal(size=(n + 1, width)).astype(np.float32) for n in lengths]
    n = sum(lengths)
    return {
        "states": np.concatenate([p[:-1] for p in paths]),
        "next_states": np.concatenate([p[1:] for p in paths]),
        "actions": rng.uniform(-1, 1, (n, actions)).astype(np.float32),
        "rewards": rng.normal(size=n).astype(np.float32),
        "dones": np.zeros(n, dtype=np.float32),
    }


def test_npz_episodes_end_at_dones_and_where_the_next_state_is_not_the_following_one(tmp_path: Path) -> None:
    arrays = transitions([5, 3, 4])
    arrays["dones"][4] = 1  # the first ends by the task, the second by a break in the states, the third with the file
    np.savez(tmp_path / "a.npz", **arrays)
    dataset, notes = import_demos(tmp_path / "a.npz", tmp_path / "d", spec=get_task("pointmass").spec)
    assert [row.length for row in dataset.rows] == [5, 3, 4]
    ends = [4, 7, 11]
    assert np.flatnonzero(dataset.column(DONE)).tolist() == ends
    assert dataset.column(TRUNCATED)[ends].tolist() == [False, True, True]
    assert dataset.column(STATE).tobytes() == arrays["states"].tobytes()
    demonstrations = dataset.demonstrations()
    assert demonstrations.next_states.tobytes() == arrays["next_states"].tobytes()
    assert np.flatnonzero(demonstrations.terminated).tolist() == [4]
    assert dataset.features[STATE].names == ("goal_dx", "goal_dy", "velocity_x", "velocity_y")
    assert notes == []


def test_npz_with_a_fixed_episode_length_keeps_states_carried_over_a_reset_and_says_so(tmp_path: Path) -> None:
    # A recorder that keeps the old state after a reset hides the ends: only the length tells them.
    arrays = transitions([12])
    np.savez(tmp_path / "a.npz", **arrays)
    dataset, notes = import_demos(tmp_path / "a.npz", tmp_path / "d", episode_length=4, fps=10)
    assert [row.length for row in dataset.rows] == [4, 4, 4]
    assert dataset.column(TRUNCATED)[[3, 7, 11]].all()
    assert len(notes) == 1
    assert "2 of 3 episodes begin in the last state of the one before" in notes[0]


def test_npz_time_limits_marked_done_are_time_limits_when_the_length_is_given(tmp_path: Path) -> None:
    arrays = transitions([4, 4])
    arrays["dones"][[3, 7]] = 1
    np.savez(tmp_path / "a.npz", **arrays)
    by_length, _ = import_demos(tmp_path / "a.npz", tmp_path / "d", episode_length=4)
    by_dones, _ = import_demos(tmp_path / "a.npz", tmp_path / "e")
    assert not by_length.demonstrations().terminated.any()
    assert by_dones.demonstrations().terminated.sum() == 2


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"states": None}, "misses states"),
        ({"rewards": np.zeros(3)}, "rewards: expected 12 rows, given 3"),
        ({"actions": np.zeros((12, 2, 2))}, "actions: expected the shape"),
        ({"actions": np.full((12, 2), np.nan)}, "actions: 12 row(s) are not finite"),
        ({"dones": np.full(12, 7.0)}, "dones: expected 0 or 1"),
        ({"next_states": np.zeros((12, 3), np.float32)}, "next_states: expected the shape of states"),
        ({"states": np.array(["a"] * 12)}, "states: expected numbers"),
        (
            {"states": np.zeros((12, 5), np.float32), "next_states": np.ones((12, 5), np.float32)},
            "states: task 'pointmass' has 4 numbers, given 5",
        ),
    ],
)
def test_wrong_npz_arrays_are_named_and_nothing_appears(
    tmp_path: Path, change: dict[str, np.ndarray | None], expected: str
) -> None:
    arrays = {name: values for name, values in {**transitions([12]), **change}.items() if values is not None}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(BadInput) as fault:
        import_demos(tmp_path / "a.npz", tmp_path / "d", spec=get_task("pointmass").spec)
    assert expected in str(fault.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz"]


def test_all_faults_of_an_npz_are_listed_at_once(tmp_path: Path) -> None:
    arrays = transitions([12])
    arrays["states"][3, 1] = np.nan
    arrays["rewards"] = arrays["rewards"][:5]
    arrays["dones"] = np.zeros((12, 2))
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(BadInput) as fault:
        import_demos(tmp_path / "a.npz", tmp_path / "d")
    for part in (
        "3 faults",
        "states: 1 row(s) are not finite, the first is row 3",
        "rewards: expected 12 rows",
        "dones: expected one number",
    ):
        assert part in str(fault.value)


@pytest.mark.parametrize("name", ["a.npz", "a.hdf5", "a.txt", "a", "nothing.npz", "nothing"])
def test_empty_truncated_missing_and_unknown_files_are_one_clear_line(tmp_path: Path, name: str) -> None:
    np.savez(tmp_path / "whole.npz", **transitions([4]))
    for file in ("a.npz", "a.hdf5", "a.txt"):
        (tmp_path / file).write_bytes((tmp_path / "whole.npz").read_bytes()[:500] if file == "a.npz" else b"")
    (tmp_path / "a").mkdir()
    with pytest.raises(BadInput) as fault:
        import_demos(tmp_path / name, tmp_path / "d")
    assert name in str(fault.value)
    assert "\n" not in str(fault.value)
    assert not (tmp_path / "d").exists()


def test_pickled_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", states=np.array([{"a": 1}], dtype=object))
    with pytest.raises(BadInput, match="not a NumPy archive"):
        import_demos(tmp_path / "a.npz", tmp_path / "d")


def robomimic_file(path: Path, *, next_obs: bool = True) -> None:
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "type": 1, "env_kwargs": {}})
        for i in (0, 1, 10, 2):
            group = data.create_group(f"demo_{i}")
            group["obs/robot0_eef_pos"] = rng.normal(size=(6, 3))
            group["obs/object"] = rng.normal(size=(6, 2)) + i
            group["obs/agentview_image"] = np.zeros((6, 4, 4, 3), np.uint8)
            if next_obs:
                group["next_obs/robot0_eef_pos"] = rng.normal(size=(6, 3))
                group["next_obs/object"] = rng.normal(size=(6, 2))
            group["actions"] = rng.uniform(-1, 1, (6, 7))
            group["rewards"] = np.array([0, 0, 0, 0, 0, 1.0])
            group["dones"] = np.array([0, 0, 0, 0, 0, 1])
            group.attrs["num_samples"] = 6
        file["mask/better"] = np.array([b"demo_0", b"demo_1", b"demo_10"])
        file["mask/better_operator_1"] = np.array([b"demo_0"])
        file["mask/worse_train"] = np.array([b"demo_2"])


def test_robomimic_observations_stand_side_by_side_and_masks_name_the_operators(tmp_path: Path) -> None:
    robomimic_file(tmp_path / "low_dim.hdf5")
    dataset, notes = import_demos(tmp_path / "low_dim.hdf5", tmp_path / "d", fps=10)
    assert [row.demonstrator for row in dataset.rows] == ["better_operator_1", "better", "unknown", "better"]  # demo 0, 1, 2, 10
    assert dataset.features[STATE].names == ("object_0", "object_1", "robot0_eef_pos_0", "robot0_eef_pos_1", "robot0_eef_pos_2")
    assert dataset.features[STATE].dtype == "float64"
    assert dataset.returns is not None
    assert dataset.returns.tolist() == [1, 1, 1, 1]
    assert dataset.demonstrations().terminated.sum() == 4
    assert notes == []


def test_robomimic_without_next_obs_gives_up_the_last_action_and_says_so(tmp_path: Path) -> None:
    robomimic_file(tmp_path / "low_dim.hdf5", next_obs=False)
    dataset, notes = import_demos(tmp_path / "low_dim.hdf5", tmp_path / "d")
    assert [row.length for row in dataset.rows] == [5, 5, 5, 5]
    assert "final state" in notes[0]


def test_the_real_minari_reads_our_export_and_we_read_its_own(
    dataset: DemoDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari", reason="minari comes with the dev extra")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    (tmp_path / "minari" / "cail").mkdir(parents=True)
    export_demos(dataset, "minari", tmp_path / "minari" / "cail" / "pointmass-v0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = minari.load_dataset("cail/pointmass-v0")
        assert read.total_episodes == dataset.episodes
        assert read.total_steps == dataset.frames
        for one, ours in zip(read.iterate_episodes(), dataset.iterate(), strict=True):
            np.testing.assert_array_equal(one.observations[:-1], ours.frames[STATE])
            np.testing.assert_array_equal(one.observations[-1], ours.final_state)
            np.testing.assert_array_equal(one.rewards, ours.frames[REWARD])
            assert bool(one.terminations[-1]) == ours.terminated

        from gymnasium.spaces import Box
        from minari.data_collector import EpisodeBuffer

        rng = np.random.default_rng(0)
        buffers = [
            EpisodeBuffer(
                id=i,
                observations=list(rng.normal(size=(6, 3)).astype(np.float32)),
                actions=list(rng.normal(size=(5, 2)).astype(np.float32)),
                rewards=[1.0] * 5,
                terminations=[False] * 4 + [i == 0],
                truncations=[False] * 4 + [i == 1],
                infos={},
            )
            for i in range(2)
        ]
        minari.create_dataset_from_buffers(
            "lab/reach-v1", buffers, observation_space=Box(-9, 9, (3,)), action_space=Box(-9, 9, (2,))
        )
    back, _ = import_demos(Path("lab/reach-v1"), tmp_path / "back")
    assert [row.length for row in back.rows] == [5, 5]
    assert back.demonstrations().terminated.sum() == 1
    np.testing.assert_array_equal(back.episode(1).frames[STATE], np.array(buffers[1].observations)[:-1])
    assert check(back.root) == []


def test_a_lerobot_folder_of_another_tool_is_understood(dataset: DemoDataset, tmp_path: Path) -> None:
    """The same layout without anything of ours: several episodes in a file, no final states, no `cail` in info."""
    root = tmp_path / "foreign"
    tables = [pq.read_table(p) for p in sorted(dataset.root.glob("data/*/*.parquet"))[:3]]
    kept = ["observation.state", "action", "timestamp", "frame_index", "episode_index", "index", "task_index"]
    for folder in ("meta/episodes/chunk-000", "data/chunk-000"):
        (root / folder).mkdir(parents=True)
    pq.write_table(pa.concat_tables(tables).select(kept), root / "data/chunk-000/file-000.parquet")
    lengths = [len(t) for t in tables]
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    pq.write_table(
        pa.table(
            {
                "episode_index": [0, 1, 2],
                "length": lengths,
                "data/chunk_index": [0] * 3,
                "data/file_index": [0] * 3,
                "dataset_from_index": starts,
            }
        ),
        root / "meta/episodes/chunk-000/file-000.parquet",
    )
    info = {k: v for k, v in dataset.info.items() if k != "cail"}
    info["features"] = {k: v for k, v in info["features"].items() if k in kept}
    info["features"]["observation.images.top"] = {"dtype": "video", "shape": [3, 480, 640], "names": None}
    (root / "meta/info.json").write_text(json.dumps(info))
    back, notes = import_demos(root, tmp_path / "back")
    assert [row.length for row in back.rows] == [n - 1 for n in lengths]
    np.testing.assert_array_equal(back.episode(1).frames[STATE], dataset.episode(1).frames[STATE][:-1])
    np.testing.assert_array_equal(back.episode(1).final_state, dataset.episode(1).frames[STATE][-1])
    assert back.returns is None
    assert any("observation.images.top" in note for note in notes)
    with pytest.raises(Exception, match="cail demos import"):
        DemoDataset(root)


def _broken_hdf5(path: Path, **change: object) -> None:
    robomimic_file(path)
    with h5py.File(path, "a") as file:
        demo = file["data/demo_0"]
        for name, value in change.items():
            if name == "env_args":
                file["data"].attrs["env_args"] = value
                continue
            key = name.replace("__", "/")
            del demo[key]
            if value is not None:
                demo[key] = value


@pytest.mark.parametrize(
    "change",
    [
        {"actions": np.zeros((60, 7))},
        {"actions": np.float64(3)},
        {"rewards": np.zeros(2)},
        {"dones": np.zeros(2)},
        {"actions": None},
        {"next_obs__object": np.zeros((2, 2))},
        {"obs__object": np.zeros((3, 2))},
        {"env_args": "{"},
        {"env_args": "[1]"},
        {"actions": np.full((6, 7), np.nan)},
        {"rewards": np.full(6, 1e300)},
    ],
)
def test_malformed_hdf5_is_named_in_clear_words(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "a.hdf5"
    _broken_hdf5(path, **change)
    with pytest.raises(BadInput) as fault:
        import_demos(path, tmp_path / "d")
    assert "a.hdf5" in str(fault.value)
    assert [p.name for p in tmp_path.iterdir()] == ["a.hdf5"]


@pytest.mark.parametrize("metadata", ["[]", "{", '{"cail": 5}', '{"data_format": "arrow"}'])
def test_malformed_minari_metadata_is_named(dataset: DemoDataset, tmp_path: Path, metadata: str) -> None:
    export_demos(dataset, "minari", tmp_path / "set")
    (tmp_path / "set/data/metadata.json").write_text(metadata)
    with pytest.raises(BadInput, match="set"):
        import_demos(tmp_path / "set", tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_archives_that_only_look_like_npz_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    (tmp_path / "x.npy").rename(tmp_path / "array.npz")
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as archive:
        archive.writestr("states", "hello")
    np.savez(tmp_path / "passport.npz", **transitions([4]), cail=np.array("{"))
    for name in ("array.npz", "text.npz", "passport.npz"):
        with pytest.raises(BadInput, match=name):
            import_demos(tmp_path / name, tmp_path / "d")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    "change", [{"features": None}, {"fps": "abc"}, {"data_path": None}, {"total_episodes": None}, {"cail": None}, {"cail": {}}]
)
def test_a_folder_with_a_damaged_info_is_named(dataset: DemoDataset, tmp_path: Path, change: dict[str, object]) -> None:
    (dataset.root / "meta/info.json").write_text(json.dumps({**dataset.info, **change}))
    assert check(dataset.root) != []
    with pytest.raises(CailError, match=next(iter(change))):
        import_demos(dataset.root, tmp_path / "d")
