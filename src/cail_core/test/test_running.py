from __future__ import annotations

import torch

from cail_bench.demonstrators.running import DiscountedReturn, Running


def test_mean_and_deviation_do_not_depend_on_how_it_came_in():
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 5 + 1000
    parts = Running(3)
    for part in torch.split(x, 7):
        parts.add(part)
    torch.testing.assert_close(parts.mean, x.mean(0).float())
    torch.testing.assert_close(parts.deviation, x.std(0, correction=0).float())


def test_nothing_seen_and_what_never_changes_can_be_divided_by():
    running = Running(2)
    assert running.deviation.tolist() == [1.0, 1.0]
    running.add(torch.tensor([[3.0, 1.0], [3.0, -1.0]]))
    assert running.mean.tolist() == [3.0, 0.0]
    assert running.deviation[0] > 0
    assert running.deviation[1] == 1.0


def test_discounted_returns_worked_out_by_hand():
    """γ = ½; rewards 1, 1, 1 with an end after the second: R = 1, 1.5, 1. Their mean is 7/6, their deviation √2/6."""
    income = DiscountedReturn(1, 0.5)
    scale = income.scale(torch.tensor([[1.0], [1.0], [1.0]]), torch.tensor([[False], [True], [False]]))
    torch.testing.assert_close(scale, torch.tensor([2**0.5 / 6]))
    income.restart()
    again = income.scale(torch.tensor([[1.0]]), torch.tensor([[False]]))  # R = 1, 1.5, 1, 1
    torch.testing.assert_close(again, torch.tensor([(3 / 64) ** 0.5]))
