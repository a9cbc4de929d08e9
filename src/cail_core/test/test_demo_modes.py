"""Ways: which demonstrations go the same way, by hand, and that the heaviest way alone is cloned."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cail_core.algorithms.trainers.demo_modes import components, distances, dominant_mode, passed_over
from cail_core.demos.demonstrations import Demonstrations

STEPS = 40


def around(heights: list[float]) -> Demonstrations:
    """From (0, 0) to (1, 0) over an arc of each height."""
    x = np.linspace(0, 1, STEPS)
    states = np.concatenate([np.c_[x, height * np.sin(np.pi * x)] for height in heights]).astype(np.float32)
    n = len(heights)
    return Demonstrations(states, states, states, np.zeros(len(states), bool), STEPS * np.arange(n + 1), np.zeros(n, np.int64))


def by_episode(weight: torch.Tensor) -> list[float]:
    return weight.reshape(-1, STEPS).mean(1).tolist()


def test_groups_are_what_is_linked_through_others_too() -> None:
    linked = torch.eye(5, dtype=torch.bool)
    for i, j in ((0, 2), (2, 4), (1, 3)):
        linked[i, j] = linked[j, i] = True
    assert components(linked).tolist() == [0, 1, 0, 1, 0]


def test_paths_are_as_far_apart_as_most_of_their_points() -> None:
    """Two states whose deviations are equal: the distance is that of the points over √2 and the deviation."""
    apart = distances(around([0.0, 0.1, 3.0]), np.array([0, 1, 2]))
    assert apart.diagonal().tolist() == pytest.approx([0.0] * 3, abs=1e-3)
    assert torch.equal(apart, apart.T)
    assert float(apart[0, 1]) < 0.1 < 1.0 < float(apart[0, 2])


def test_the_way_of_most_weight_is_cloned() -> None:
    """Four pass above, three below; above is trusted more, and counts alone, in the same proportions."""
    demos = around([1.0, 1.1, 0.9, 1.05, -1.0, -1.1, -0.95])
    weight = torch.tensor([2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]).repeat_interleave(STEPS)
    assert by_episode(dominant_mode(weight, demos, 2.0)) == pytest.approx([2.8, 1.4, 1.4, 1.4, 0, 0, 0])
    below = torch.tensor([1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0]).repeat_interleave(STEPS)
    assert by_episode(dominant_mode(below, demos, 2.0)) == pytest.approx([0, 0, 0, 0, 7 / 3, 7 / 3, 7 / 3])


def test_who_is_passed_over_is_named_and_who_is_not_trusted_is_not() -> None:
    demos = around([1.0, 1.1, 0.9, 1.05, -1.0, -1.1, -0.95, 0.0])
    confidence = torch.tensor([2.0, 1.0, 1.0, 1.0, 1.5, 1.0, 1.0, 0.01]).repeat_interleave(STEPS)
    assert passed_over(demos, confidence, dominant_mode(confidence, demos, 2.0)) == [4, 5, 6]
    assert passed_over(demos, confidence, confidence) == []


def test_detours_of_every_size_are_one_way() -> None:
    weight = torch.ones(8 * STEPS)
    assert by_episode(dominant_mode(weight, around([0.3 + 0.1 * k for k in range(8)]), 2.0)) == pytest.approx([1.0] * 8)


def test_what_hardly_counts_is_of_no_way_and_does_not_link_others() -> None:
    """The one that goes between the two sides has 1% of the weight."""
    demos = around([0.4, 0.5, 0.6, 0.0, -0.5, -0.6])
    weight = torch.tensor([1.0, 1.0, 1.0, 0.05, 0.9, 0.9]).repeat_interleave(STEPS)
    found = by_episode(dominant_mode(weight, demos, 2.0))
    assert [value > 0 for value in found] == [True, True, True, False, False, False]


def test_two_demonstrations_are_left_as_they_are() -> None:
    weight = torch.ones(2 * STEPS)
    assert dominant_mode(weight, around([1.0, -1.0]), 2.0) is weight
