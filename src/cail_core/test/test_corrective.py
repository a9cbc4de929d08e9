"""Corrective labels: the learned B(s) against the dynamics it was learned from, the label by hand, and what it is good for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cail_core.algorithms.batch import Batch
from cail_core.algorithms.method import method_config
from cail_core.algorithms.trainers.base import make_learner
from cail_core.algorithms.trainers.corrective import Corrections, displaced
from cail_core.demos.demonstrations import Demonstrations
from cail_core.tasks.base import TaskSpec

DT = 0.1


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pairs(n: int, rng: np.random.Generator) -> Batch:
    """x' = x + 0.1 a₁, y' = y + 0.05 a₂ where x > 0, else y + 0.1 a₂."""
    s, a = rng.uniform(-1, 1, (n, 2)), rng.uniform(-1, 1, (n, 2))
    after = s + np.c_[DT * a[:, 0], np.where(s[:, 0] > 0, 0.05, DT) * a[:, 1]]
    columns = (s, a, after, np.zeros(n), np.zeros(n))
    return Batch(*(torch.as_tensor(column, dtype=torch.float32) for column in columns))


@pytest.fixture(scope="module")
def learned() -> tuple[Corrections, Batch]:
    data = pairs(3000, np.random.default_rng(0))
    return Corrections(data, generator()), data


def test_what_an_action_does_is_learned_where_it_depends_on_the_state(learned: tuple[Corrections, Batch]) -> None:
    corrections, data = learned
    moves = corrections.at(data)
    for side, y_gain in ((data.state[:, 0] > 0.2, 0.05), (data.state[:, 0] < -0.2, DT)):
        found = moves[side].mean(0)
        assert found.numpy() == pytest.approx(np.array([[DT, 0.0], [0.0, y_gain]]), abs=0.008)


def test_half_the_pairs_are_displaced_and_led_back(learned: tuple[Corrections, Batch]) -> None:
    corrections, data = learned
    rows = torch.arange(1000)
    moves = corrections.at(data.rows(rows))
    made = displaced(data.rows(rows), moves, 2.0, 8.0, generator(1))
    moved = (made.state != data.state[rows]).any(1)
    assert 400 < int(moved.sum()) < 600
    assert torch.equal(made.action[~moved], data.action[rows][~moved])
    inside = moved & (made.action.abs() < 1).all(1)
    eta = -8.0 * (made.action - data.action[rows])[inside]  # what was undone
    assert (eta * data.action[rows][inside]).sum(1).abs().max() < 1e-5, "ahead or behind is not off the way"
    shift = torch.einsum("nsa,na->ns", moves[inside], eta)
    assert made.state[inside].numpy() == pytest.approx((data.state[rows][inside] + shift).numpy(), abs=1e-5)
    assert made.action.abs().max() <= 1.0


def demonstrations() -> Demonstrations:
    """Along the line y = 0 to the right, always exactly on it; and noise, which nobody should clone, off the line."""
    rng, states, actions, after, starts = np.random.default_rng(1), [], [], [], [0]
    for good in [True] * 10 + [False] * 10:
        s = np.array([-1.0, 0.0 if good else rng.uniform(-1, 1)])
        for _ in range(20):
            a = np.array([1.0, 0.0]) if good else rng.uniform(-1, 1, 2)
            states.append(s)
            actions.append(a)
            s = s + DT * a
            after.append(s)
        starts.append(len(states))
    columns = (np.array(column, dtype=np.float32) for column in (states, actions, after))
    rank = np.array([1] * 5 + [0] * 5 + [2] * 5 + [0] * 5)
    return Demonstrations(*columns, np.zeros(400, bool), np.array(starts), rank)


class Plane:
    """Only what a method without an environment asks for."""

    spec = TaskSpec("plane", "", "none", 20, 20, ("x", "y"), ("dx", "dy"))


@pytest.mark.parametrize("corrective", [0.0, 1.0])
def test_a_clone_pushed_off_the_line_comes_back_only_with_corrective_labels(corrective: float) -> None:
    config = method_config("cail-bc", changes={
        "trusted_fraction": 0.4, "cloning.corrective_noise_steps": corrective, "cloning.corrective_horizon": 4.0,
        "cloning.batch_size": 200, "offline_confidence.steps": 100, "offline_confidence.batch_size": 200})
    learner = make_learner("cail-bc", Plane(), demonstrations(), config, 0)  # type: ignore[arg-type]
    for _ in range(20):
        learner.iterate()
    with torch.no_grad():
        action = learner.actor.mode(torch.tensor([[0.0, 0.15], [0.0, -0.15], [0.0, 0.0]]))
    back = action[:, 1].tolist()
    assert action[:, 0].min() > 0.6
    assert abs(back[2]) < 0.1
    if corrective:
        assert back[0] < -0.15  # −η / 4 with η = 1.5 steps would be −0.375
        assert back[1] > 0.15
    else:
        assert abs(back[0] - back[1]) < 0.3
