"""Foresight: V by regression, one step ahead by hand, and a policy that keeps away from where episodes ended badly."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cail_core.algorithms import corrective
from cail_core.algorithms.batch import Batch
from cail_core.algorithms.bc import BehaviourCloning
from cail_core.algorithms.foresight import Foresight
from cail_core.algorithms.learners import make_learner
from cail_core.algorithms.method import method_config
from cail_core.algorithms.practice import PracticeLearner
from cail_core.benchmarks.methods import demonstrate
from cail_core.errors import BadInput
from cail_core.rl.networks import TanhGaussianActor
from cail_core.tasks.pointmass import PointMass

torch.set_num_threads(1)


def line(generator: torch.Generator) -> tuple[Foresight, Batch]:
    """States on a line, an action of 1 moves by 0.1, nothing was done; beyond 0 it ends badly."""
    state = torch.rand((2000, 1), generator=generator) * 2 - 1
    pairs = Batch(state, torch.zeros(2000, 1), state.clone(), torch.zeros(2000), torch.zeros(2000))
    value = torch.where(state[:, 0] > 0, -3.0, 1.0)
    return Foresight(pairs, torch.full((2000, 1, 1), 0.1), value, generator), pairs


def test_the_value_is_that_of_the_episodes_through_a_state() -> None:
    foresight, _ = line(torch.Generator().manual_seed(0))
    good, bad = foresight.value(torch.tensor([[-0.8], [0.8]])).tolist()
    assert abs(good - 1.0) < 0.5
    assert abs(bad + 3.0) < 0.5


def test_one_step_ahead_is_where_the_policys_action_leads() -> None:
    generator = torch.Generator().manual_seed(0)
    foresight, pairs = line(generator)
    actor = TanhGaussianActor(1, 1, generator)
    inner = BehaviourCloning(actor, 0.3)
    torch.testing.assert_close(inner.mode(inner.theta(), pairs.state), actor.mode(pairs.state))
    push = {name: torch.zeros_like(value) for name, value in inner.theta().items()}
    last = max(name for name in push if name.endswith("bias"))
    ahead = []
    for action in (-0.9, 0.9):
        push[last] = torch.atanh(torch.tensor([action]))
        state = torch.Generator().manual_seed(1)
        ahead.append(float(foresight.ahead(inner, push, 500, state)))
        rows = torch.randint(2000, (500,), generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(ahead[-1], float(foresight.value(pairs.state[rows] + 0.1 * action).mean()))
    assert ahead[0] > ahead[1] + 0.1


def test_practice_with_foresight_goes_on_as_if_it_had_not_been_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corrective, "STEPS", 50)
    demos = demonstrate(PointMass(), "paper", 0)[0]
    made = method_config("cail-hybrid")
    config = replace(made, clone=50, before=replace(made.before, steps=20, batch=200),
                     cloning=replace(made.cloning, batch=100, corrective=1.0),
                     practice=replace(made.practice, num_envs=10, steps_per_env=100, cloning_steps=20, foresight=0.5))
    whole, cut = (make_learner(PointMass(), demos, config, 0, resumed=k == 1) for k in range(2))
    assert isinstance(whole, PracticeLearner)
    whole.begin_segment(0)
    whole.iterate()
    cut.restore(whole.state())
    for learner in (whole, cut):
        learner.begin_segment(1)
    assert whole.iterate() == cut.iterate()
    for a, b in zip(whole.actor.parameters(), cut.actor.parameters(), strict=True):
        assert torch.equal(a, b)
    whole.close()
    cut.close()


def test_foresight_without_corrective_labels_is_refused() -> None:
    made = method_config("cail-hybrid")
    config = replace(made, practice=replace(made.practice, foresight=0.5))
    with pytest.raises(BadInput, match=r"expected cloning\.corrective above 0"):
        make_learner(PointMass(), demonstrate(PointMass(), "paper", 0)[0], config, 0)
