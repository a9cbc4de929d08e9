from __future__ import annotations

import copy

import numpy as np
import torch

from cail_core.rl.flat_adam import FlatAdam
from cail_core.rl.networks import Critic
from cail_core.rl.ppo import PPO, PPOConfig
from cail_core.rl.rollout import Rollout, collect
from cail_core.tasks.base import Step


class Mirror:
    """Show the number that is seen: reward −(a − x)², a new x at every step, time limit after 5 steps."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def reset(self, seed: int) -> np.ndarray:
        self._rng = np.random.default_rng(seed)
        self._k = 0
        return self._draw()

    def step(self, action: np.ndarray) -> Step:
        reward = -((action - self._x) ** 2).sum(axis=1)
        self._k += 1
        no = np.zeros(self.num_envs, dtype=bool)
        observation = self._draw()
        return Step(observation, observation, reward, no, no if self._k % 5 else ~no, no)

    def close(self) -> None: ...

    def _draw(self) -> np.ndarray:
        self._x = self._rng.uniform(-0.8, 0.8, (self.num_envs, 1)).astype(np.float32)
        return self._x.copy()


CONFIG = PPOConfig(num_envs=50, rollout_steps=1000, minibatch=250, epochs=5, learning_rate=3e-3, gamma=0.9,
                   initial_log_std=-1.0)


def make(config: PPOConfig = CONFIG, seed: int = 0) -> PPO:
    return PPO(1, 1, config, torch.Generator().manual_seed(seed))


def test_ppo_learns_to_mirror_its_observation():
    env, ppo = Mirror(CONFIG.num_envs), make()
    observation = env.reset(0)
    for _ in range(30):
        rollout = collect(env, observation, ppo, CONFIG.steps_per_env)
        metrics = ppo.update(rollout, rollout.env_reward)
        observation = rollout.current
    x = torch.linspace(-0.8, 0.8, 41)[:, None]
    with torch.no_grad():
        assert (ppo.actor.mode(x) - x).abs().max() < 0.15
    assert set(metrics) == {"actor_loss", "critic_loss", "entropy", "kl", "clip_fraction", "explained_variance"}


def test_ppo_follows_the_given_reward_not_the_tasks():
    env, ppo = Mirror(CONFIG.num_envs), make()
    observation = env.reset(0)
    for _ in range(15):
        rollout = collect(env, observation, ppo, CONFIG.steps_per_env)
        ppo.update(rollout, rollout.action[..., 0])
        observation = rollout.current
    assert ppo.actor.mode(torch.zeros(1, 1)).item() > 0.5


def fixed_rollout(action: list[float], log_prob: list[float]) -> Rollout:
    n = len(action)
    no = torch.zeros(1, n, dtype=torch.bool)
    ended = ~no
    zeros = torch.zeros(1, n, 1)
    current = np.zeros((n, 1), dtype=np.float32)
    action_, log_prob_ = torch.tensor(action)[None, :, None], torch.tensor(log_prob)[None]
    return Rollout(zeros, action_, log_prob_, zeros, torch.zeros(1, n), ended, no, no, current)


def test_clipping_takes_the_gradient_of_a_ratio_that_went_too_far():
    # Both actions sit at the mode, so their log-probabilities are equal; the better one already gained a ratio above 1.2
    # and the worse one already fell below 0.8: nothing is left to gain, the actor must not move.
    ppo = make(PPOConfig(epochs=1, minibatch=0))
    at_mode = ppo.actor.log_prob(torch.zeros(1, 1), torch.zeros(1, 1)).item()
    rollout = fixed_rollout([0.0, 0.0], [at_mode - np.log(1.5), at_mode - np.log(0.5)])
    before = copy.deepcopy(ppo.actor.state_dict())
    metrics = ppo.update(rollout, torch.tensor([[1.0, -1.0]]))
    assert metrics["clip_fraction"] == 1.0
    assert all(torch.equal(before[name], value) for name, value in ppo.actor.state_dict().items())


def test_unclipped_actor_loss_by_hand():
    # Two one-step episodes, V = 0 at the start (zero biases, state 0): advantages ±1, normalised by their std √2;
    # ratios 1.1 and 0.9: loss = −(1.1 − 0.9)/√2/2.
    ppo = make(PPOConfig(epochs=1, minibatch=0))
    at_mode = ppo.actor.log_prob(torch.zeros(1, 1), torch.zeros(1, 1)).item()
    rollout = fixed_rollout([0.0, 0.0], [at_mode - np.log(1.1), at_mode - np.log(0.9)])
    metrics = ppo.update(rollout, torch.tensor([[1.0, -1.0]]))
    np.testing.assert_allclose(metrics["actor_loss"], -(1.1 - 0.9) / np.sqrt(2) / 2, rtol=1e-4)
    np.testing.assert_allclose(metrics["critic_loss"], 1.0, rtol=1e-5)


def test_a_restored_ppo_continues_bit_for_bit():
    def run(ppo: PPO, env: Mirror, observation: np.ndarray, updates: int) -> np.ndarray:
        for _ in range(updates):
            rollout = collect(env, observation, ppo, CONFIG.steps_per_env)
            ppo.update(rollout, rollout.env_reward)
            observation = rollout.current
        return observation

    env, ppo = Mirror(CONFIG.num_envs), make()
    run(ppo, env, env.reset(0), 2)
    saved = copy.deepcopy(ppo.state_dict())
    run(ppo, env, env.reset(1), 2)
    other = make(seed=5)
    other.load_state_dict(saved)
    run(other, env, env.reset(1), 2)
    for name, value in ppo.actor.state_dict().items():
        assert torch.equal(value, other.actor.state_dict()[name])
    assert torch.equal(ppo.generator.get_state(), other.generator.get_state())


def test_training_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    env, ppo = Mirror(4), make(PPOConfig(num_envs=4, rollout_steps=20, entropy=0.01))
    ppo.update(rollout := collect(env, env.reset(0), ppo, 5), rollout.env_reward)
    assert torch.equal(before, torch.get_rng_state())


def test_learning_rate_can_be_scheduled():
    ppo = make()
    ppo.set_learning_rate(1e-5)
    assert ppo.actor_optimizer.rate == ppo.critic_optimizer.rate == 1e-5


def test_flat_adam_is_adam_with_clipped_gradients():
    ours, theirs = (Critic(3, torch.Generator().manual_seed(4), hidden=(5,)) for _ in range(2))
    flat, reference = FlatAdam(ours, 0.01, 0.5), torch.optim.Adam(theirs.parameters(), lr=0.01)
    x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)), torch.arange(20.0)
    for _ in range(10):
        flat.descend((ours(x) - y).square().mean())
        reference.zero_grad()
        (theirs(x) - y).square().mean().backward()
        assert torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5) > 0.5
        reference.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
