"""Soft actor-critic (Haarnoja et al. 2018) with twin critics and an automatic temperature: the oracle of the Reacher task."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cail_core.config import setting
from cail_core.rl.networks import Standardise, TanhGaussianActor, mlp
from cail_core.tasks.base import Array, BatchEnv


@dataclass(frozen=True)
class SACConfig:
    """`config/sac.yaml`."""

    gamma: float = setting(0.99, "discount γ", low=0.0, high=1.0)
    tau: float = setting(0.005, "how far the target critics follow at each update", low=0.0, high=1.0)
    learning_rate: float = setting(3e-4, "Adam, for actor, critics and temperature", low=0.0)
    decay_from: float = setting(1.0, "share of the run after which the learning rate falls linearly to 0", low=0.0, high=1.0)
    batch: int = setting(256, "transitions per update", low=1)
    buffer: int = setting(1_000_000, "transitions that are kept", low=1)
    random_steps: int = setting(2000, "steps of uniformly random actions at the start, before any update", low=1)
    num_envs: int = setting(20, "environments stepped together", low=1)
    updates_per_step: float = setting(0.25, "updates per step of one environment", low=0.0)
    initial_alpha: float = setting(1.0, "temperature α at the start: the worth of a nat of entropy", low=0.0)
    target_entropy: float = setting(-1.0, "entropy that α steers to, nats per entry of the action; lower ends more precise")
    hidden: tuple[int, ...] = setting((64, 64), "sizes of the hidden layers of actor and critics")


class TwinCritic(nn.Module):
    """Q₁(s, a) and Q₂(s, a), ReLU networks, as [2, n]."""

    def __init__(self, observation_dim: int, action_dim: int, hidden: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.standardise = Standardise(observation_dim)
        self.nets = nn.ModuleList(mlp([observation_dim + action_dim, *hidden, 1], nn.ReLU, generator) for _ in range(2))

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        pair = torch.cat([self.standardise(observation), action], dim=-1)
        return torch.stack([net(pair).squeeze(-1) for net in self.nets])


@dataclass(frozen=True)
class Transitions:
    """A batch (s, a, r, s′, terminated). A time limit is not kept: it says nothing about the future of s′."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    next_observation: Tensor
    terminated: Tensor


class Replay:
    """The last `size` transitions."""

    def __init__(self, size: int, observation_dim: int, action_dim: int) -> None:
        self._parts = Transitions(torch.zeros(size, observation_dim), torch.zeros(size, action_dim), torch.zeros(size),
                                  torch.zeros(size, observation_dim), torch.zeros(size, dtype=torch.bool))
        self._size, self._next, self._filled = size, 0, 0

    def __len__(self) -> int:
        return self._filled

    def add(self, new: Transitions) -> None:
        rows = (self._next + torch.arange(len(new.reward))) % self._size
        for name in Transitions.__dataclass_fields__:
            getattr(self._parts, name)[rows] = getattr(new, name)
        self._next = (self._next + len(rows)) % self._size
        self._filled = min(self._filled + len(rows), self._size)

    def observation_statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each observation; a constant one keeps its scale."""
        seen = self._parts.observation[: self._filled]
        std = seen.std(dim=0)
        return seen.mean(dim=0), torch.where(std > 1e-6, std, 1.0)

    def sample(self, n: int, generator: torch.Generator) -> Transitions:
        rows = torch.randint(self._filled, (n,), generator=generator)
        return Transitions(*(getattr(self._parts, name)[rows] for name in Transitions.__dataclass_fields__))


def soft_target(reward: Tensor, terminated: Tensor, next_q: Tensor, next_log_prob: Tensor, alpha: Tensor, gamma: float) -> Tensor:
    """y = r + γ (1 − terminated) (min(Q̄₁, Q̄₂)(s′, a′) − α log π(a′|s′)),   a′ ~ π(·|s′); `next_q` is [2, n]."""
    return reward + gamma * ~terminated * (next_q.min(dim=0).values - alpha * next_log_prob)


class SAC:
    """Actor, twin critics and temperature. All randomness comes from `generator`."""

    def __init__(self, observation_dim: int, action_dim: int, config: SACConfig, generator: torch.Generator) -> None:
        self.config = config
        self.generator = generator
        self.actor = TanhGaussianActor(observation_dim, action_dim, generator, hidden=config.hidden, activation=nn.ReLU,
                                       state_dependent_std=True)
        self.critic = TwinCritic(observation_dim, action_dim, config.hidden, generator)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = torch.tensor(float(np.log(config.initial_alpha)), requires_grad=True)
        self.target_entropy = config.target_entropy * action_dim
        self.replay = Replay(config.buffer, observation_dim, action_dim)
        self._optimizers = {
            "actor": torch.optim.Adam(self.actor.parameters(), lr=config.learning_rate),
            "critic": torch.optim.Adam(self.critic.parameters(), lr=config.learning_rate),
            "alpha": torch.optim.Adam([self.log_alpha], lr=config.learning_rate),
        }

    @torch.no_grad()
    def act(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor.sample(observation, self.generator)

    def standardise_observations(self, mean: Tensor, scale: Tensor) -> None:
        """Feed all networks (observation − mean) / scale from now on."""
        for network in (self.actor, self.critic, self.target):
            network.standardise.set(mean, scale)

    def set_learning_rate(self, learning_rate: float) -> None:
        for optimizer in self._optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = learning_rate

    def update(self) -> dict[str, float]:
        """One gradient step each on

            L_Q = E[(Q_i(s, a) − y)²] for both critics
            L_π = E[α log π(a|s) − min(Q₁, Q₂)(s, a)],   a ~ π(·|s) reparameterised
            L_α = E[−log α (log π(a|s) + H̄)],   H̄ = `target_entropy` · dim(a)
        """
        c = self.config
        batch = self.replay.sample(c.batch, self.generator)
        alpha = self.log_alpha.detach().exp()

        with torch.no_grad():
            next_action, next_log_prob = self.actor.reparameterised(batch.next_observation, self.generator)
            next_q = self.target(batch.next_observation, next_action)
            y = soft_target(batch.reward, batch.terminated, next_q, next_log_prob, alpha, c.gamma)
        critic_loss = (self.critic(batch.observation, batch.action) - y).square().mean(dim=1).sum()
        self._descend("critic", critic_loss)

        action, log_prob = self.actor.reparameterised(batch.observation, self.generator)
        self.critic.requires_grad_(False)  # the actor's loss needs the gradient in the action only
        actor_loss = (alpha * log_prob - self.critic(batch.observation, action).min(dim=0).values).mean()
        self._descend("actor", actor_loss)
        self.critic.requires_grad_(True)

        alpha_loss = -(self.log_alpha * (log_prob.detach().mean() + self.target_entropy))
        self._descend("alpha", alpha_loss)

        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                slow.lerp_(fast, c.tau)
        return {"critic_loss": critic_loss.item(), "actor_loss": actor_loss.item(), "alpha": alpha.item(),
                "entropy": -log_prob.mean().item()}

    def _descend(self, name: str, loss: Tensor) -> None:
        optimizer = self._optimizers[name]
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def train_sac(sac: SAC, env: BatchEnv, steps: int, seed: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Train for `steps` environment steps; gives (steps, updates, metrics) after each round of updates.

    Observations are standardised with the statistics of the random steps at the start: on Reacher they differ by a factor
    of 100 between a velocity and the distance to the target.
    """
    c = sac.config
    observation: Array = env.reset(seed)
    updates, owed = 0, 0.0
    for taken in range(env.num_envs, steps + 1, env.num_envs):
        state = torch.from_numpy(np.array(observation))
        random = taken <= c.random_steps
        action = torch.rand(env.num_envs, sac.actor.action_dim, generator=sac.generator) * 2 - 1 if random else sac.act(state)[0]
        step = env.step(action.numpy())
        reached, reward, terminated = map(torch.from_numpy, (step.next_observation, step.reward, step.terminated))
        sac.replay.add(Transitions(state, action, reward, reached, terminated))
        observation = step.observation
        if random:
            continue
        if updates == 0:
            sac.standardise_observations(*sac.replay.observation_statistics())
        remaining = 1.0 - taken / steps
        if remaining < 1.0 - c.decay_from:
            sac.set_learning_rate(c.learning_rate * remaining / (1.0 - c.decay_from))
        owed += c.updates_per_step * env.num_envs
        metrics: dict[str, float] = {}
        while owed >= 1:
            metrics = sac.update()
            owed -= 1
            updates += 1
        if metrics:
            yield taken, updates, metrics
