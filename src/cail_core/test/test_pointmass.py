"""The point-mass task: physics by hand, time limits that are no ends, the same episodes for the same seed."""

from __future__ import annotations

import numpy as np

from cail_core.tasks import get_task
from cail_core.tasks.pointmass import PointMass


def test_one_step_by_hand() -> None:
    env = PointMass().make_env(1)
    start = env.reset(seed=0)[0]
    step = env.step(np.array([[1.0, -0.5]], dtype=np.float32))
    velocity = np.array([0.2, -0.1])  # 2 m/s² for 0.1 s
    np.testing.assert_allclose(step.next_observation[0, 2:], velocity, rtol=1e-6)
    np.testing.assert_allclose(step.next_observation[0, :2], start[:2] - 0.1 * velocity, rtol=1e-5)
    expected = -np.linalg.norm(start[:2] - 0.1 * velocity) - 0.05 * (1 + 0.25)
    np.testing.assert_allclose(step.reward[0], expected, rtol=1e-5)


def test_the_time_limit_truncates_and_the_next_episode_starts_by_itself() -> None:
    env = PointMass().make_env(3)
    env.reset(seed=1)
    for _ in range(49):
        assert not env.step(np.zeros((3, 2), np.float32)).truncated.any()
    last = env.step(np.zeros((3, 2), np.float32))
    assert last.truncated.all()
    assert not last.terminated.any()
    assert not np.array_equal(last.observation, last.next_observation)
    np.testing.assert_array_equal(last.observation[:, 2:], 0)


def test_a_seed_fixes_everything() -> None:
    runs = []
    for _ in range(2):
        env = PointMass().make_env(2)
        env.reset(seed=5)
        runs.append(np.concatenate([env.step(np.full((2, 2), 0.3, np.float32)).observation for _ in range(120)]))
    assert runs[0].tobytes() == runs[1].tobytes()


def test_demonstrators_differ_by_skill_only_and_no_skill_is_no_help() -> None:
    task = get_task("pointmass")
    assert {name: round(sum(share for _, share in mix), 9) for name, mix in task.mixes().items()} == {
        "paper": 1.0,
        "only-suboptimal": 1.0,
        "expert": 1.0,
        "lapses": 1.0,
        "two-ways": 1.0,
    }
