"""The methods that CAIL is compared with: each solves what it was made for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from line import GOAL, MIXED, STEPS, Line, aim_return, demonstrations, learned_return, small

from cail_core.algorithms.baselines.trex import TrexLearner
from cail_core.algorithms.batch import Batch
from cail_core.algorithms.trainers.base import make_learner


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    torch.set_num_threads(1)
    return iter([None])


def test_2iwil_follows_the_labelled_good_where_airl_follows_both() -> None:
    demos = demonstrations(**MIXED, ranked=2)
    assert learned_return("2iwil", demos, small("2iwil"), 12_000) > -8.0
    assert learned_return("airl", demos, small("airl"), 12_000) < -10.0  # halfway: −10


def test_ic_gail_follows_the_good_part_of_a_mixture() -> None:
    config = small("ic-gail")
    config = replace(config, ic_gail=replace(config.ic_gail, threshold=0.0))
    assert learned_return("ic-gail", demonstrations(**MIXED, ranked=1), config, 15_000) > -7.0


def test_trex_finds_the_place_between_the_best_two_of_a_ranking() -> None:
    """Nobody aims at 0.5; the nearest stand left and right of it."""
    demos = demonstrations((0.2, 0.8, -0.2, -0.6), (0.2,) * 4, episodes=10, ranked=3)
    learner = make_learner("t-rex", Line(), demos, small("t-rex"), 0)
    assert isinstance(learner, TrexLearner)
    learner.begin_segment(0)
    while learner.done < 12_000:
        learner.iterate()
    x = torch.linspace(-1, 1, 201)[:, None]
    reward = learner.inner.reward(learner.inner_learner.theta, Batch(x, x, x, x, x))
    assert 0.2 < float(x[reward.argmax()]) < 0.8


def test_drex_is_steadier_than_shaky_demonstrators() -> None:
    demos = demonstrations((0.5,), (1.0,), episodes=20)
    shaky = -float(np.abs(demos.next_states - GOAL).reshape(-1, STEPS).sum(1).mean())
    assert learned_return("d-rex", demos, small("d-rex"), 14_000) > shaky > aim_return(0.0)


def test_ssrr_learns_from_shaky_demonstrators() -> None:
    config = small("ssrr")
    config = replace(config, noise=replace(config.noise, airl_steps=10_000))
    assert learned_return("ssrr", demonstrations((0.5,), (1.0,), episodes=20), config, 25_000) > -5.0


def test_curation_clones_the_steady_where_cloning_averages() -> None:
    demos = demonstrations((0.5, -0.5), (0.02, 1.0), episodes=20)
    assert learned_return("rinse", demos, small("rinse"), 300) > -3.0
    assert learned_return("bc", demos, small("bc"), 300) < -8.0


def test_dwbc_clones_the_good_where_cloning_averages() -> None:
    demos = demonstrations(**MIXED, ranked=2)
    assert learned_return("dwbc", demos, small("dwbc"), 300) > -8.0
    assert learned_return("bc", demos, small("bc"), 300) < -9.0
