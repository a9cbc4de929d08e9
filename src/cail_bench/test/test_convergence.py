"""Theorems 1 and 2 on the point mass's demonstrations, with the paper's own networks and losses."""

from __future__ import annotations

import pytest
import torch

from cail_bench.methods import demonstrate_by
from cail_bench.theory_check import C2, descend
from cail_core.demos.collect import mix_of
from cail_core.demos.demonstrations import Demonstrations
from cail_core.tasks.base import get_task

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def demos() -> Demonstrations:
    task = get_task("pointmass")
    return demonstrate_by(task, mix_of(task, "paper"), 100, 0)[0]


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("loss", ["rk", "logistic"])
def test_theorem_1_no_step_raises_the_outer_loss(demos: Demonstrations, loss: str) -> None:
    found = descend(demos, loss, 60, generator())
    assert len(found.outer) == 61
    assert found.rising == 0.0
    assert found.outer[-1] < found.outer[0] / 2


def test_theorem_1_without_the_gate_and_with_long_steps_it_rises(
    demos: Demonstrations, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cail_bench.theory_check.C2", 100.0 * C2)
    assert descend(demos, "logistic", 30, generator(), gate=None).rising > 0.0


@pytest.mark.parametrize("steps", [10, 40, 90])
def test_theorem_2_the_least_gradient_is_within_its_bound(demos: Demonstrations, steps: int) -> None:
    found = descend(demos, "logistic", steps, generator())
    fallen = found.outer[0] - found.outer[-1]
    assert 0 < min(found.gradient) <= found.bound == pytest.approx(fallen / (100.0 * (steps**0.5 - 1.0)))


def test_the_gradient_carries_the_steps_own_size(demos: Demonstrations) -> None:
    """∇_β goes through θ − μ ∇L_in, so its square has the factor μ², whatever else converges."""
    short, long = (descend(demos, "logistic", steps, generator()) for steps in (50, 100))
    assert short.mu / long.mu == pytest.approx(2.0)
    assert short.gradient[0] / long.gradient[0] == pytest.approx(4.0, rel=0.2)
