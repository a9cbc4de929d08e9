"""Proximal policy optimisation (Schulman et al. 2017), the learner under AIRL, CAIL and the other online methods.

One iteration: `collect` a rollout with `PPO.act`, then `PPO.update` on it with any reward, the task's or a learned one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cail_core.config import setting
from cail_core.rl.flat_adam import FlatAdam
from cail_core.rl.networks import MAX_LOG_STD, MIN_LOG_STD, Critic, TanhGaussianActor, squash_log_det, unsquash
from cail_core.rl.rollout import Rollout, gae


@dataclass(frozen=True)
class PPOConfig:
    """The section `ppo` of a method's settings. Networks, γ, λ and clip are the paper's."""

    gamma: float = setting(0.995, "discount γ; on Reacher 0.97 learns faster: with the bootstrap at time limits 0.995 looks "
                                  "200 steps ahead", low=0.0, high=1.0)
    lam: float = setting(0.97, "λ of the advantage estimate", low=0.0, high=1.0)
    clip: float = setting(0.2, "how far the probability ratio may move from 1 and still gain", low=0.0)
    learning_rate: float = setting(6e-4, "Adam, actor and critic; the paper: 3e-4 with more gradient steps", low=0.0)
    epochs: int = setting(10, "passes over each rollout; the published code makes 50 with the whole rollout as one batch", low=1)
    minibatch: int = setting(1000, "steps per gradient step; 0 takes the whole rollout at once", low=0)
    rollout_steps: int = setting(5000, "steps of all environments together in one rollout", low=1)
    num_envs: int = setting(50, "environments stepped together", low=1)
    entropy: float = setting(0.0, "weight of the entropy bonus", low=0.0)
    max_grad_norm: float = setting(10.0, "gradients are scaled down to this norm", low=0.0)
    initial_log_std: float = setting(-2.0, "log σ before squashing, at first; -1 learned slower on Reacher", low=-5.0, high=2.0)
    hidden: tuple[int, ...] = setting((64, 64), "sizes of the hidden layers of actor and critic")
    timelimit_is_terminal: bool = setting(False, "value 0 at a time limit, as the published code has it, in place of a bootstrap")

    @property
    def steps_per_env(self) -> int:
        """How long each environment runs in one rollout."""
        return max(1, self.rollout_steps // self.num_envs)


class PPO:
    """Actor and critic with the clipped update. All randomness comes from `generator`."""

    def __init__(self, observation_dim: int, action_dim: int, config: PPOConfig, generator: torch.Generator) -> None:
        self.config = config
        self.generator = generator
        self.actor = TanhGaussianActor(observation_dim, action_dim, generator, hidden=config.hidden,
                                       initial_log_std=config.initial_log_std)
        self.critic = Critic(observation_dim, generator, hidden=config.hidden)
        self.actor_optimizer = FlatAdam(self.actor, config.learning_rate, config.max_grad_norm)
        self.critic_optimizer = FlatAdam(self.critic, config.learning_rate, config.max_grad_norm)

    @torch.no_grad()
    def act(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Actions for a batch of observations and their log-probabilities."""
        return self.actor.sample(observation, self.generator)

    @torch.no_grad()
    def noise(self, steps: int, num_envs: int) -> Tensor:
        """σ ε, anew at every step."""
        log_std = self.actor.log_std
        assert log_std is not None
        std = log_std.clamp(MIN_LOG_STD, MAX_LOG_STD).exp()
        return std * torch.randn((steps, num_envs, self.actor.action_dim), generator=self.generator)

    def gain(self, num_envs: int) -> Tensor:
        """The policy as it is."""
        return torch.ones((num_envs, self.actor.action_dim))

    def standardise_observations(self, mean: Tensor, scale: Tensor) -> None:
        """Feed both networks (observation − mean) / scale from now on."""
        self.actor.standardise.set(mean, scale)
        self.critic.standardise.set(mean, scale)

    def set_learning_rate(self, learning_rate: float) -> None:
        """For schedules; the trainer owns them because it knows how many steps remain."""
        self.actor_optimizer.rate = self.critic_optimizer.rate = learning_rate

    def update(self, rollout: Rollout, reward: Tensor, critic_only: bool = False) -> dict[str, float]:
        """Improve actor and critic, or the critic alone, on `rollout` under `reward` [T, n].

            ratio = π(a|s) / π_old(a|s)
            L_actor  = −E[min(ratio Â, clip(ratio, 1 − ε, 1 + ε) Â)] − c·H
            L_critic = E[(V(s) − (Â_old + V_old(s)))²]
        """
        c = self.config
        with torch.no_grad():
            value, next_value = self.critic(rollout.observation), self.critic(rollout.next_observation)
            advantage, target = gae(reward, value, next_value, rollout.terminated, rollout.truncated, c.gamma, c.lam,
                                    c.timelimit_is_terminal)
            unexplained = (target - value).var() / (target.var() + 1e-8)
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        # All that does not change with the weights is worked out once. So is u = tanh⁻¹(a): the ratio needs only the Gaussian.
        x = self.actor.standardise(rollout.observation).flatten(0, 1)
        u = unsquash(rollout.action).flatten(0, 1)
        squash = squash_log_det(u).sum(dim=-1)
        columns = (x, u, rollout.log_prob.flatten() + squash, advantage.flatten(), target.flatten())

        size = c.minibatch or rollout.steps
        actor_loss, critic_loss, batches = torch.zeros(()), torch.zeros(()), 0
        for _ in range(c.epochs):
            order = torch.randperm(rollout.steps, generator=self.generator)
            for x_, u_, old_, advantage_, target_ in zip(*(torch.split(column[order], size) for column in columns), strict=True):
                if not critic_only:
                    actor_loss += self._actor_step(x_, u_, old_, advantage_)
                critic_loss += self._critic_step(x_, target_)
                batches += 1
        return {
            "actor_loss": actor_loss.item() / batches,
            "critic_loss": critic_loss.item() / batches,
            **self._change(x, u, columns[2], squash),
            "explained_variance": 1.0 - unexplained.item(),
        }

    def _actor_step(self, x: Tensor, u: Tensor, old_log_prob: Tensor, advantage: Tensor) -> Tensor:
        """`x`: standardised observations; `u`, `old_log_prob`: actions and their log-probabilities before squashing."""
        ratio = (self.actor.gaussian_log_prob(x, u) - old_log_prob).exp()
        clipped = ratio.clamp(1.0 - self.config.clip, 1.0 + self.config.clip)
        loss = -torch.min(ratio * advantage, clipped * advantage).mean()
        if self.config.entropy:
            loss = loss + self.config.entropy * self.actor.reparameterised_at(x, self.generator)[1].mean()
        self.actor_optimizer.descend(loss)
        return loss.detach()

    def _critic_step(self, x: Tensor, target: Tensor) -> Tensor:
        loss: Tensor = (self.critic.net(x).squeeze(-1) - target).square().mean()
        self.critic_optimizer.descend(loss)
        return loss.detach()

    @torch.no_grad()
    def _change(self, x: Tensor, u: Tensor, old_log_prob: Tensor, squash: Tensor) -> dict[str, float]:
        """How far the update has moved the policy from the one that acted."""
        log_prob = self.actor.gaussian_log_prob(x, u)
        log_ratio = log_prob - old_log_prob
        ratio = log_ratio.exp()
        return {
            "entropy": (squash - log_prob).mean().item(),  # of the sampled actions: a squashed Gaussian has no closed form
            "kl": (ratio - 1.0 - log_ratio).mean().item(),  # a non-negative estimate of KL(π_old ‖ π)
            "clip_fraction": ((ratio - 1.0).abs() > self.config.clip).float().mean().item(),
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything that an exact resume needs: weights, optimizers and the state of the generator."""
        return {
            "actor": self.actor.state_dict(),
            "critic": self.critic.state_dict(),
            "actor_optimizer": self.actor_optimizer.state_dict(),
            "critic_optimizer": self.critic_optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.actor.load_state_dict(state["actor"])
        self.critic.load_state_dict(state["critic"])
        self.actor_optimizer.load_state_dict(state["actor_optimizer"])
        self.critic_optimizer.load_state_dict(state["critic_optimizer"])
        self.generator.set_state(state["generator"])
