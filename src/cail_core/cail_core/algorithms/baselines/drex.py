"""D-REX (Brown et al. 2020, "Better-than-Demonstrator Imitation Learning via Automatically-Ranked Demonstrations").

The demonstrations are cloned, and the clone acts with more and more noise: less noise is better. That order, and no label of any
person, trains T-REX's reward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from cail_core.algorithms.baselines.trex import Trajectories, TrexLearner
from cail_core.algorithms.batch import Batch
from cail_core.algorithms.registry import Training, method
from cail_core.algorithms.settings import NoiseConfig, OnlineConfig, PolicyCloningConfig, RewardConfig
from cail_core.algorithms.trainers.cloning import CloningLearner
from cail_core.algorithms.trainers.trust import uniform_trust
from cail_core.config import setting
from cail_core.rl.networks import TanhGaussianActor
from cail_core.tasks.base import Task

NOISE_STREAM = 0x6E6F6973  # keeps these episodes apart from training's and evaluation's, also under the same seed


@dataclass(frozen=True)
class DrexNoiseConfig(NoiseConfig):
    """D-REX: the rollouts with growing noise, and the clone that makes them."""

    margin: float = setting(0.3, "two rollouts count as ranked when their levels differ by this", low=0.0, high=1.0)
    cloning_steps: int = setting(1000, "gradient steps of the cloned policy to which noise is added", low=1)


@dataclass(frozen=True)
class DrexConfig(OnlineConfig):
    """`config/d-rex.yaml`."""

    cloning: PolicyCloningConfig = setting(PolicyCloningConfig, "behaviour cloning")
    reward: RewardConfig = setting(RewardConfig, "the learned reward")
    noise: DrexNoiseConfig = setting(DrexNoiseConfig, "the rollouts with growing noise")


def noisy_rollouts(task: Task, actor: TanhGaussianActor, levels: int, rollouts: int, seed: int,
                   generator: torch.Generator) -> tuple[Trajectories, int]:
    """`rollouts` whole episodes at each of `levels` noise levels ε from 0 to 1, and how many environment steps they took.

    At each step the action is, with probability ε, uniformly random. The worth of a trajectory is −ε.
    """
    env = task.make_env(rollouts)
    columns: list[list[torch.Tensor]] = []
    lengths, noise, steps = [], [], 0
    try:
        for level, epsilon in enumerate(np.linspace(0.0, 1.0, levels)):
            observation = env.reset(int(np.random.SeedSequence((seed, NOISE_STREAM, level)).generate_state(1)[0]))
            seen: list[list[torch.Tensor]] = [[] for _ in range(rollouts)]
            running = np.ones(rollouts, dtype=np.bool_)
            while running.any():
                state = torch.from_numpy(np.array(observation, dtype=np.float32))
                with torch.no_grad():
                    action = actor.mode(state)
                random = torch.rand(action.shape, generator=generator) * 2 - 1
                action = torch.where(torch.rand(rollouts, 1, generator=generator) < epsilon, random, action)
                step = env.step(action.numpy())
                reached = torch.from_numpy(np.array(step.next_observation, dtype=np.float32))
                for i in np.flatnonzero(running):
                    ended = torch.tensor([float(step.terminated[i])])
                    seen[i].append(torch.cat([state[i], action[i], reached[i], ended]))
                running &= ~(step.terminated | step.truncated)
                observation = step.observation
                steps += rollouts
            columns += seen
            lengths += [len(rows) for rows in seen]
            noise += [epsilon] * rollouts
    finally:
        env.close()
    table = torch.stack([row for rows in columns for row in rows])
    n, m = task.spec.observation_dim, task.spec.action_dim
    batch = Batch(table[:, :n], table[:, n:n + m], table[:, n + m:-1], table[:, -1], torch.zeros(len(table)))
    starts = torch.tensor(np.concatenate([[0], np.cumsum(lengths)]))
    return Trajectories(batch, starts, -torch.tensor(noise, dtype=torch.float32)), steps


class DrexLearner(TrexLearner):
    """T-REX on an order that nobody had to give."""

    def _learn_reward(self) -> float:
        c = self.config.noise
        clone = CloningLearner(self.training, uniform_trust(self.training))
        while clone.done < c.cloning_steps:
            clone.iterate()
        rollouts, steps = noisy_rollouts(self._task, clone.actor, c.levels, c.rollouts, self._seed, self.generator)
        self.done += steps
        return self.learn_order(rollouts, c.margin)


@method("d-rex", DrexConfig)
def d_rex(training: Training[DrexConfig]) -> DrexLearner:
    return DrexLearner(training, uniform_trust(training))
