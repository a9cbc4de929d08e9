"""Which frames are bad: kept beside a dataset, whole after a cut, and of no effect on anything that is learned."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from cail_core.algorithms.method import method_config
from cail_core.demos import truth
from cail_core.demos.collect import collect, mix_of, roll_out
from cail_core.demos.dataset import DemoDataset
from cail_core.errors import BadInput, DatasetError
from cail_core.ranking.ranks import rank_by_return
from cail_core.tasks import get_task
from cail_core.tasks.pointmass_lapses import KINDS, LASTS, lapsing
from cail_core.training import train

EPISODES = 20


def collected(out: Path, *, kept: bool = True, episodes: int = EPISODES, mix: str = "lapses") -> DemoDataset:
    task = get_task("pointmass")
    return collect(task, mix_of(task, mix), episodes, 3, out, truth=kept)


def lengths(dataset: DemoDataset) -> list[int]:
    return [row.length for row in dataset.rows]


def test_stretches_and_back(tmp_path: Path) -> None:
    bad = np.array([True, True, False, False, True, False, True])
    assert truth.stretches(bad) == [[0, 2], [4, 5], [6, 7]]
    assert truth.stretches(np.zeros(3, bool)) == []
    writer = truth.TruthWriter(tmp_path / "d", 0)
    writer.add(bad)
    writer.add(~bad)
    np.testing.assert_array_equal(truth.read(tmp_path / "d", [7, 7]), np.concatenate([bad, ~bad]))


def test_the_truth_lies_beside_the_dataset_and_is_what_the_people_did(tmp_path: Path) -> None:
    dataset = collected(tmp_path / "d")
    bad = truth.read(tmp_path / "d", lengths(dataset))
    by_episode = bad.reshape(EPISODES, 50).sum(axis=1)
    for row, count in zip(dataset.rows, by_episode, strict=True):
        low, high = {"expert": (0, 0), "fair": (50, 50), "poor": (50, 50), "hopeless": (50, 50), **LASTS}[row.demonstrator]
        assert low <= count <= high, row.demonstrator
    assert not list((tmp_path / "d").rglob("*truth*"))


def test_without_asking_nothing_is_kept(tmp_path: Path) -> None:
    collected(tmp_path / "d", kept=False)
    assert not truth.path_of(tmp_path / "d").exists()


def test_a_cut_off_collection_goes_on_with_its_truth(tmp_path: Path) -> None:
    whole = collected(tmp_path / "whole")
    count = 0

    def cut(saved: int) -> None:
        nonlocal count
        count = saved
        if saved == 7:
            raise KeyboardInterrupt

    task = get_task("pointmass")
    with pytest.raises(KeyboardInterrupt):
        collect(task, mix_of(task, "lapses"), EPISODES, 3, tmp_path / "cut", truth=True, progress=cut)
    assert count == 7
    collected(tmp_path / "cut")
    assert truth.path_of(tmp_path / "cut").read_bytes() == truth.path_of(tmp_path / "whole").read_bytes()
    assert lengths(whole) == [50] * EPISODES


def test_a_collection_without_truth_cannot_go_on_with_it(tmp_path: Path) -> None:
    collected(tmp_path / "d", kept=False)
    with pytest.raises(BadInput, match="without keeping which frames are bad"):
        collected(tmp_path / "d")


def test_a_changed_dataset_no_longer_fits_its_truth(tmp_path: Path) -> None:
    dataset = collected(tmp_path / "d")
    with pytest.raises(DatasetError, match="was changed since"):
        truth.read(tmp_path / "d", lengths(dataset)[1:])
    truth.path_of(tmp_path / "d").write_text("{")
    with pytest.raises(DatasetError, match="expected which frames are bad"):
        truth.read(tmp_path / "d", lengths(dataset))


def test_training_is_the_same_byte_for_byte_without_the_truth(tmp_path: Path) -> None:
    dataset = collected(tmp_path / "d")
    returns = dataset.returns
    assert returns is not None
    rank = np.zeros(EPISODES, dtype=np.int64)
    for episode, place in rank_by_return(returns, 0.25, 0).items():
        rank[episode] = place
    config = method_config("cail-bc", "pointmass")
    config = dataclasses.replace(config, offline_confidence=dataclasses.replace(config.offline_confidence, steps=20))
    made = []
    for name in ("with", "without"):
        if name == "without":
            truth.path_of(tmp_path / "d").unlink()
        demos = dataclasses.replace(DemoDataset(tmp_path / "d").demonstrations(), rank=rank)
        run = train(get_task("pointmass"), demos, "cail-bc", config, seed=0, out=tmp_path / name, steps=100)
        files = ("metrics.csv", "confidence.parquet", "policy/policy.safetensors")
        made.append({file: (run / file).read_bytes() for file in files})
    assert made[0] == made[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("either_way", [False, True])
def test_who_lapses_is_bad_for_a_while_and_arrives_all_the_same(kind: str, either_way: bool) -> None:
    env = get_task("pointmass").make_env(1)
    made = [roll_out(env, lapsing(kind, either_way=either_way), (5, k), success=True) for k in range(20)]
    assert np.mean([episode.outcome == "success" for episode in made]) >= 0.9
    for episode in made:
        assert episode.bad is not None
        assert len(truth.stretches(episode.bad)) == 1
        assert LASTS[kind][0] <= episode.bad.sum() <= LASTS[kind][1]


def test_two_ways_are_equally_good_and_differ() -> None:
    env = get_task("pointmass").make_env(1)
    made = [roll_out(env, lapsing("", either_way=True), (6, k), success=True) for k in range(60)]
    ways = [(e.frames["observation.state"][0, :2], e.frames["action"][:5].mean(0)) for e in made]
    side = np.array([np.sign(error[0] * action[1] - error[1] * action[0]) for error, action in ways])
    returns = np.array([e.undiscounted_return for e in made])
    assert 10 <= (side > 0).sum() <= 50
    assert abs(returns[side > 0].mean() - returns[side < 0].mean()) < returns.std()
