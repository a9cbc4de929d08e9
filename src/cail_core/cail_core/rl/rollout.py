"""What a policy lived through in a batch of environments, and the advantages computed from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from cail_core.policy import network_of
from cail_core.rl.networks import TanhGaussianActor
from cail_core.tasks.base import Array, BatchEnv, PlayingEnv


@dataclass(frozen=True)
class Rollout:
    """T steps of n environments, every tensor [T, n, …].

    `next_observation` is the state that the action led to, also at an episode's end; `terminated` (the task ended) and
    `truncated` (the time ran out) stay apart because only the first means that there is no future. `current` [n, …] is
    the state to act on next: pass it to the following `collect`.
    """

    observation: Tensor
    action: Tensor
    log_prob: Tensor
    next_observation: Tensor
    env_reward: Tensor
    terminated: Tensor
    truncated: Tensor
    success: Tensor
    current: Array

    @property
    def steps(self) -> int:
        """Environment steps in total, T·n."""
        return self.env_reward.numel()


class Acting(Protocol):
    """Anything that acts on a batch of observations and knows the log-probability of what it did."""

    def act(self, observation: Tensor) -> tuple[Tensor, Tensor]: ...


@runtime_checkable
class Gaussian(Acting, Protocol):
    """A squashed Gaussian policy, which can be taken along by environments that act on their own (`PlayingEnv`)."""

    actor: TanhGaussianActor

    def noise(self, steps: int, num_envs: int) -> Tensor:
        """What is added to m(s) before squashing: [steps, environments, actions]."""
        ...

    def gain(self, num_envs: int) -> Tensor:
        """What m(s) is multiplied with before that: [environments, actions]."""
        ...


def collect(env: BatchEnv, observation: Array, policy: Acting, steps: int) -> Rollout:
    """Let `policy` act for `steps` steps in each environment, starting at `observation` (of `reset` or `Rollout.current`)."""
    if isinstance(env, PlayingEnv) and isinstance(policy, Gaussian):
        return _played(env, policy, steps)
    seen: list[list[Tensor]] = []
    for _ in range(steps):
        state = torch.from_numpy(np.ascontiguousarray(observation, dtype=np.float32))
        action, log_prob = policy.act(state)
        step = env.step(action.numpy())
        outcome = (step.next_observation, step.reward, step.terminated, step.truncated, step.success)
        seen.append([state, action, log_prob, *(torch.from_numpy(np.array(part)) for part in outcome)])
        observation = step.observation
    state, action, log_prob, reached, reward, terminated, truncated, success = map(torch.stack, zip(*seen, strict=True))
    return Rollout(state, action, log_prob, reached, reward, terminated, truncated, success, observation)


@torch.no_grad()
def _played(env: PlayingEnv, policy: Gaussian, steps: int) -> Rollout:
    actor = policy.actor
    played = env.play(network_of(actor), steps, policy.noise(steps, env.num_envs).numpy(), policy.gain(env.num_envs).numpy())
    state, action, reached, reward, terminated, truncated, success = map(torch.from_numpy, played[:-1])
    return Rollout(state, action, actor.log_prob(state, action), reached, reward, terminated, truncated, success, played.current)


def gae(reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor, gamma: float, lam: float,
        timelimit_is_terminal: bool = False) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation; all arguments [T, n]. Gives (advantage Â, return target Â + V).

        δ_t = r_t + γ (1 − terminated_t) V(s′_t) − V(s_t)
        Â_t = δ_t + γλ (1 − ended_t) Â_{t+1},   ended = terminated or truncated,   Â_T = 0

    At a time limit the state s′_t still has a value, so it is bootstrapped, but Â does not run over into the next
    episode. `timelimit_is_terminal` gives such states the value 0 instead, as the published code of the paper does.
    """
    final = terminated | truncated if timelimit_is_terminal else terminated
    delta = reward + gamma * next_value * ~final - value
    carry = gamma * lam * ~(terminated | truncated)
    advantage = torch.empty_like(delta)
    following = torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        following = delta[t] + carry[t] * following
        advantage[t] = following
    return advantage, advantage + value
