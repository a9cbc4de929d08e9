"""Confidence: its updates by hand, and what it learns of the demonstrators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cail_bench.methods import demonstrate, spearman
from cail_core.algorithms.eq7.cail import learn_confidence_offline
from cail_core.algorithms.eq7.confidence import Confidence, capped, sharpened
from cail_core.algorithms.method import method_config
from cail_core.algorithms.settings import ConfidenceConfig
from cail_core.demos.demonstrations import Demonstrations
from cail_core.tasks.pointmass import PointMass
from cail_core.training.run import demonstrator_means

PAPER = ConfidenceConfig(update="additive", alpha=0.1, share=0.0, scale="none")


def demos() -> Demonstrations:
    states = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    return Demonstrations(states, states, states, np.zeros(5, bool), np.array([0, 2, 5]), np.array([1, 2]), ["a", "b"])


def test_confidence_starts_at_one_for_every_pair() -> None:
    assert Confidence(demos(), ConfidenceConfig()).all().tolist() == pytest.approx([1.0] * 5, abs=1e-5)


def test_additive_update_is_eq_5_cut_at_zero() -> None:
    beta = Confidence(demos(), replace(PAPER, alpha=0.5))
    beta.update(torch.tensor([0, 3]), torch.tensor([-1.0, 4.0]))
    assert beta.of(torch.arange(5)).tolist() == [1.5, 1.0, 1.0, 0.0, 1.0]


def test_multiplicative_update_keeps_every_confidence_above_zero() -> None:
    beta = Confidence(demos(), replace(PAPER, update="multiplicative", alpha=0.5))
    beta.update(torch.tensor([0, 3]), torch.tensor([-2.0, 4.0]))
    assert beta.of(torch.tensor([0, 3])).tolist() == pytest.approx([np.e, np.exp(-2)], rel=1e-6)
    for _ in range(1000):
        beta.update(torch.tensor([0, 3]), torch.tensor([-2.0, 4.0]))
    assert torch.isfinite(beta.all()).all()
    assert float(beta.all().min()) > 0


def test_a_shared_gradient_moves_a_whole_trajectory() -> None:
    beta = Confidence(demos(), replace(PAPER, alpha=1.0, share=1.0))
    beta.update(torch.tensor([2, 3]), torch.tensor([-1.0, 0.0]))  # mean −0.5 over episode 1; its pair 4 is not in the batch
    assert beta.of(torch.arange(5)).tolist() == [1.0, 1.0, 1.5, 1.5, 1.5]
    half = Confidence(demos(), replace(PAPER, alpha=1.0, share=0.5))
    half.update(torch.tensor([2, 3]), torch.tensor([-1.0, 0.0]))
    assert half.of(torch.arange(5)).tolist() == [1.0, 1.0, 1.75, 1.25, 1.0]


def test_peak_scale_does_not_amplify_what_is_left_when_the_gradient_vanishes() -> None:
    beta = Confidence(demos(), replace(PAPER, alpha=0.1, scale="peak"))
    rows = torch.arange(5)
    beta.update(rows, torch.full((5,), -7.0))
    assert beta.of(rows).tolist() == pytest.approx([1.1] * 5)  # α times a gradient of size 1, whatever its unit
    beta.update(rows, torch.full((5,), -7e-6))
    assert beta.of(rows).tolist() == pytest.approx([1.1] * 5, abs=1e-6)


def test_sharpened_weights_count_as_the_trusted_share() -> None:
    beta = torch.linspace(0.5, 1.5, 1000)
    weights = sharpened(beta, 0.1)
    assert float(weights.mean()) == pytest.approx(1.0, abs=1e-4)
    assert float(weights.sum() ** 2 / weights.pow(2).sum()) == pytest.approx(100, rel=0.01)
    assert (weights.diff() > 0).all()
    assert sharpened(torch.ones(10), 0.1).tolist() == pytest.approx([1.0] * 10)  # no differences, nothing to sharpen
    narrow = torch.tensor([1.0, 1e-6, 1e-6, 1e-6])
    assert sharpened(narrow, 0.9).tolist() == pytest.approx((narrow / narrow.mean()).tolist(), abs=1e-4)  # never blunted


def test_capped_by_hand() -> None:
    """0.7 cut to t, with t = 0.4 (t + 0.3): t = 0.2, and all doubled. Below a fifth of five nobody can be: all alike."""
    weights = torch.tensor([0.05, 0.7, 0.1, 0.1, 0.05], dtype=torch.float64)
    assert capped(weights, 0.4).tolist() == pytest.approx([0.1, 0.4, 0.2, 0.2, 0.1])
    assert capped(weights, 0.1).tolist() == pytest.approx([0.2] * 5)
    assert capped(weights, 0.8) is weights


def test_one_that_stands_out_does_not_outweigh_the_others() -> None:
    """Of 200 one has 2.7, twenty have about 1.6, the others about 1: as in a mix where one is ranked second of ten."""
    beta = torch.cat([torch.tensor([2.7]), torch.linspace(1.5, 1.7, 20), torch.linspace(0.8, 1.2, 179)])
    free, limited = sharpened(beta, 0.1), sharpened(beta, 0.1, heaviest=2.0)
    assert float(free[0] / free.sum()) > 0.2
    assert float(limited[0] / limited.sum()) == pytest.approx(2.0 / 20, abs=1e-6)
    assert float(limited.sum() ** 2 / limited.square().sum()) == pytest.approx(20.0, abs=0.1)


@pytest.mark.parametrize("seed", range(20, 25))
def test_confidence_from_ten_ranks_is_monotone_in_the_demonstrators_quality(seed: int) -> None:
    torch.set_num_threads(1)
    config = method_config("cail-bc")
    config = replace(config, offline_confidence=replace(config.offline_confidence, steps=150, batch_size=500))
    data, returns = demonstrate(PointMass(), "paper", seed)
    learned = learn_confidence_offline(data, config, torch.Generator().manual_seed(seed), horizon=50)
    confidence = learned.confidence
    means = demonstrator_means(data, confidence.all())
    assert spearman([means[name] for name in ("expert", "good", "fair", "poor", "hopeless")], [4, 3, 2, 1, 0]) >= 0.9
    assert spearman(confidence.per_episode(), returns) >= 0.8
    assert means["expert"] > 1.5 > 0.7 > means["hopeless"]  # sizes, not only an order that noise could have
