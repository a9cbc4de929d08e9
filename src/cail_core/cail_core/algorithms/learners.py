"""The loop of each kind of method, one iteration at a time: cloning from recorded data, and adversarial in an environment.

A method is a `MethodConfig`: AIRL and CAIL differ in where their confidence comes from and in nothing else.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cail_core.algorithms.absorbing import Padded, flagged, padded, standardised, steps_left, unflagged_scale, unpadded
from cail_core.algorithms.airl import Airl
from cail_core.algorithms.batch import Batch, demo_batch
from cail_core.algorithms.bc import BehaviourCloning
from cail_core.algorithms.bilevel import BilevelResult, Parameters
from cail_core.algorithms.cail import Cail, draw, draw_by, learn_confidence_before, ranked_trajectories
from cail_core.algorithms.confidence import FreeConfidence, make_confidence, sharpened, spread
from cail_core.algorithms.corrective import Corrections, displaced, mismeasured, sensor_errors
from cail_core.algorithms.gail import Gail
from cail_core.algorithms.ic_gail import IcGail
from cail_core.algorithms.inner import InnerLearner
from cail_core.algorithms.labels import pair_labels
from cail_core.algorithms.method import MethodConfig
from cail_core.algorithms.pair_confidence import joined, refined
from cail_core.algorithms.rinse import smooth_confidence
from cail_core.algorithms.selection import select
from cail_core.algorithms.two_iwil import predicted_confidence
from cail_core.algorithms.ways import of_one_way
from cail_core.demos.demonstrations import Demonstrations
from cail_core.policy import Gates
from cail_core.rl.networks import Standardise, TanhGaussianActor
from cail_core.rl.ppo import PPO
from cail_core.rl.rollout import Rollout, collect
from cail_core.tasks.base import Array, BatchEnv, Task

GIVEN = {"classifier": predicted_confidence, "smoothness": smooth_confidence}
"""Confidences that are worked out once from the demonstrations, without Eq. 7."""
CORRECTIONS_SEED = 0
"""The dynamics are learned anew by a resumed run, and must come out the same."""
CLONING_STEPS = 50  # gradient steps in one iteration of cloning
Metrics = dict[str, float]


class Learner(Protocol):
    """A method at work."""

    actor: TanhGaussianActor
    done: int

    def iterate(self) -> Metrics:
        """One iteration; adds its steps to `done`."""
        ...

    def confidence(self) -> Tensor:
        """β of every demonstration pair, mean 1, in dataset order."""
        ...

    def weight(self) -> Tensor:
        """What every demonstration pair counts for the policy, mean 1."""
        ...

    def learned_returns(self) -> list[float] | None:
        """The learned return of each ranked trajectory, best ranked first; None where fewer than two are ranked."""
        ...

    def begin_segment(self, segment: int) -> None:
        """Called at the start and after every checkpoint: what cannot be saved (environments) starts anew here."""
        ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class RewardNetwork(InnerLearner, Protocol):
    """An inner learner that also says what the policy is rewarded for."""

    state_scale: Standardise

    def policy_reward(self, theta: Parameters, batch: Batch) -> Tensor: ...


class _Weighted:
    """What both loops share: the data, the confidence and the choice between Eq. 7 and fixed weights."""

    def __init__(self, demos: Demonstrations, config: MethodConfig, generator: torch.Generator, horizon: int) -> None:
        self.config = config
        self.generator = generator
        self.done = 0
        self.data = demo_batch(demos)
        self._demos = demos
        self._last = torch.as_tensor(demos.starts[1:][demos.episode_of_pair] - 1)
        """Of each pair: the last of its episode."""
        self._judge: Cail
        """Where confidence comes before the policy: what it was learned with, a reward included."""
        self.errors = torch.empty(0, self.data.state.shape[1])
        """What the task's sensors may be wrong by, in entries of the state (`corrective.py`)."""
        self._corrections: Corrections | None = None
        self._demo_moves = torch.empty(0)
        self._agreement = torch.empty(0)
        """Of each pair with the trusted, where its confidence is to differ within a demonstration (`pair_confidence.py`)."""
        if config.confidence in ("before", "refined"):
            chosen = select(demos, config, generator, horizon)
            self._judge, _ = learn_confidence_before(demos, chosen, generator, horizon)
            self._confidence = self._judge.confidence
            if config.confidence == "before" and config.pairs.rounds and config.before.steps:
                self._agreement = refined(self._confidence.all(), demos, config.pairs, generator)
        elif config.confidence in GIVEN:
            self._confidence = FreeConfidence(demos, config.beta, GIVEN[config.confidence](demos, config, generator))
        else:
            self._confidence = make_confidence(demos, config.beta, generator)
        self._weight = self._sharpened()
        self.cail: Cail

    def confidence(self) -> Tensor:
        return self._of_pairs()

    def _of_pairs(self) -> Tensor:
        beta = self._confidence.all()
        return joined(beta, self._agreement, self.config.pairs) if len(self._agreement) else beta

    def weight(self) -> Tensor:
        return self.confidence() if self.config.confidence in ("during", "refined") else self._weight

    def _sharpened(self) -> Tensor:
        """What each pair counts where β is given."""
        trusted = (self.config.pairs.trusted if len(self._agreement) else 0.0) or self.config.trusted
        share = max(trusted, min(1.0, self.config.trusted_least / self._demos.episodes))
        weight = sharpened(self._of_pairs(), share, self.config.heaviest or math.inf)
        return of_one_way(weight, self._demos, self.config.one_way) if self.config.one_way else weight

    @torch.no_grad()
    def learned_returns(self) -> list[float] | None:
        return None if self.cail.ranked is None else self.cail.learned_returns(self.cail.theta).tolist()

    def _tie(self, inner: InnerLearner, rate: float) -> Cail:
        ranked = ranked_trajectories(self._demos, self.config) if len(self._demos.ranked) >= 2 else None
        return Cail(inner, self._confidence, ranked, self.config.outer, mu=self.config.mu, rate=rate)

    def _update(self, rows: Tensor, demo: Batch, other: Batch) -> Metrics:
        """Eq. 7 where β is learned along with the policy, its third line alone where β is given."""
        if self.config.confidence in ("during", "refined"):
            gated = self.config.gate and self.done >= self.config.gate_after
            result: BilevelResult = self.cail.step(rows, demo, other, gated=gated)
            return {"inner_loss": result.inner, "accepted": float(result.accepted)}
        return {"inner_loss": self.cail.weighted_step(self._row_weights(rows), demo, other), "accepted": 1.0}

    def _row_weights(self, rows: Tensor) -> Tensor:
        """What each pair of a batch counts in the loss."""
        return torch.ones(len(rows)) if self._drawn else self._weight[rows]

    @property
    def _drawn(self) -> bool:
        """Whether a pair's weight is how often it is drawn, rather than how much it counts in the loss."""
        return self.config.weighting == "draw" and self.config.confidence in ("before", *GIVEN)

    def _demo_rows(self, pairs: Tensor, size: int, times: int) -> list[Tensor]:
        """Places in `pairs` (each names a demonstration pair) for `times` batches."""
        if not self._drawn:
            return [draw(len(pairs), size, self.generator) for _ in range(times)]
        chances = self._weight[pairs].double().cumsum(0)
        return list(torch.split(draw_by(chances, size * times, self.generator), size))

    def _cloning_batches(self, times: int) -> Iterator[tuple[Tensor, Batch]]:
        """Demonstration pairs for `times` steps of cloning, some of them displaced where the method wants that."""
        c = self.config.cloning
        moves = self._moves()
        for rows in self._demo_rows(torch.arange(len(self.data.state)), c.batch, times):
            pairs = self.data.rows(rows)
            if c.lead:
                later = torch.randint(c.lead + 1, (len(rows),), generator=self.generator)
                pairs = pairs._replace(action=self.data.action[torch.minimum(rows + later, self._last[rows])])
            if c.corrective:
                pairs = displaced(pairs, moves[rows], c.corrective, c.back_over, self.generator)
            yield rows, mismeasured(pairs, self.errors, self.generator)

    def _moves(self) -> Tensor:
        """B(s) at every demonstration pair (`corrective.py`), learned when first asked for; nothing where it is not wanted."""
        if self.config.cloning.corrective and self._corrections is None:
            self._corrections = Corrections(self.data, torch.Generator().manual_seed(CORRECTIONS_SEED))
            self._demo_moves = self._corrections.at(self.data)
        return self._demo_moves

    def _confidence_metrics(self) -> Metrics:
        metrics = {"confidence_spread": spread(self._confidence.per_episode())}
        if self.cail.ranked is not None:
            with torch.no_grad():
                metrics["outer_loss"] = float(self.cail.outer_loss(self.cail.theta))
        return metrics

    def state(self) -> dict[str, Any]:
        state = {"cail": self.cail.state(), "done": self.done, "generator": self.generator.get_state()}
        return state | ({"agreement": self._agreement} if len(self._agreement) else {})

    def restore(self, state: dict[str, Any]) -> None:
        self.cail.restore(state["cail"])
        self._agreement = state.get("agreement", torch.empty(0))
        self._weight = self._sharpened()
        self.done = state["done"]
        self.generator.set_state(state["generator"])


class CloningLearner(_Weighted):
    """bc and cail-bc: nothing but the recorded data."""

    def __init__(self, demos: Demonstrations, config: MethodConfig, generator: torch.Generator, horizon: int) -> None:
        super().__init__(demos, config, generator, horizon)
        self.actor = TanhGaussianActor(self.data.state.shape[1], self.data.action.shape[1], generator, hidden=config.ppo.hidden)
        self.actor.standardise.set(*_scale(self.data.state))
        self.cail = self._tie(BehaviourCloning(self.actor, config.cloning.sigma), config.cloning.rate)
        self._average = self.cail.theta

    def iterate(self) -> Metrics:
        metrics: list[Metrics] = []
        for rows, demo in self._cloning_batches(CLONING_STEPS):
            metrics.append(self._update(rows, demo, demo))
            self._average = averaged(self._average, self.cail.theta, self.config.cloning.average)
        self.done += CLONING_STEPS
        self.cail.inner.load(self._average)
        return mean_of(metrics) | self._confidence_metrics()

    def begin_segment(self, segment: int) -> None:
        """Nothing runs outside."""

    def state(self) -> dict[str, Any]:
        return super().state() | {"average": self._average}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._average = dict(state["average"])
        self.cail.inner.load(self._average)

    def close(self) -> None:
        """Nothing to release."""


class OnlineLearner(_Weighted, ABC):
    """What all methods share that act while they learn: PPO on a learned reward. They differ in where the reward comes from."""

    def __init__(self, task: Task, demos: Demonstrations, config: MethodConfig, seed: int, generator: torch.Generator) -> None:
        super().__init__(demos, config, generator, task.spec.max_steps)
        self._task = task
        self._seed = seed
        self._max_steps = task.spec.max_steps
        self._demo_steps_left = steps_left(demos, self._max_steps)
        states, actions = self.data.state.shape[1], self.data.action.shape[1]
        mean, scale = _scale(self.data.state)
        self.inner = self._make_inner(states, actions)
        self.inner.state_scale.set(*unflagged_scale(self.data.state))
        self.cail = self._tie(self.inner, self._rate())
        if self.cail.ranked is not None:
            self.cail.ranked = replace(self.cail.ranked, batch=flagged(self.cail.ranked.batch))
        self.ppo = PPO(states, actions, config.ppo, generator)
        self.ppo.standardise_observations(mean, scale)
        self.actor = self.ppo.actor
        self._iterations = 0
        self._env: BatchEnv = task.make_env(config.ppo.num_envs)
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
    def _rate(self) -> float:
        """Adam's step in the reward's parameters."""

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
        if self._iterations == 0 and self.config.clone:
            self._clone()
        rollout = collect(self._env, self._observation, self.ppo, self.config.ppo.steps_per_env)
        self._observation = rollout.current
        episodes, steps_left = self._episodes(rollout)
        policy = self._pad(Batch(*(column.flatten(0, 1) for column in (
            rollout.observation, rollout.action, rollout.next_observation, rollout.terminated.float(),
            self._floor(rollout.log_prob)))), steps_left)
        metrics = self._improve(policy)
        learned = self._learned_reward(policy)
        if self.config.absorbing:
            reward = standardised(learned, policy, steps_left, self.config.ppo.gamma)
        else:  # not shifted: where episodes end, a constant pays or punishes every step that one lasts
            reward = learned / (learned.std(correction=0) + 1e-6)
        self._iterations += 1
        reward = reward.reshape(rollout.env_reward.shape)
        ppo = self.ppo.update(rollout, reward, critic_only=self._iterations <= self.config.critic_first)
        self.done += rollout.steps
        return metrics | self._confidence_metrics() | ppo | episodes | {"learned_reward": float(learned.mean())}

    def _pad(self, batch: Batch, left: Tensor) -> Padded:
        return padded(batch, left) if self.config.absorbing else unpadded(batch)

    def _clone(self) -> None:
        """Start the policy from the trusted demonstrations, so that what is left to learn online is little."""
        cloning = BehaviourCloning(self.actor, self.config.cloning.sigma)
        cail = Cail(cloning, self._confidence, None, self.config.outer, mu=0.0, rate=self.config.cloning.rate)
        average = cail.theta
        for rows, demo in self._cloning_batches(self.config.clone):
            cail.weighted_step(self._row_weights(rows), demo, demo)
            average = averaged(average, cail.theta, self.config.cloning.average)
        cloning.load(average)

    @torch.no_grad()
    def _learned_reward(self, policy: Padded) -> Tensor:
        return self.inner.policy_reward(self.cail.theta, policy.batch)

    def state(self) -> dict[str, Any]:
        return super().state() | {"ppo": self.ppo.state_dict(), "iterations": self._iterations}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.ppo.load_state_dict(state["ppo"])
        self._iterations = state["iterations"]

    def close(self) -> None:
        self._env.close()

    def _floor(self, log_prob: Tensor) -> Tensor:
        return log_prob.clamp_min(self.config.discriminator.min_log_prob)

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
    """airl, gail and the methods on them: a discriminator, improved after every rollout by Eq. 7 or Eq. 11."""

    def _make_inner(self, states: int, actions: int) -> RewardNetwork:
        c, generator = self.config.discriminator, self.generator
        if self.config.learner == "airl":
            return Airl(states + 1, actions, self.config.ppo.gamma, generator, hidden=c.hidden,
                        reward_sees_action=c.reward_sees_action)
        if self.config.learner == "ic-gail":
            return IcGail(states + 1, actions, generator, hidden=c.hidden, threshold=self.config.ic_gail.threshold,
                          labelled=self._pad(self.data, self._demo_steps_left), label=pair_labels(self._demos))
        return Gail(states + 1, actions, generator, hidden=c.hidden)

    def _rate(self) -> float:
        return self.config.discriminator.rate

    def _improve(self, policy: Padded) -> Metrics:
        with torch.no_grad():
            log_prob = self._floor(self.actor.log_prob(self.data.state, self.data.action))
        demos = self._pad(self.data._replace(log_prob=log_prob), self._demo_steps_left)
        metrics: list[Metrics] = []
        c = self.config.discriminator
        for places in self._demo_rows(demos.origin[demos.pool], c.batch, c.steps):
            rows = demos.pool[places]
            others = policy.pool[draw(len(policy.pool), c.batch, self.generator)]
            metrics.append(self._update(demos.origin[rows], demos.batch.rows(rows), policy.batch.rows(others)))
        return mean_of(metrics)


def make_learner(task: Task, demos: Demonstrations, config: MethodConfig, seed: int, *, resumed: bool = False) -> Learner:
    """The learner of a method; `task` is asked for environments only by those that act while they learn.

    `resumed`: a `restore` follows and brings the confidence with it, so it is not learned again.
    """
    learner = _made(task, demos, config, seed, resumed)
    if task.spec.gates:
        learner.actor.standardise.gates = Gates(task.spec.gates, task.spec.observation_names)
    if isinstance(learner, _Weighted):
        learner.errors = sensor_errors(task.spec, config.cloning.sensor_errors)
    return learner


def _made(task: Task, demos: Demonstrations, config: MethodConfig, seed: int, resumed: bool) -> Learner:
    from cail_core.algorithms import drex, dwbc, practice, ssrr, trex  # they build on this module

    if resumed:
        config = replace(config, before=replace(config.before, steps=0, select="none"),
                         classifier=replace(config.classifier, steps=0))
    generator = torch.Generator().manual_seed(seed)
    if config.learner == "bc":
        return CloningLearner(demos, config, generator, task.spec.max_steps)
    if config.learner == "practice":
        return practice.PracticeLearner(task, demos, config, seed, generator)
    if config.learner == "dwbc":
        return dwbc.DwbcLearner(demos, config, generator, task.spec.max_steps)
    by_ranking: dict[str, type[OnlineLearner]] = {"t-rex": trex.TrexLearner, "d-rex": drex.DrexLearner, "ssrr": ssrr.SsrrLearner}
    if config.learner in by_ranking:
        return by_ranking[config.learner](task, demos, config, seed, generator)
    return AdversarialLearner(task, demos, config, seed, generator)


def averaged(average: Parameters, theta: Parameters, keep: float) -> Parameters:
    """Cloning wanders around its optimum from step to step; the middle of where it has been is steadier."""
    if keep == 0.0:
        return theta
    return {name: torch.lerp(value, average[name], keep) for name, value in theta.items()}


def _scale(states: Tensor) -> tuple[Tensor, Tensor]:
    return states.mean(0), states.std(0).clamp_min(1e-3)


def mean_of(metrics: list[Metrics]) -> Metrics:
    return {name: float(np.mean([m[name] for m in metrics])) for name in metrics[0]}
