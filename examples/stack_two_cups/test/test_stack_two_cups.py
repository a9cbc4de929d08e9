from __future__ import annotations

import numpy as np
from stack_two_cups.table import Table, sample_of
from stack_two_cups.task import StackTwoCups
from stack_two_cups.view import CupsView

from cail_core.config import installed_config
from cail_core.demos.collect import mix_of
from cail_core.recording.episode_builder import ActingView, recordable


def test_it_is_installed_with_its_settings() -> None:
    task = recordable("stack-two-cups")
    assert isinstance(task, StackTwoCups)
    assert isinstance(task.over_topics(20), ActingView)
    assert installed_config("stack-two-cups") is not None


def test_a_careful_person_stacks_the_cups() -> None:
    task = StackTwoCups()
    env, (careful, _) = task.make_env(1), mix_of(task, "careful")[0]
    for seed in range(5):
        policy, observation = careful.start(np.random.default_rng(seed)), env.reset(seed)[0]
        for _ in range(task.spec.max_steps):
            step = env.step(policy(observation)[None])
            observation = step.observation[0]
            if step.terminated[0] or step.truncated[0]:
                break
        assert step.success[0]


def test_a_cup_that_is_let_go_beside_the_other_is_dropped() -> None:
    config = StackTwoCups().config
    table, view = Table(config, 0), CupsView(config, 20)
    x, y = table.things()["cup_1"][:2]

    def seen(z: float, opening: float) -> str | None:
        table.move((x, y, z), opening)
        return view.advance(sample_of(0, (x, y, z), (0.0,) * 6, opening, None, table), (0.0,) * 6)[1]

    view.begin(sample_of(0, (x, y, 0.3), (0.0,) * 6, 1.0, None, table))
    assert [seen(0.05, 1.0), seen(0.05, 0.0), seen(0.2, 0.0)] == [None] * 3
    assert seen(0.2, 1.0) == "dropped"
