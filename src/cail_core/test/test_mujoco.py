from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from cail_core.errors import ConfigError, how_to_add
from cail_core.evaluation import evaluate
from cail_core.policy import load_policy
from cail_core.tasks.base import Task
from cail_core.tasks.mujoco import SHIPPED, Ant, MujocoEnv, Reacher

pytest.importorskip("mujoco", reason="the MuJoCo tasks need the extra mujoco")


def gymnasium_env(name: str, rng: np.random.Generator):
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("imageio", reason="Gymnasium's MuJoCo environments need it")
    env = gymnasium.make(name).unwrapped
    env.reset(seed=0)
    env.np_random = rng  # the very generator of our environment, so that both start alike
    return env


def children(seed: int, n: int) -> list[np.random.Generator]:
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(n)]


@pytest.mark.filterwarnings("ignore:.*out of date.*:DeprecationWarning")
@pytest.mark.parametrize(("task", "name", "steps"), [(Reacher(), "Reacher-v4", 120), (Ant(), "Ant-v4", 150)])
def test_episodes_equal_those_of_gymnasium(task, name: str, steps: int):
    n = 3
    env = task.make_env(n)
    references = [gymnasium_env(name, rng) for rng in children(7, n)]
    observation = env.reset(7)
    np.testing.assert_array_equal(observation, np.float32([g.reset()[0] for g in references]))
    rng = np.random.default_rng(1)
    ends = 0
    for _ in range(steps):
        action = rng.uniform(-1, 1, (n, task.spec.action_dim)).astype(np.float32)
        step = env.step(action)
        for i, reference in enumerate(references):
            reached, reward, terminated, _, _ = reference.step(action[i])
            np.testing.assert_array_equal(step.next_observation[i], np.float32(reached))
            np.testing.assert_allclose(step.reward[i], reward, rtol=1e-5, atol=1e-5)
            assert step.terminated[i] == terminated
            if step.terminated[i] or step.truncated[i]:
                ends += 1
                np.testing.assert_array_equal(step.observation[i], np.float32(reference.reset()[0]))
            else:
                np.testing.assert_array_equal(step.observation[i], step.next_observation[i])
    assert ends >= 2
    env.close()


def test_first_state_of_every_episode_is_a_reset_state():
    env = Reacher().make_env(2)
    observation = env.reset(3)
    for t in range(1, 151):
        step = env.step(np.ones((2, 2), dtype=np.float32))
        assert step.truncated.all() == (t % 50 == 0)
        if step.truncated.all():
            # Reset: joints within ±0.1 rad of 0, nearly at rest. After 50 steps of full torque the arm spins.
            assert (np.abs(step.observation[:, 2:4]) < 0.1).all()
            assert (np.abs(step.observation[:, 6:8]) < 0.01).all()
            assert (np.abs(step.next_observation[:, 6:8]).max(axis=1) > 1).all()
            assert not np.array_equal(step.observation[:, 4:6], observation[:, 4:6])
            observation = step.observation


def play(env: MujocoEnv, seed: int, steps: int = 60) -> list[np.ndarray]:
    seen = [env.reset(seed)]
    rng = np.random.default_rng(0)
    for _ in range(steps):
        step = env.step(rng.uniform(-1, 1, (env.num_envs, 8)).astype(np.float32))
        seen += [step.observation, step.reward]
    return seen


def test_a_seed_fixes_the_episodes_whatever_came_before_and_however_many_threads():
    task = Ant()
    one, two = (MujocoEnv(4, task.physics, max_steps=25, threads=threads) for threads in (1, 2))
    first = play(one, seed=5)
    other = play(one, seed=6)
    again = play(one, seed=5)
    threaded = play(two, seed=5)
    assert all(np.array_equal(a, b) and np.array_equal(a, c) for a, b, c in zip(first, again, threaded, strict=True))
    assert not np.array_equal(first[0], other[0])
    two.close()


def test_doing_nothing_on_reacher_scores_minus_twelve():
    env = Reacher().make_env(200)
    env.reset(0)
    total = sum(env.step(np.zeros((200, 2), dtype=np.float32)).reward for _ in range(50))
    np.testing.assert_allclose(total.mean(), -11.7, atol=1.0)


def test_actions_beyond_the_limit_count_as_the_limit():
    env = Reacher().make_env(1)
    env.reset(0)
    beyond = env.step(np.array([[5.0, -9.0]], dtype=np.float32))
    env.reset(0)
    at = env.step(np.array([[1.0, -1.0]], dtype=np.float32))
    np.testing.assert_array_equal(beyond.next_observation, at.next_observation)
    np.testing.assert_array_equal(beyond.reward, at.reward)


def test_specs_name_every_number():
    for task, observations, actions in ((Reacher(), 11, 2), (Ant(), 27, 8)):
        assert isinstance(task, Task)
        assert (task.spec.observation_dim, task.spec.action_dim) == (observations, actions)
        assert task.make_env(1).reset(0).shape == (1, observations)


def test_mix_whose_shares_do_not_sum_to_one_is_refused(tmp_path):
    file = tmp_path / "reacher.yaml"
    file.write_text("mixes: {half: {optimal: 0.5}}")
    with pytest.raises(ConfigError, match=r"mixes\.half: shares sum to 0\.5, expected 1"):
        Reacher(file)


def test_shipped_demonstrators_are_as_good_as_their_cards_say():
    task = Reacher()
    mix = task.mixes()["paper"]
    assert sum(share for _, share in mix) == pytest.approx(1.0)
    for source, _ in mix:
        policy = load_policy(SHIPPED / "reacher" / source.name)
        result = evaluate(task, policy, episodes=50, seed=3)
        card = policy.card.provenance
        standard_error = np.hypot(card["std_return"] / 10, result.std / np.sqrt(50))
        assert abs(result.mean - card["mean_return"]) < 4 * standard_error
        assert source.start(np.random.default_rng(0))(np.zeros(11, dtype=np.float32)).shape == (2,)
    published = (-4.0, -9.6, -9.7, -42.0, -81.0)  # mean returns of the demonstrations that the paper's code comes with
    for (source, _), theirs in zip(mix, published, strict=True):
        ours = load_policy(SHIPPED / "reacher" / source.name).card.provenance["mean_return"]
        assert ours == pytest.approx(theirs, rel=0.1)
    spinning = [load_policy(SHIPPED / "reacher" / source.name).card.provenance["mean_return"]
                for source, _ in task.mixes()["spinning"]]
    assert max(spinning[1:]) < -11.7  # all but the best are worse than doing nothing


def test_ants_demonstrators_walk_as_well_as_their_cards_say():
    task = Ant()
    policies = [load_policy(SHIPPED / "ant" / source.name) for source, _ in task.mixes()["paper"]]
    returns = [policy.card.provenance["mean_return"] for policy in policies]
    assert returns == sorted(returns, reverse=True)
    assert returns[0] > 4500
    result, card = evaluate(task, policies[0], episodes=10, seed=3), policies[0].card.provenance
    assert abs(result.mean - card["mean_return"]) < 4 * np.hypot(card["std_return"] / 10, card["std_return"] / np.sqrt(10))


def test_without_mujoco_the_way_out_is_named():
    code = ("import sys; sys.modules['mujoco'] = None\n"
            "from cail_core.errors import MissingDependency\nfrom cail_core.tasks.mujoco import Reacher\n"
            "task = Reacher()\n"
            "try:\n    task.make_env(1)\nexcept MissingDependency as fault:\n    print(fault)\n")
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout
    assert how_to_add("mujoco") in said
