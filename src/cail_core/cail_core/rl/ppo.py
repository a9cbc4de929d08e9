"""Proximal policy optimisation (Schulman et al. 2017), the learner under AIRL, CAIL and the other online methods.

One iteration: `collect` a rollout with `PPO.act`, then `PPO.update` on it with any reward, the task's or a learned one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cail_core.config import setting
from cail_core.rl.networks import Critic, TanhGaussianActor
from cail_core.rl.rollout import Rollout, gae

ACTOR_METRICS = ("actor_loss", "entropy", "kl", "clip_fraction")


@dataclass(frozen=True)
class PPOConfig:
    """`config/ppo.yaml`. Networks, γ, λ, clip and learning rate are the paper's."""

    gamma: float = setting(0.995, "discount γ", low=0.0, high=1.0)
    lam: float = setting(0.97, "λ of the advantage estimate", low=0.0, high=1.0)
    clip: float = setting(0.2, "how far the probability ratio may move from 1 and still gain", low=0.0)
    learning_rate: float = setting(3e-4, "Adam, actor and critic", low=0.0)
    epochs: int = setting(10, "passes over each rollout; the published code makes 50 with the whole rollout as one batch", low=1)
    minibatch: int = setting(500, "steps per gradient step; 0 takes the whole rollout at once", low=0)
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
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=config.learning_rate)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=config.learning_rate)

    @torch.no_grad()
    def act(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Actions for a batch of observations and their log-probabilities."""
        return self.actor.sample(observation, self.generator)

    def standardise_observations(self, mean: Tensor, scale: Tensor) -> None:
        """Feed both networks (observation − mean) / scale from now on."""
        self.actor.standardise.set(mean, scale)
        self.critic.standardise.set(mean, scale)

    def set_learning_rate(self, learning_rate: float) -> None:
        """For schedules; the trainer owns them because it knows how many steps remain."""
        for optimizer in (self.actor_optimizer, self.critic_optimizer):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate

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
        observation, action = rollout.observation.flatten(0, 1), rollout.action.flatten(0, 1)
        old_log_prob, advantage, target = rollout.log_prob.flatten(), advantage.flatten(), target.flatten()

        size = c.minibatch or rollout.steps
        sums: dict[str, Tensor] = {}
        batches = 0
        for _ in range(c.epochs):
            for batch in torch.split(torch.randperm(rollout.steps, generator=self.generator), size):
                metrics = {} if critic_only else self._actor_step(
                    observation[batch], action[batch], old_log_prob[batch], advantage[batch])
                metrics["critic_loss"] = self._critic_step(observation[batch], target[batch])
                sums = {name: sums.get(name, torch.zeros(())) + value for name, value in metrics.items()}
                batches += 1
        means = {name: (total / batches).item() for name, total in sums.items()}
        unmoved = dict.fromkeys(ACTOR_METRICS, 0.0)
        return {**unmoved, **means, "explained_variance": 1.0 - unexplained.item()}

    def _actor_step(self, observation: Tensor, action: Tensor, old_log_prob: Tensor, advantage: Tensor) -> dict[str, Tensor]:
        log_prob = self.actor.log_prob(observation, action)
        log_ratio = log_prob - old_log_prob
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1.0 - self.config.clip, 1.0 + self.config.clip)
        entropy = -log_prob.mean()  # of the sampled actions: a squashed Gaussian has no closed form
        loss = -torch.min(ratio * advantage, clipped * advantage).mean()
        if self.config.entropy:
            _, fresh_log_prob = self.actor.reparameterised(observation, self.generator)
            loss = loss + self.config.entropy * fresh_log_prob.mean()
        self._descend(self.actor_optimizer, self.actor, loss)
        with torch.no_grad():
            return {
                "actor_loss": loss.detach(),
                "entropy": entropy.detach(),
                "kl": (ratio - 1.0 - log_ratio).mean(),  # a non-negative estimate of KL(π_old ‖ π)
                "clip_fraction": (ratio != clipped).float().mean(),
            }

    def _critic_step(self, observation: Tensor, target: Tensor) -> Tensor:
        loss: Tensor = (self.critic(observation) - target).square().mean()
        self._descend(self.critic_optimizer, self.critic, loss)
        return loss.detach()

    def _descend(self, optimizer: torch.optim.Optimizer, module: nn.Module, loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(module.parameters(), self.config.max_grad_norm)
        optimizer.step()

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
