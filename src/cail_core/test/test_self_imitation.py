"""Self-imitation: the threshold by hand, only what reaches it is cloned, and it improves on cloning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cail_bench.methods import demonstrate
from cail_core.algorithms.method import method_config
from cail_core.algorithms.methods.cail_hybrid import CailHybridConfig
from cail_core.algorithms.trainers.base import make_learner
from cail_core.algorithms.trainers.self_imitation import (
    TRIES,
    Noisy,
    SelfImitationLearner,
    drawn_gains,
    learned_returns,
    median_length,
    missed,
    noise_stds,
    start_weights,
    top_group,
    weighted_quantile,
)
from cail_core.demos.demonstrations import Demonstrations
from cail_core.errors import BadInput
from cail_core.evaluation import evaluate
from cail_core.policy import Mode, network_of
from cail_core.rl.networks import TanhGaussianActor
from cail_core.tasks.pointmass import PointMass
from cail_core.training import train
from cail_core.training.checkpoint import read_checkpoint

torch.set_num_threads(1)


def test_the_standard_is_a_quantile_of_the_trusted_weight() -> None:
    """Episodes of 2, 1 and 3 pairs weigh 2, 1 and 1 of 4 and have returns 5, 7 and 6."""
    weight = torch.tensor([1.0, 1.0, 1.0, 1 / 3, 1 / 3, 1 / 3])
    returns, starts = torch.tensor([5.0, 7.0, 6.0]), torch.tensor([0, 2, 3, 6])
    assert weighted_quantile(returns, starts, weight, 0.0) == 5.0
    assert weighted_quantile(returns, starts, weight, 0.6) == 6.0
    assert weighted_quantile(returns, starts, weight, 0.9) == 7.0


def test_the_median_length_is_the_median_by_trusted_weight() -> None:
    """Episodes of 2, 1 and 3 pairs with 1, 1 and 4 of 6; then with all of it on the first."""
    states = np.zeros((6, 1), np.float32)
    demos = Demonstrations(states, states, states, np.zeros(6, bool), np.array([0, 2, 3, 6]), np.zeros(3, np.int64))
    assert median_length(demos, torch.tensor([0.5, 0.5, 1.0, 1.0, 1.0, 2.0])) == 3
    assert median_length(demos, torch.tensor([0.5, 0.5, 0.0, 0.0, 0.0, 0.0])) == 2


@pytest.mark.parametrize(("usual", "accepted"), [(50, 1.0), (68, 0.0), (33, 0.0)], ids=["as usual", "too short", "too long"])
def test_what_is_not_about_as_long_as_the_trusted_is_not_cloned(demos: Demonstrations, usual: int, accepted: float) -> None:
    """All episodes of the point mass have 50 steps."""
    learner = make_learner("cail-hybrid", PointMass(), demos, config(), 0)
    assert isinstance(learner, SelfImitationLearner)
    assert learner._median_length == 50
    learner._threshold, learner._median_length = -1e9, usual
    learner.begin_segment(0)
    assert learner.iterate()["accepted_episodes"] == accepted
    learner.close()


def test_only_keeps_whole_episodes() -> None:
    states = np.arange(6, dtype=np.float32)[:, None]
    demos = Demonstrations(states, states, states, np.zeros(6, bool), np.array([0, 2, 3, 6]), np.zeros(3, np.int64))
    kept = demos.select(np.array([0, 2]))
    assert kept.states[:, 0].tolist() == [0, 1, 3, 4, 5]
    assert kept.starts.tolist() == [0, 2, 5]


def test_the_noise_and_gains_of_practice_are_what_was_drawn() -> None:
    actor = TanhGaussianActor(4, 2, torch.Generator().manual_seed(0))
    drawn = 0.1 * torch.randn((3, 5, 2), generator=torch.Generator().manual_seed(1))
    gains = torch.linspace(0.5, 1.5, 10).reshape(5, 2)
    noisy, seen = Noisy(actor, drawn, gains), torch.ones(5, 4)
    for t in range(3):
        action, log_prob = noisy.act(seen)
        torch.testing.assert_close(torch.atanh(action), gains * actor.gaussian(seen)[0].detach() + drawn[t], atol=1e-5, rtol=0)
        torch.testing.assert_close(log_prob, actor.log_prob(seen, action).detach())


@pytest.fixture(scope="module")
def demos() -> Demonstrations:
    return demonstrate(PointMass(), "paper", 0)[0]


def config(**changes: object) -> CailHybridConfig:
    """With less work; `changes` are of the section self_imitation."""
    inside = {"num_envs": 10, "steps_per_env": 100, "cloning_steps": 200, "accept": "demo_quantile", **changes}
    made: CailHybridConfig = method_config("cail-hybrid", changes={
        "trusted_fraction": 0.1, "bc_warmup_steps": 300, "offline_confidence.steps": 150, "offline_confidence.batch_size": 500,
        "cloning.batch_size": 300, **{f"self_imitation.{key}": value for key, value in inside.items()}})
    return made


def test_what_is_cloned_comes_up_to_the_trusted_demonstrations(demos: Demonstrations) -> None:
    learner = make_learner("cail-hybrid", PointMass(), demos, config(), 0)
    assert isinstance(learner, SelfImitationLearner)
    learner.begin_segment(0)
    metrics = learner.iterate()
    assert learner.done == 1000
    assert 0.0 < metrics["accepted_episodes"] <= 1.0
    pairs = learner._self_buffer[0][0]
    assert len(pairs.state) == round(metrics["accepted_episodes"] * 20) * 50  # episodes of 50 steps, 2 in each of 10 environments
    own = Demonstrations(pairs.state.numpy(), pairs.action.numpy(), pairs.next_state.numpy(), np.zeros(len(pairs.state), bool),
                         np.arange(0, len(pairs.state) + 1, 50), np.zeros(len(pairs.state) // 50, np.int64))
    assert float(learned_returns(learner._reward_model, own, learner.config.outer, 50).min()) >= learner._threshold
    learner.close()


def test_noise_is_spread_from_none_to_twice_as_much() -> None:
    torch.testing.assert_close(noise_stds(0.1, 5, True), torch.tensor([0.0, 0.05, 0.1, 0.15, 0.2]))
    torch.testing.assert_close(noise_stds(0.1, 3, False), torch.tensor([0.1, 0.1, 0.1]))


def test_starts_count_alike_however_many_attempts_at_them_were_accepted() -> None:
    """Three episodes of 2, 1 and 3 pairs; the first and the last began alike."""
    states = np.zeros((6, 1), np.float32)
    demos = Demonstrations(states, states, states, np.zeros(6, bool), np.array([0, 2, 3, 6]), np.zeros(3, np.int64))
    assert start_weights(demos, np.array([4, 7, 4])).tolist() == [0.5, 0.5, 1.0, 0.5, 0.5, 0.5]


def test_a_start_where_nothing_was_good_is_tried_again_and_at_last_given_up() -> None:
    """Two attempts each: 1 is missed, 2 is not, of 3 only one attempt has ended."""
    starts, none = np.array([1, 1, 2, 2, 3]), np.zeros(5, bool)
    known = missed({}, starts, np.array([False, False, False, True, False]), 2)
    assert known == {1: 1}
    known = missed({4: 1, **known}, np.array([1, 1]), np.array([False, False]), 2)
    assert list(known.items()) == [(4, 1), (1, 2)], "the latest comes last"
    assert missed(known, np.array([1, 1]), np.array([False, True]), 2) == {4: 1}
    for _ in range(TRIES - 1):  # it has been missed twice already
        known = missed(known, starts, none, 2)
    assert 1 not in known


def test_a_run_with_attempts_goes_on_as_if_it_had_not_been_stopped(demos: Demonstrations, tmp_path: Path) -> None:
    made = config(attempts=5, cloning_steps=5, accept_quantile=0.7)
    small = replace(made, bc_warmup_steps=20, checkpoint_every=1, evaluation_episodes=2,
                    offline_confidence=replace(made.offline_confidence, steps=10))  # fmt: skip

    def go_on(name: str, stop: bool) -> None:
        train(Repeated(), demos, "cail-hybrid", small, seed=0, out=tmp_path / name, steps=4000, stop=lambda: stop)

    go_on("whole", False)
    for _ in range(4):
        go_on("parts", True)
    assert read_checkpoint(tmp_path / "whole/checkpoint.safetensors")["learner"]["missed"]
    for name in ("metrics.csv", "policy/policy.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes(), name


class Repeated(PointMass):
    """A point mass whose environments note which episodes they were told to begin."""

    def __init__(self) -> None:
        super().__init__()
        self.agendas: list[list[list[int]]] = []

    def make_env(self, num_envs: int) -> Any:
        env, agendas = super().make_env(num_envs), self.agendas

        def begin(agenda: list[list[int]]) -> Any:
            agendas.append(agenda)
            return env.reset(agenda[0][1])  # a start that was missed, if there is one

        env.begin = begin  # type: ignore[attr-defined]
        return env


def test_every_second_start_is_one_that_was_missed(demos: Demonstrations) -> None:
    task = Repeated()
    learner = make_learner("cail-hybrid", task, demos, replace(config(attempts=5, cloning_steps=1), bc_warmup_steps=1), 0)
    assert isinstance(learner, SelfImitationLearner)
    learner.begin_segment(0)
    learner._threshold = 1e9  # nothing is accepted
    learner.iterate()
    first, later = task.agendas[0][0], task.agendas[0][5]
    assert all(agenda == first for agenda in task.agendas[0][:5])
    assert all(agenda == later for agenda in task.agendas[0][5:])
    assert first != later
    assert learner._missed == dict.fromkeys([first[0], first[1], later[0], later[1]], 1), "two episodes of 50 steps each"
    again = learner.state()["missed"]
    learner.iterate()
    learner.close()
    assert [task.agendas[1][0][1], task.agendas[1][5][1], task.agendas[1][0][3], task.agendas[1][5][3]] == list(again)


def test_attempts_where_no_episode_can_begin_twice_are_refused(demos: Demonstrations) -> None:
    with pytest.raises(BadInput, match="attempts: 1, given 2: the task 'pointmass' cannot begin an episode twice"):
        make_learner("cail-hybrid", PointMass(), demos, config(attempts=2), 0)


@pytest.mark.parametrize("num_envs", [1, 4, 5])
def test_gains_come_in_pairs_that_cancel(num_envs: int) -> None:
    gains = drawn_gains(0.3, num_envs, 2, torch.Generator().manual_seed(0))
    assert gains.shape == (num_envs, 2)
    pairs = 2 * (num_envs // 2)
    torch.testing.assert_close(gains[:pairs:2] * gains[1:pairs:2], torch.ones(pairs // 2, 2))
    assert drawn_gains(0.0, num_envs, 2, torch.Generator()).eq(1).all()


def test_the_better_group_without_its_last_quarter() -> None:
    """Five around 1, four around 0: ⌈¾ · 5⌉ = 4 of the five are taken. One lost far out does not make a group of its own."""
    returns = torch.tensor([0.9, 0.0, 1.1, 0.1, 1.0, -0.1, 1.2, 0.05, 0.8])
    assert top_group(returns, 0.75).tolist() == [True, False, True, False, True, False, True, False, False]
    assert top_group(returns, 1.0).tolist() == [True, False, True, False, True, False, True, False, True]
    many = returns.repeat(3)
    assert top_group(many, 0.75).sum() == 12
    assert top_group(torch.cat([many, torch.tensor([-50.0])]), 0.75).tolist() == [*top_group(many, 0.75).tolist(), False]
    assert top_group(torch.tensor([3.0]), 0.75).tolist() == [True]
    assert top_group(torch.tensor([2.0, 2.0]), 0.75).sum() == 1


def test_of_a_round_the_better_group_is_cloned(demos: Demonstrations) -> None:
    learner = make_learner("cail-hybrid", PointMass(), demos, config(accept="top_group"), 0)
    assert isinstance(learner, SelfImitationLearner)
    learner._threshold = 1e9  # not asked for
    learner.begin_segment(0)
    share = learner.iterate()["accepted_episodes"]
    learner.close()
    assert 1 / 20 <= share <= 15 / 20, "20 episodes end in a round"


def test_the_longer_it_practises_the_more_rounds_it_keeps(demos: Demonstrations) -> None:
    made = config(accept="top_group", replay_rounds=2, replay_fraction=0.5, cloning_steps=1)
    learner = make_learner("cail-hybrid", PointMass(), demos, replace(made, bc_warmup_steps=1), 0)
    assert isinstance(learner, SelfImitationLearner)
    learner.begin_segment(0)
    kept = []
    for _ in range(6):
        learner.iterate()
        kept.append(len(learner._self_buffer))
    learner.close()
    assert kept == [1, 2, 2, 2, 3, 3]


def test_a_task_that_can_be_stricter_is_practised_so(demos: Demonstrations) -> None:
    class Narrow(PointMass):
        made = 0

        def stricter(self) -> PointMass:
            Narrow.made += 1
            return PointMass()

    learner = make_learner("cail-hybrid", Narrow(), demos, config(), 0)
    learner.close()
    assert Narrow.made == 1


def test_self_imitation_improves_a_clone(demos: Demonstrations) -> None:
    learner = make_learner("cail-hybrid", PointMass(), demos, config(), 0)
    assert isinstance(learner, SelfImitationLearner)
    learner.begin_segment(0)
    learner._clone(300)
    before = evaluate(PointMass(), Mode(network_of(learner.actor)), 50, 1).mean
    for _ in range(8):
        learner.done = max(learner.done, 1)  # cloned already
        learner.iterate()
    after = evaluate(PointMass(), Mode(network_of(learner.actor)), 50, 1).mean
    learner.close()
    assert after > before
