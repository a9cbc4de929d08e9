"""Methods that act while they learn: PPO on a learned reward, and of these the adversarial ones (AIRL, GAIL)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cail_core.algorithms.batch import Batch
from cail_core.algorithms.eq7.cail import draw
from cail_core.algorithms.eq7.gradient import Parameters
from cail_core.algorithms.eq7.optim import Adam
from cail_core.algorithms.inner.airl import Airl
from cail_core.algorithms.inner.base import InnerLearner
from cail_core.algorithms.inner.bc import BehaviourCloning
from cail_core.algorithms.inner.gail import Gail
from cail_core.algorithms.inner.weighted import WeightedInnerLearner
from cail_core.algorithms.registry import Training
from cail_core.algorithms.trainers.absorbing import Padded, flagged, padded, standardised, steps_left, unflagged_scale
from cail_core.algorithms.trainers.base import Metrics, WeightedLearner, ema, mean_of, scale_of
from cail_core.algorithms.trainers.trust import Trust
from cail_core.rl.networks import Standardise
from cail_core.rl.ppo import PPO
from cail_core.rl.rollout import Rollout, collect
from cail_core.tasks.base import Array, BatchEnv
from cail_core.tasks.variation import varied


class RewardNetwork(InnerLearner, Protocol):
    """An inner learner that also says what the policy is rewarded for."""

    state_scale: Standardise

    def policy_reward(self, theta: Parameters, batch: Batch) -> Tensor: ...


class OnlineLearner(WeightedLearner, ABC):
    """What all methods share that act while they learn: PPO on a learned reward. They differ in where the reward comes from."""

    min_log_prob = -math.inf
    """log π(a|s) as the reward sees it is no less."""

    def __init__(self, training: Training[Any], trust: Trust) -> None:
        super().__init__(training, trust)
        config = training.config
        self._task = training.task
        self._seed = training.seed
        self._max_steps = training.horizon
        self._demo_steps_left = steps_left(training.demos, self._max_steps)
        states, actions = self.data.state.shape[1], self.data.action.shape[1]
        self.inner = self._make_inner(states, actions)
        self.inner.state_scale.set(*unflagged_scale(self.data.state))
        ranked = self._ranked()
        self.inner_learner = self._tie(self.inner, self._learning_rate(),
                                       None if ranked is None else replace(ranked, batch=flagged(ranked.batch)))
        self.ppo = PPO(states, actions, config.ppo, self.generator)
        self.ppo.standardise_observations(*scale_of(self.data.state))
        self.actor = self.ppo.actor
        self._iterations = 0
        self._env: BatchEnv = varied(training.task).make_env(config.ppo.num_envs)
        self._observation: Array
        self._return = np.zeros(config.ppo.num_envs)
        self._length = np.zeros(config.ppo.num_envs, dtype=np.int64)
        self._ended: list[tuple[float, bool]] = []
        """Return and success of the episodes that have ended since these were last told."""
        self._watched_for = 0

    @abstractmethod
    def _make_inner(self, states: int, actions: int) -> RewardNetwork:
        """The networks of the reward. Their states have a last entry more: the absorbing flag."""

    @abstractmethod
    def _learning_rate(self) -> float:
        """Of the reward's parameters."""

    @abstractmethod
    def _improve(self, policy: Padded) -> Metrics:
        """Improve the reward, given what the policy just did."""

    def begin_segment(self, segment: int) -> None:
        """Environments cannot be saved; starting them anew at every checkpoint makes a resumed run the same as a whole one."""
        self._observation = self._env.reset(int(np.random.SeedSequence((self._seed, segment)).generate_state(1)[0]))
        self._return[:] = 0.0
        self._length[:] = 0
        self._ended, self._watched_for = [], 0

    def iterate(self) -> Metrics:
        """Collect with π; improve the reward; improve π on it."""
        if self._iterations == 0 and self.config.bc_warmup_steps:
            self._clone()
        rollout = collect(self._env, self._observation, self.ppo, self.config.ppo.steps_per_env)
        self._observation = rollout.current
        episodes, steps_left = self._episodes(rollout)
        policy = padded(Batch(*(column.flatten(0, 1) for column in (
            rollout.observation, rollout.action, rollout.next_observation, rollout.terminated.float(),
            self._floor(rollout.log_prob)))), steps_left)
        metrics = self._improve(policy)
        learned = self._learned_reward(policy)
        self._iterations += 1
        reward = standardised(learned, policy, steps_left, self.config.ppo.gamma).reshape(rollout.env_reward.shape)
        ppo = self.ppo.update(rollout, reward, critic_only=self._iterations <= self.config.critic_warmup_iterations)
        self.done += rollout.steps
        return metrics | self._confidence_metrics() | ppo | episodes | {"learned_reward": float(learned.mean())}

    def _clone(self) -> None:
        """Start the policy from the trusted demonstrations, so that what is left to learn online is little."""
        c = self._cloning
        cloning = BehaviourCloning(self.actor, c.sigma)
        learner = WeightedInnerLearner(cloning, Adam(c.learning_rate))
        average = learner.theta
        for rows, demo in self._cloning_batches(self.config.bc_warmup_steps):
            learner.weighted_step(self._row_weights(rows), demo, demo)
            average = ema(average, learner.theta, c.ema_decay)
        cloning.load(average)

    @torch.no_grad()
    def _learned_reward(self, policy: Padded) -> Tensor:
        return self.inner.policy_reward(self.inner_learner.theta, policy.batch)

    def state(self) -> dict[str, Any]:
        return super().state() | {"ppo": self.ppo.state_dict(), "iterations": self._iterations}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.ppo.load_state_dict(state["ppo"])
        self._iterations = state["iterations"]

    def close(self) -> None:
        self._env.close()

    def _floor(self, log_prob: Tensor) -> Tensor:
        return log_prob.clamp_min(self.min_log_prob)

    def _episodes(self, rollout: Rollout) -> tuple[Metrics, Tensor]:
        """Return and success of the episodes that ended (to watch, never to choose by), and how many steps each terminated one
        still had.

        They are told once every environment has had time for a whole episode: of long episodes those that fail end first.
        """
        steps_left = []
        terminated, ended = rollout.terminated.numpy(), (rollout.terminated | rollout.truncated).numpy()
        reward, success = rollout.env_reward.numpy(), rollout.success.numpy()
        for t in range(len(reward)):
            self._return += reward[t]
            self._length += 1
            self._ended += zip(self._return[ended[t]].tolist(), success[t][ended[t]].tolist(), strict=True)
            steps_left += (self._max_steps - self._length[terminated[t]]).clip(0).tolist()
            self._return[ended[t]] = 0.0
            self._length[ended[t]] = 0
        self._watched_for += len(reward)
        told = {"return": math.nan, "success": math.nan}
        if self._watched_for >= self._max_steps and self._ended:
            told = dict(zip(told, np.mean(self._ended, axis=0).tolist(), strict=True))
            self._ended, self._watched_for = [], 0
        return told, torch.tensor(steps_left, dtype=torch.int64)


class AdversarialLearner(OnlineLearner):
    """A discriminator, improved after every rollout by Eq. 7 or Eq. 11. Its config has a section `discriminator`."""

    def __init__(self, training: Training[Any], trust: Trust, make_inner: MakeDiscriminator, *,
                 min_log_prob: float = -math.inf) -> None:
        self._make, self.min_log_prob = make_inner, min_log_prob
        super().__init__(training, trust)

    def _make_inner(self, states: int, actions: int) -> RewardNetwork:
        return self._make(self.training, states + 1, actions)

    def _learning_rate(self) -> float:
        rate: float = self.config.discriminator.learning_rate
        return rate

    def _improve(self, policy: Padded) -> Metrics:
        with torch.no_grad():
            log_prob = self._floor(self.actor.log_prob(self.data.state, self.data.action))
        demos = padded(self.data._replace(log_prob=log_prob), self._demo_steps_left)
        metrics: list[Metrics] = []
        c = self.config.discriminator
        for places in self._demo_rows(demos.origin[demos.pool], c.batch_size, c.updates):
            rows = demos.pool[places]
            others = policy.pool[draw(len(policy.pool), c.batch_size, self.generator)]
            metrics.append(self._update(demos.origin[rows], demos.batch.rows(rows), policy.batch.rows(others)))
        return mean_of(metrics)


MakeDiscriminator = Callable[[Training[Any], int, int], RewardNetwork]
"""Makes a discriminator for so many entries of a state, the absorbing flag included, and of an action."""


def airl_learner(training: Training[Any], trust: Trust) -> AdversarialLearner:
    """AIRL on weighted demonstrations."""
    return AdversarialLearner(training, trust, _airl, min_log_prob=training.config.discriminator.min_log_prob)


def gail_learner(training: Training[Any], trust: Trust) -> AdversarialLearner:
    """GAIL on weighted demonstrations."""
    return AdversarialLearner(training, trust, _gail)


def _airl(training: Training[Any], states: int, actions: int) -> RewardNetwork:
    c = training.config.discriminator
    return Airl(states, actions, training.config.ppo.gamma, training.generator, hidden=c.hidden,
                reward_sees_action=c.reward_sees_action)


def _gail(training: Training[Any], states: int, actions: int) -> RewardNetwork:
    return Gail(states, actions, training.generator, hidden=training.config.discriminator.hidden)
