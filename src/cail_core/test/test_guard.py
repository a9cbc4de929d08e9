"""The guard on points whose distances are worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from cail_core.errors import BadInput
from cail_core.guard import FLOOR, SLOW_FACTOR, STOP_FACTOR, Guard
from cail_core.policy import load_policy, save_policy
from cail_core.rl.networks import TanhGaussianActor
from cail_core.tasks.pointmass import PointMass

SPEC = PointMass().spec


def floats(*numbers: object) -> np.ndarray:
    return np.array(numbers, dtype=np.float32)


def hand_made() -> Guard:
    """References at (0, 0) and (1, 0); the second entry has half the spread of the first."""
    return Guard(floats((0, 0), (1, 0)), floats(1, 0.5), floats(0, 0), slow_at=1.0, stop_at=2.0)


def test_the_distance_is_to_the_nearest_reference_in_spreads() -> None:
    guard = hand_made()
    assert guard.distance(floats(0, 0)) == 0.0
    assert guard.distance(floats(0, 1)) == pytest.approx(math.sqrt((0 + 2**2) / 2))
    assert guard.distance(floats(3, 0.5)) == pytest.approx(math.sqrt((2**2 + 1) / 2))
    np.testing.assert_allclose(guard.distances(floats((0, 1), (3, 0.5))), [math.sqrt(2), math.sqrt(2.5)], rtol=1e-6)


def test_it_slows_between_the_thresholds_and_stops_beyond() -> None:
    guard = hand_made()
    assert [guard.speed(d) for d in (0.0, 1.0, 1.5, 2.0, 50.0, math.nan, math.inf)] == [1.0, 1.0, 0.625, 0.0, 0.0, 0.0, 0.0]


def test_thresholds_are_the_distances_between_episodes() -> None:
    """Two episodes side by side: every state is 1 away from the other episode, along an entry whose spread is 0.5."""
    x = np.arange(10)
    states = np.concatenate([np.stack([x, np.zeros(10)], 1), np.stack([x, np.ones(10)], 1)]).astype(np.float32)
    guard = Guard.fit(states, np.ones(20), np.repeat([0, 1], 10))
    apart = math.sqrt((0 + (1 / 0.5) ** 2) / 2)
    assert guard.slow_at == pytest.approx(SLOW_FACTOR * apart, rel=1e-5)
    assert guard.stop_at == pytest.approx(STOP_FACTOR * apart, rel=1e-5)
    np.testing.assert_allclose(guard.start, [0.0, 0.5], atol=1e-6)
    assert guard.distances(states).max() == pytest.approx(0.0, abs=1e-3)


def test_states_without_confidence_are_no_reference() -> None:
    states = np.concatenate([np.random.default_rng(0).normal(size=(200, 2)), np.full((50, 2), 40.0)]).astype(np.float32)
    episode = np.repeat(np.arange(25), 10)
    trusted = np.concatenate([np.ones(200), np.zeros(50)])
    assert Guard.fit(states, trusted, episode).speed(Guard.fit(states, trusted, episode).distance(states[-1])) == 0.0
    everything = Guard.fit(states, np.ones(250), episode)
    assert everything.speed(everything.distance(states[-1])) == 1.0


def test_an_entry_that_never_varied_does_not_decide_alone() -> None:
    states = np.stack([np.linspace(-1, 1, 100), np.zeros(100)], 1).astype(np.float32)
    guard = Guard.fit(states, np.ones(100), np.arange(100) % 4)
    assert guard.scale[1] == pytest.approx(FLOOR * math.sqrt((guard.scale[0] ** 2 + 0) / 2), rel=1e-5)


def saved(folder: Path, guard: Guard | None) -> Path:
    actor = TanhGaussianActor(SPEC.observation_dim, SPEC.action_dim, torch.Generator().manual_seed(0))
    save_policy(folder, actor, SPEC, "bc", {}, guard=guard, robot="pointmass")
    return folder


def test_a_policy_keeps_its_guard_and_says_so_on_its_card(tmp_path: Path) -> None:
    states = np.random.default_rng(1).normal(size=(60, SPEC.observation_dim)).astype(np.float32)
    guard = Guard.fit(states, np.ones(60), np.repeat(np.arange(6), 10))
    loaded = load_policy(saved(tmp_path / "p", guard))
    assert loaded.guard is not None
    np.testing.assert_array_equal(loaded.guard.distances(states + 1), guard.distances(states + 1))
    assert loaded.card.guard == {"slow_at": guard.slow_at, "stop_at": guard.stop_at}
    assert loaded.card.robot == "pointmass"
    assert f"stops it beyond {guard.stop_at:.3g}" in " ".join((tmp_path / "p" / "README.md").read_text().split())
    assert load_policy(saved(tmp_path / "p", None)).guard is None, "an older policy is replaced, its guard goes too"
    assert not (tmp_path / "p" / "guard.safetensors").exists()


@pytest.mark.parametrize("damage", ["missing", "shape", "threshold", "no file"])
def test_a_damaged_guard_is_refused(tmp_path: Path, damage: str) -> None:
    states = np.random.default_rng(1).normal(size=(60, SPEC.observation_dim)).astype(np.float32)
    folder = saved(tmp_path / "p", Guard.fit(states, np.ones(60), np.repeat(np.arange(6), 10)))
    file, arrays = folder / "guard.safetensors", load_file(folder / "guard.safetensors")
    if damage == "missing":
        save_file({"states": arrays["states"]}, file)
    elif damage == "shape":
        save_file({**arrays, "states": arrays["states"][:, :-1].copy()}, file)
    elif damage == "threshold":
        card = json.loads((folder / "policy.json").read_text())
        (folder / "policy.json").write_text(json.dumps({**card, "guard": {"slow_at": 2.0, "stop_at": 1.0}}))
    else:
        file.unlink()
    with pytest.raises(BadInput, match=r"guard\.safetensors"):
        load_policy(folder)
