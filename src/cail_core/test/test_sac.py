from __future__ import annotations

import numpy as np
import torch

from cail_bench.demonstrators.sac import SAC, Replay, SACConfig, Transitions, soft_target, train_sac
from cail_core.tasks.base import Step


def test_soft_target_by_hand():
    # min Q = (1, 2); y = r + .5 (min Q − .1 log π): 1 + .5 (1 + .2) = 1.6 and, terminated, y = r = 3
    reward, terminated = torch.tensor([1.0, 3.0]), torch.tensor([False, True])
    next_q = torch.tensor([[1.0, 7.0], [4.0, 2.0]])
    y = soft_target(reward, terminated, next_q, torch.tensor([-2.0, -1.0]), torch.tensor(0.1), gamma=0.5)
    torch.testing.assert_close(y, torch.tensor([1.6, 3.0]))


class Mirror:
    """Show the number that is seen: reward −(a − x)². Every episode is one step long and ends at its time limit."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def reset(self, seed: int) -> np.ndarray:
        self._rng = np.random.default_rng(seed)
        return self._draw()

    def step(self, action: np.ndarray) -> Step:
        reward = -((action - self._x) ** 2).sum(axis=1)
        no = np.zeros(self.num_envs, dtype=bool)
        reached = self._x.copy()
        return Step(self._draw(), reached, reward, no, ~no, no)

    def close(self) -> None: ...

    def _draw(self) -> np.ndarray:
        self._x = self._rng.uniform(-0.8, 0.8, (self.num_envs, 1)).astype(np.float32)
        return self._x.copy()


CONFIG = SACConfig(gamma=0.5, learning_rate=3e-3, batch=64, buffer=5000, random_steps=200, num_envs=10, updates_per_step=0.2,
                   initial_alpha=0.05, tau=0.05, hidden=(32, 32))


def make(seed: int = 0) -> SAC:
    return SAC(1, 1, CONFIG, torch.Generator().manual_seed(seed))


def transitions(*numbers: float) -> Transitions:
    x = torch.tensor(numbers, dtype=torch.float32)
    return Transitions(x[:, None], x[:, None], x, x[:, None], torch.zeros(len(x), dtype=torch.bool))


def test_sac_learns_to_mirror_its_observation():
    sac = make()
    *_, (steps, updates, metrics) = train_sac(sac, Mirror(10), 3000, seed=0)
    assert (steps, updates) == (3000, 560)
    x = torch.linspace(-0.8, 0.8, 41)[:, None]
    with torch.no_grad():
        assert (sac.actor.mode(x) - x).abs().mean() < 0.1
    assert set(metrics) == {"critic_loss", "actor_loss", "alpha", "entropy"}


def test_training_repeats_bit_for_bit_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    runs = []
    for _ in range(2):
        sac = make()
        list(train_sac(sac, Mirror(10), 400, seed=1))
        runs.append(sac.actor.state_dict())
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])
    assert torch.equal(before, torch.get_rng_state())


def test_a_time_limit_still_has_a_future():
    # Reward 1 at every step of the Mirror's time-limited episodes of one step: with γ = 0.5 a bootstrapped Q tends to
    # 1/(1 − γ) = 2 (plus the small entropy term), a terminal one to 1.
    sac = make()
    n = 500
    x = torch.rand(n, 1, generator=torch.Generator().manual_seed(3)) * 2 - 1
    sac.replay.add(Transitions(x, -x, torch.ones(n), x, torch.zeros(n, dtype=torch.bool)))
    sac.log_alpha = torch.tensor(-20.0, requires_grad=True)
    for _ in range(400):
        sac.update()
    with torch.no_grad():
        assert 1.7 < sac.critic(x, -x).mean().item() < 2.3


def test_temperature_falls_while_the_policy_is_more_random_than_its_target():
    sac = make()
    sac.replay.add(transitions(*[0.0] * 10))
    metrics = sac.update()
    assert metrics["entropy"] > sac.target_entropy
    assert sac.log_alpha.exp().item() < metrics["alpha"]


def test_target_critics_follow_by_tau():
    sac = make()
    sac.replay.add(transitions(*[1.0] * 10))
    old = [p.clone() for p in sac.target.parameters()]
    sac.update()
    for before, slow, fast in zip(old, sac.target.parameters(), sac.critic.parameters(), strict=True):
        torch.testing.assert_close(slow, before + CONFIG.tau * (fast - before))


def test_replay_keeps_the_newest():
    replay = Replay(4, 1, 1)
    replay.add(transitions(1, 2, 3))
    assert len(replay) == 3
    replay.add(transitions(4, 5))
    assert len(replay) == 4
    assert set(replay.sample(200, torch.Generator().manual_seed(0)).reward.tolist()) == {2.0, 3.0, 4.0, 5.0}


def test_observation_statistics_leave_a_constant_alone():
    replay = Replay(10, 2, 1)
    state = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    replay.add(Transitions(state, torch.zeros(2, 1), torch.zeros(2), state, torch.zeros(2, dtype=torch.bool)))
    mean, scale = replay.observation_statistics()
    torch.testing.assert_close(mean, torch.tensor([2.0, 5.0]))
    torch.testing.assert_close(scale, torch.tensor([2.0**0.5, 1.0]))
