"""Practice: the standard by hand, only what comes up to it is cloned, and it improves on cloning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cail_core.algorithms.learners import make_learner
from cail_core.algorithms.method import MethodConfig, method_config
from cail_core.algorithms.practice import (
    Noisy,
    PracticeLearner,
    accepted_from,
    better,
    deviations,
    drawn_gains,
    learned_returns,
    only,
)
from cail_core.benchmarks.methods import demonstrate
from cail_core.demos.demonstrations import Demonstrations
from cail_core.errors import BadInput
from cail_core.evaluation import evaluate
from cail_core.policy import Mode, network_of
from cail_core.rl.networks import TanhGaussianActor
from cail_core.tasks.pointmass import PointMass

torch.set_num_threads(1)


def test_the_standard_is_a_quantile_of_the_trusted_weight() -> None:
    """Episodes of 2, 1 and 3 pairs weigh 2, 1 and 1 of 4 and have returns 5, 7 and 6."""
    weight = torch.tensor([1.0, 1.0, 1.0, 1 / 3, 1 / 3, 1 / 3])
    returns, starts = torch.tensor([5.0, 7.0, 6.0]), torch.tensor([0, 2, 3, 6])
    assert accepted_from(returns, starts, weight, 0.0) == 5.0
    assert accepted_from(returns, starts, weight, 0.6) == 6.0
    assert accepted_from(returns, starts, weight, 0.9) == 7.0


def test_only_keeps_whole_episodes() -> None:
    states = np.arange(6, dtype=np.float32)[:, None]
    demos = Demonstrations(states, states, states, np.zeros(6, bool), np.array([0, 2, 3, 6]), np.zeros(3, np.int64))
    kept = only(demos, np.array([0, 2]))
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


def config(**changes: object) -> MethodConfig:
    made = method_config("cail-hybrid")
    practice = replace(made.practice, num_envs=10, steps_per_env=100, cloning_steps=200)
    return replace(made, trusted=0.1, clone=300, practice=practice, before=replace(made.before, steps=150, batch=500),
                   cloning=replace(made.cloning, batch=300), **changes)  # type: ignore[arg-type]


def test_what_is_cloned_comes_up_to_the_trusted_demonstrations(demos: Demonstrations) -> None:
    learner = make_learner(PointMass(), demos, config(), 0)
    assert isinstance(learner, PracticeLearner)
    learner.begin_segment(0)
    metrics = learner.iterate()
    assert learner.done == 1000
    assert 0.0 < metrics["accepted_episodes"] <= 1.0
    pairs = learner._own[0][0]
    assert len(pairs.state) == round(metrics["accepted_episodes"] * 20) * 50  # episodes of 50 steps, 2 in each of 10 environments
    own = Demonstrations(pairs.state.numpy(), pairs.action.numpy(), pairs.next_state.numpy(), np.zeros(len(pairs.state), bool),
                         np.arange(0, len(pairs.state) + 1, 50), np.zeros(len(pairs.state) // 50, np.int64))
    assert float(learned_returns(learner._judge, own, learner.config, 50).min()) >= learner._standard
    learner.close()


def test_noise_is_spread_from_none_to_twice_as_much() -> None:
    torch.testing.assert_close(deviations(0.1, 5, True), torch.tensor([0.0, 0.05, 0.1, 0.15, 0.2]))
    torch.testing.assert_close(deviations(0.1, 3, False), torch.tensor([0.1, 0.1, 0.1]))


@pytest.mark.parametrize("num_envs", [1, 4, 5])
def test_gains_come_in_pairs_that_cancel(num_envs: int) -> None:
    gains = drawn_gains(0.3, num_envs, 2, torch.Generator().manual_seed(0))
    assert gains.shape == (num_envs, 2)
    pairs = num_envs // 2
    half = (num_envs + 1) // 2
    torch.testing.assert_close(gains[:pairs] * gains[half : half + pairs], torch.ones(pairs, 2))
    assert drawn_gains(0.0, num_envs, 2, torch.Generator()).eq(1).all()


def test_the_better_group_without_its_last_quarter() -> None:
    """Five around 1, four around 0: ⌈¾ · 5⌉ = 4 of the five are taken. One lost far out does not make a group of its own."""
    returns = torch.tensor([0.9, 0.0, 1.1, 0.1, 1.0, -0.1, 1.2, 0.05, 0.8])
    assert better(returns).tolist() == [True, False, True, False, True, False, True, False, False]
    many = returns.repeat(3)
    assert better(many).sum() == 12
    assert better(torch.cat([many, torch.tensor([-50.0])])).tolist() == [*better(many).tolist(), False]
    assert better(torch.tensor([3.0])).tolist() == [True]
    assert better(torch.tensor([2.0, 2.0])).sum() == 1


def test_of_a_round_the_better_group_is_cloned(demos: Demonstrations) -> None:
    made = config()
    learner = make_learner(PointMass(), demos, replace(made, practice=replace(made.practice, accept="better")), 0)
    assert isinstance(learner, PracticeLearner)
    learner._standard = 1e9  # not asked for
    learner.begin_segment(0)
    share = learner.iterate()["accepted_episodes"]
    learner.close()
    assert 1 / 20 <= share <= 15 / 20, "20 episodes end in a round"


def test_the_longer_it_practises_the_more_rounds_it_keeps(demos: Demonstrations) -> None:
    made = config()
    practice = replace(made.practice, accept="better", rounds_kept=2, share_kept=0.5, cloning_steps=1)
    learner = make_learner(PointMass(), demos, replace(made, clone=1, practice=practice), 0)
    assert isinstance(learner, PracticeLearner)
    learner.begin_segment(0)
    kept = []
    for _ in range(6):
        learner.iterate()
        kept.append(len(learner._own))
    learner.close()
    assert kept == [1, 2, 2, 2, 3, 3]


def test_a_task_that_can_be_stricter_is_practised_so(demos: Demonstrations) -> None:
    class Narrow(PointMass):
        made = 0

        def stricter(self) -> PointMass:
            Narrow.made += 1
            return PointMass()

    learner = make_learner(Narrow(), demos, config(), 0)
    learner.close()
    assert Narrow.made == 1


def test_practice_improves_a_clone(demos: Demonstrations) -> None:
    learner = make_learner(PointMass(), demos, config(), 0)
    assert isinstance(learner, PracticeLearner)
    learner.begin_segment(0)
    learner._clone(300)
    before = evaluate(PointMass(), Mode(network_of(learner.actor)), 50, 1).mean
    for _ in range(8):
        learner.done = max(learner.done, 1)  # cloned already
        learner.iterate()
    after = evaluate(PointMass(), Mode(network_of(learner.actor)), 50, 1).mean
    learner.close()
    assert after > before


def test_practice_without_a_judge_is_refused(demos: Demonstrations) -> None:
    with pytest.raises(BadInput, match="expected confidence: before, given none"):
        make_learner(PointMass(), demos, config(confidence="none"), 0)
