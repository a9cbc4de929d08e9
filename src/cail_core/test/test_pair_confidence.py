"""Confidence of single pairs: parts by hand, and what each of them is there for, on demonstrations made for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cail_bench.pair_measures import auc_within
from cail_core.algorithms.eq7.pair_confidence import agreement_with, averaged, joined, refined, votes
from cail_core.algorithms.method import method_config
from cail_core.algorithms.settings import MethodConfig, PairConfig
from cail_core.algorithms.trainers.base import make_learner
from cail_core.demos.demonstrations import Demonstrations
from cail_core.errors import BadInput
from cail_core.tasks import get_task
from cail_core.training import train
from cail_core.training.run import Run

QUICK = PairConfig(rounds=1, steps=250, batch_size=128, hidden=32, window=1)


def demonstrations(episodes: list[tuple[np.ndarray, np.ndarray]], rank: list[int] | None = None) -> Demonstrations:
    """States and actions of each; the states have one more, where it ended."""
    return Demonstrations(
        states=np.concatenate([s[:-1] for s, _ in episodes]).astype(np.float32),
        actions=np.concatenate([a for _, a in episodes]).astype(np.float32),
        next_states=np.concatenate([s[1:] for s, _ in episodes]).astype(np.float32),
        terminated=np.zeros(sum(len(a) for _, a in episodes), bool),
        starts=np.cumsum([0, *(len(a) for _, a in episodes)]),
        rank=np.array(rank or [0] * len(episodes)),
        demonstrator=["somebody"] * len(episodes),
    )


def along_a_line(rng: np.random.Generator, steps: int, wrong: slice = slice(0, 0),
                 way: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Somebody who goes from 0 to 1 and does the opposite for a while; `way` is what all do on the second axis."""
    states = np.linspace(0.0, 1.0, steps + 1)[:, None] + rng.normal(0.0, 0.01, (steps + 1, 1))
    action = np.tile([0.5, 0.5 * way], (steps, 1)) + rng.normal(0.0, 0.05, (steps, 2))
    action[wrong] *= -1.0
    return states, action


def lapsing(way_of: list[float], seed: int = 0) -> tuple[Demonstrations, np.ndarray]:
    rng = np.random.default_rng(seed)
    made, bad = [], []
    for k, way in enumerate(way_of):
        wrong = slice(5 + k % 10, 10 + k % 10)
        made.append(along_a_line(rng, 30, wrong, way))
        bad.append(np.isin(np.arange(30), np.arange(30)[wrong]))
    return demonstrations(made), np.concatenate(bad)


def test_the_confidence_of_pairs_by_hand() -> None:
    beta = torch.tensor([1.0, 1.0, np.e**2, np.e**2])
    spread = float(torch.tensor([0.0, 0.0, 2.0, 2.0]).std())
    found = joined(beta, torch.tensor([0.0, -9.0, 5.0, -1.0]), PairConfig(strength=0.5))
    expected = torch.exp(torch.tensor([0.0, -1.5 * spread, 2.0 + 0.5 * spread, 2.0 - 0.5 * spread]))
    torch.testing.assert_close(found, expected / expected.mean())


def test_without_agreement_the_ranks_alone_speak() -> None:
    beta = torch.tensor([0.5, 1.5])
    torch.testing.assert_close(joined(beta, torch.zeros(2), PairConfig()), beta)
    torch.testing.assert_close(joined(beta, torch.tensor([-2.0, 1.0]), PairConfig(strength=0.0)), beta)


def test_the_mean_over_steps_stays_within_a_demonstration() -> None:
    demos = demonstrations([(np.zeros((4, 1)), np.zeros((3, 1))), (np.zeros((3, 1)), np.zeros((2, 1)))])
    found = averaged(torch.tensor([0.0, 3.0, 6.0, 10.0, 20.0]), demos, 3)
    torch.testing.assert_close(found, torch.tensor([1.5, 3.0, 4.5, 15.0, 15.0]))
    torch.testing.assert_close(averaged(torch.tensor([0.0, 3.0, 6.0, 10.0, 20.0]), demos, 1),
                               torch.tensor([0.0, 3.0, 6.0, 10.0, 20.0]))


def test_who_stands_still_has_a_small_voice() -> None:
    states = np.array([[0.0], [1.0], [2.0], [2.0], [2.0], [3.0], [4.0], [10.0]])
    found = votes(demonstrations([(states, np.zeros((7, 1)))]), 0.1)
    torch.testing.assert_close(found, torch.tensor([1.0, 1.0, 0.1, 0.1, 1.0, 1.0, 2.0]))
    torch.testing.assert_close(votes(demonstrations([(states, np.zeros((7, 1)))]), 1.0), torch.ones(7))


def test_a_lapse_disagrees_with_what_others_do_there() -> None:
    demos, bad = lapsing([1.0] * 20)
    z = refined(torch.ones(len(bad)), demos, QUICK, torch.Generator().manual_seed(0))
    assert auc_within(z.numpy(), bad, demos.starts) > 0.95


def test_two_ways_are_both_right_for_a_mixture_and_not_for_a_mean() -> None:
    demos, bad = lapsing([1.8, -1.8] * 12)
    bad[6 * 30 :] = False  # few lapse, and do what lies between the ways
    rng = np.random.default_rng(1)
    demos.actions[:, 0], demos.actions[:, 1] = 0.5, np.repeat([0.9, -0.9] * 12, 30)
    demos.actions[bad, 1] = 0.0
    demos.actions[:] += rng.normal(0.0, 0.05, demos.actions.shape)
    found = {ways: agreement_with(torch.ones(len(bad)), demos, replace(QUICK, components=ways, steps=500),
                                  torch.Generator().manual_seed(0)).numpy() for ways in (1, 4)}
    assert auc_within(found[4], bad, demos.starts) > 0.9
    assert auc_within(found[1], bad, demos.starts) < 0.5


def test_a_model_never_judges_what_it_has_seen() -> None:
    """A single one who does something else everywhere: had the model seen that, it would agree with it in a while."""
    rng = np.random.default_rng(0)
    made = [along_a_line(rng, 30) for _ in range(9)] + [along_a_line(rng, 30, slice(0, 30))]
    demos = demonstrations(made)
    asked = torch.ones(300)
    asked[270:] = 50.0  # and who is trusted most
    agreement = agreement_with(asked, demos, QUICK, torch.Generator().manual_seed(0)).numpy()
    assert agreement[270:].mean() < np.quantile(agreement[:270], 0.05)


def test_ten_who_wait_do_not_outvote_those_who_pass_through() -> None:
    rng = np.random.default_rng(2)
    made, bad = [], []
    for _ in range(12):  # all set out from about 0; half of them wait there for forty frames first
        states, action = along_a_line(rng, 30)
        waits = 40 if len(made) % 2 else 0
        made.append((np.concatenate([np.repeat(states[:1], waits, 0), states]), np.concatenate([np.zeros((waits, 2)), action])))
        bad.append(np.arange(waits + 30) < waits)
    demos, flags = demonstrations(made), np.concatenate(bad)
    found = {vote: agreement_with(torch.ones(len(flags)), demos, replace(QUICK, min_vote=vote, steps=500),
                                  torch.Generator().manual_seed(0)).numpy() for vote in (0.01, 1.0)}
    assert auc_within(found[0.01], flags, demos.starts) > auc_within(found[1.0], flags, demos.starts) + 0.2


def settings(rounds: int) -> MethodConfig:
    config = method_config("cail-bc", "pointmass")
    return replace(config, offline_confidence=replace(config.offline_confidence, steps=20),
                   cloning=replace(config.cloning, batch_size=50), checkpoint_every=1,
                   pairs=PairConfig(rounds=rounds, steps=20, batch_size=50))


def ranked_line() -> Demonstrations:
    rng = np.random.default_rng(0)
    made = []
    for _ in range(10):
        states = rng.normal(0.0, 1.0, (21, 4))
        made.append((states, np.tanh(states[:-1, :2])))
    return demonstrations(made, rank=[1, 2, 3, *[0] * 7])


def test_the_learner_weighs_pairs_by_their_own_confidence_or_all_of_a_demonstration_alike() -> None:
    demos = ranked_line()
    for rounds in (0, 1):
        learner = make_learner("cail-bc", get_task("pointmass"), demos, settings(rounds), 0)
        for values in (learner.confidence(), learner.weight()):
            within = np.array([np.ptp(part) for part in np.split(values.numpy(), demos.starts[1:-1])])
            assert (within > 0).all() if rounds else (within == 0).all()
        assert float(learner.confidence().mean()) == pytest.approx(1.0, abs=1e-5)


def test_a_resumed_run_is_the_same_as_a_whole_one(tmp_path: Path) -> None:
    demos, task = ranked_line(), get_task("pointmass")
    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls == 1

    train(task, demos, "cail-bc", settings(1), seed=0, out=tmp_path / "whole", steps=150)
    train(task, demos, "cail-bc", settings(1), seed=0, out=tmp_path / "cut", steps=150, stop=stop)
    train(task, demos, "cail-bc", settings(1), seed=0, out=tmp_path / "cut", steps=150)
    for name in ("metrics.csv", "confidence.parquet", "policy/policy.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_run_from_before_there_were_these_settings_goes_on_while_they_are_off(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demos, task, about = ranked_line(), get_task("pointmass"), Run.about

    def without(run: Run) -> dict[str, Any]:
        made = about(run)
        del made["settings"]["pairs"]
        return made

    with monkeypatch.context() as patched:
        patched.setattr(Run, "about", without)
        train(task, demos, "cail-bc", settings(0), seed=0, out=tmp_path / "old", steps=50)
    with pytest.raises(BadInput, match=r"settings\.pairs\.rounds: it has None, asked for 1"):
        train(task, demos, "cail-bc", settings(1), seed=0, out=tmp_path / "old", steps=100)
    train(task, demos, "cail-bc", replace(settings(0), pairs=PairConfig()), seed=0, out=tmp_path / "old", steps=100)
    assert (tmp_path / "old" / "metrics.csv").read_text().splitlines()[-1].startswith("2,100,")
