from __future__ import annotations

import numpy as np
import torch

from cail_core.rl.rollout import collect, gae
from cail_core.tasks.base import Step

NO = torch.zeros(3, 1, dtype=torch.bool)
GAMMA, LAM = 0.5, 0.5


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values)[:, None]


def flags(*values: bool) -> torch.Tensor:
    return torch.tensor(values)[:, None]


def test_gae_by_hand():
    # delta = (1 + .5*2 - 1, 2 + .5*4 - 2, 3 + .5*6 - 4) = (1, 2, 2); A3 = 2, A2 = 2 + .25*2, A1 = 1 + .25*2.5
    value = column(1, 2, 4)
    advantage, target = gae(column(1, 2, 3), value, column(2, 4, 6), NO, NO, GAMMA, LAM)
    torch.testing.assert_close(advantage, column(1.625, 2.5, 2.0))
    torch.testing.assert_close(target, column(2.625, 4.5, 6.0))


def test_gae_bootstraps_at_a_time_limit_but_does_not_leak_into_the_next_episode():
    # Step 2 runs into the limit: delta2 = 2 + .5*4 - 2 = 2 keeps the value 4 of its last state; A2 = delta2.
    advantage, _ = gae(column(1, 2, 3), column(1, 2, 4), column(2, 4, 6), NO, flags(False, True, False), GAMMA, LAM)
    torch.testing.assert_close(advantage, column(1.5, 2.0, 2.0))


def test_gae_gives_a_terminal_state_no_value():
    # delta2 = 2 - 2 = 0
    advantage, _ = gae(column(1, 2, 3), column(1, 2, 4), column(2, 4, 6), flags(False, True, False), NO, GAMMA, LAM)
    torch.testing.assert_close(advantage, column(1.0, 0.0, 2.0))


def test_gae_can_treat_a_time_limit_as_the_published_code_does():
    cut = flags(False, True, False)
    published, _ = gae(column(1, 2, 3), column(1, 2, 4), column(2, 4, 6), NO, cut, GAMMA, LAM, timelimit_is_terminal=True)
    terminal, _ = gae(column(1, 2, 3), column(1, 2, 4), column(2, 4, 6), cut, NO, GAMMA, LAM)
    torch.testing.assert_close(published, terminal)


def test_gae_keeps_environments_apart():
    reward = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    value, reached = torch.zeros(3, 2), torch.zeros(3, 2)
    no = torch.zeros(3, 2, dtype=torch.bool)
    advantage, _ = gae(reward, value, reached, no, no, GAMMA, LAM)
    torch.testing.assert_close(advantage[:, 1], 10 * advantage[:, 0])


class Counter:
    """Counts the steps of its episode: state k leads to k + 1; environment i ends after 2 + i steps, the first by itself."""

    num_envs = 2

    def reset(self, seed: int) -> np.ndarray:
        self._k = np.zeros(2, dtype=np.float32)
        return self._k[:, None].copy()

    def step(self, action: np.ndarray) -> Step:
        self._k += 1
        reached = self._k[:, None].copy()
        ended = self._k >= [2, 3]
        self._k[ended] = 0
        first = np.array([True, False])
        return Step(self._k[:, None].copy(), reached, self._k.copy(), ended & first, ended & ~first, ended)

    def close(self) -> None: ...


class Still:
    def act(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(len(observation), 1), torch.zeros(len(observation))


def test_rollout_keeps_true_next_states_and_both_ends_apart():
    env = Counter()
    rollout = collect(env, env.reset(0), Still(), 4)
    assert rollout.observation[:, :, 0].T.tolist() == [[0, 1, 0, 1], [0, 1, 2, 0]]
    assert rollout.next_observation[:, :, 0].T.tolist() == [[1, 2, 1, 2], [1, 2, 3, 1]]
    assert rollout.terminated.T.tolist() == [[False, True, False, True], [False] * 4]
    assert rollout.truncated.T.tolist() == [[False] * 4, [False, False, True, False]]
    assert rollout.current.tolist() == [[0], [1]]
    assert rollout.steps == 8


def test_a_rollout_continues_where_the_last_one_stopped():
    env = Counter()
    first = collect(env, env.reset(0), Still(), 3)
    second = collect(env, first.current, Still(), 3)
    assert second.observation[:, :, 0].T.tolist() == [[1, 0, 1], [0, 1, 2]]
