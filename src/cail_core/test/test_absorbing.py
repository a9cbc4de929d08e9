"""Episodes that end early go on in the state where they ended, for demonstrators and policy alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cail_core.algorithms.batch import Batch
from cail_core.algorithms.method import method_config
from cail_core.algorithms.trainers.absorbing import flagged, padded, standardised, tail
from cail_core.algorithms.trainers.adversarial import AdversarialLearner
from cail_core.algorithms.trainers.base import make_learner
from cail_core.demos.demonstrations import Demonstrations
from cail_core.rl.rollout import collect
from cail_core.tasks.base import Step, TaskSpec


def three_pairs() -> Batch:
    """The second pair ends an episode."""
    return Batch(torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([[0.1], [0.2], [0.3]]), torch.tensor([[2.0], [3.0], [6.0]]),
                 torch.tensor([0.0, 1.0, 0.0]), torch.tensor([-1.0, -2.0, -3.0]))


def test_flags_mark_where_an_episode_ended() -> None:
    made = flagged(three_pairs())
    assert made.state.tolist() == [[1, 0], [2, 0], [5, 0]]
    assert made.next_state.tolist() == [[2, 0], [3, 1], [6, 0]]
    assert made.terminated.tolist() == [0, 0, 0]


def test_an_ended_episode_waits_until_its_time_limit() -> None:
    made = padded(three_pairs(), torch.tensor([4]))
    assert made.batch.state[3].tolist() == made.batch.next_state[3].tolist() == [3, 1]
    assert made.batch.action[3].tolist() == [0]
    assert made.batch.log_prob[3].item() == 0
    assert made.origin.tolist() == [0, 1, 2, 1]  # the waiting pair has the confidence of the pair that ended the episode
    assert made.pool.tolist() == [0, 1, 2, 3, 3, 3, 3]


def test_tail_is_the_discounted_sum_by_hand() -> None:
    assert tail(torch.tensor([2.0]), torch.tensor([3]), 0.5).item() == pytest.approx(2 * (0.5 + 0.25 + 0.125))
    assert tail(torch.tensor([2.0]), torch.tensor([3]), 1.0).item() == 6.0
    assert tail(torch.tensor([2.0]), torch.tensor([0]), 0.9).item() == 0.0


class Walk:
    """A walk on a line, 20 steps long; whoever steps beyond −1 falls and the episode ends at once."""

    spec = TaskSpec("walk", "Stay on the line.", "none", 10, 20, ("position",), ("velocity",))

    def make_env(self, num_envs: int) -> WalkEnv:
        return WalkEnv(num_envs)

    def mixes(self) -> dict[str, list[tuple[object, float]]]:
        return {}


class WalkEnv:
    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self._position, self._steps = np.zeros(num_envs), np.zeros(num_envs, dtype=int)

    def reset(self, seed: int) -> np.ndarray:
        self._position[:], self._steps[:] = 0.0, 0
        return self._position[:, None].astype(np.float32)

    def step(self, action: np.ndarray) -> Step:
        self._position += 0.3 * action[:, 0]
        self._steps += 1
        fell, late = self._position < -1, self._steps >= 20
        reached = self._position[:, None].astype(np.float32)
        ended = fell | late
        self._position[ended], self._steps[ended] = 0.0, 0
        return Step(self._position[:, None].astype(np.float32), reached, np.ones(self.num_envs, np.float32), fell, late & ~fell,
                    np.zeros(self.num_envs, bool))

    def close(self) -> None:
        """Nothing to release."""


def walkers() -> Demonstrations:
    """Demonstrators who stay near 0 for all 20 steps."""
    rng = np.random.default_rng(0)
    states, actions, following = [], [], []
    for _ in range(20):
        x = 0.0
        for _ in range(20):
            a = float(np.clip(-x + rng.normal(0, 0.2), -1, 1))
            states.append([x])
            actions.append([a])
            x += 0.3 * a
            following.append([x])
    columns = (np.array(column, dtype=np.float32) for column in (states, actions, following))
    return Demonstrations(*columns, np.zeros(400, bool), np.arange(0, 401, 20), np.zeros(20, dtype=np.int64))


def test_the_last_reward_before_an_end_holds_what_waiting_is_worth() -> None:
    made = padded(three_pairs(), torch.tensor([2]))
    # Real steps 1, 3, 5: mean 3, deviation √(8/3). Waiting 4 → 1 / √(8/3), for two steps at γ = 0.5: 0.75 of it.
    scale = (8 / 3) ** -0.5
    found = standardised(torch.tensor([1.0, 3.0, 5.0, 4.0]), made, torch.tensor([2]), 0.5)
    assert found.tolist() == pytest.approx([-2 * scale, 0.75 * scale, 2 * scale], rel=1e-5)


def test_a_constant_on_every_learned_reward_changes_nothing() -> None:
    made, left = padded(three_pairs(), torch.tensor([2])), torch.tensor([2])
    reward = torch.tensor([1.0, 3.0, 5.0, 4.0])
    shifted = standardised(10 * reward - 100, made, left, 0.9)
    assert shifted.tolist() == pytest.approx(standardised(reward, made, left, 0.9).tolist(), abs=1e-5)


def test_steps_left_are_counted_from_each_episodes_own_start() -> None:
    learner = make_learner("airl", Walk(), walkers(), method_config("airl"), 0)  # type: ignore[arg-type]
    assert isinstance(learner, AdversarialLearner)
    learner.begin_segment(0)

    class Left:
        def act(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return -torch.ones(len(observation), 1), torch.zeros(len(observation))

    rollout = collect(learner._env, learner._observation, Left(), 9)  # −0.3 a step: falls at the 4th and the 8th
    _, left = learner._episodes(rollout)
    assert left.tolist() == [16] * (2 * 50)


class Duel:
    """Twenty rounds in each of which a fair demonstrator's second action is ±0.8 by a coin that nobody else sees. A first
    action below −0.2 gives up, and the episode is over.

    No policy without the coin can look like these demonstrators, so each round costs it, as AIRL counts, a little. Giving up is
    unlike them too, but costs only once.
    """

    spec = replace(Walk.spec, observation_names=("round",), action_names=("stance", "coin"), max_steps=20)

    def make_env(self, num_envs: int) -> DuelEnv:
        return DuelEnv(num_envs)


class DuelEnv:
    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self._round = np.zeros(num_envs, dtype=int)

    def reset(self, seed: int) -> np.ndarray:
        self._round[:] = 0
        return self._observe()

    def step(self, action: np.ndarray) -> Step:
        self._round += 1
        reached = self._observe()
        gave_up = action[:, 0] < -0.2
        late = (self._round >= 20) & ~gave_up
        self._round[gave_up | late] = 0
        return Step(self._observe(), reached, np.ones(self.num_envs, np.float32), gave_up, late, np.zeros(self.num_envs, bool))

    def close(self) -> None:
        """Nothing to release."""

    def _observe(self) -> np.ndarray:
        return (self._round[:, None] / 20).astype(np.float32)


def duellists() -> Demonstrations:
    rng = np.random.default_rng(0)
    n = 20 * 40
    rounds = np.tile(np.arange(20), 40)
    actions = np.stack([rng.normal(0.0, 0.1, n), 0.8 * rng.choice([-1, 1], n)], axis=1)
    return Demonstrations((rounds[:, None] / 20).astype(np.float32), actions.astype(np.float32),
                          ((rounds[:, None] + 1) / 20).astype(np.float32), np.zeros(n, bool), np.arange(0, n + 1, 20),
                          np.zeros(40, dtype=np.int64))


def test_giving_up_does_not_pay() -> None:
    """By the task's own reward of 1 for each round: how long an episode lasts after training."""
    torch.set_num_threads(1)
    config = method_config("airl", changes={"ppo.rollout_steps": 1000, "ppo.minibatch": 250, "ppo.learning_rate": 1e-3})
    learner = make_learner("airl", Duel(), duellists(), config, 0)  # type: ignore[arg-type]
    learner.begin_segment(0)
    assert float(np.mean([learner.iterate()["return"] for _ in range(25)][-5:])) > 15
