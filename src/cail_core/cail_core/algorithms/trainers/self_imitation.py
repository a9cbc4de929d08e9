"""Self-imitation: a cloned policy acts, and what it does well it clones too (`cail-hybrid`).

The policy's own episodes are demonstrations of varying optimality like any others, and the reward that was learned together with
the confidence judges them: an episode whose learned return, waiting where it ended included, comes up to that of the trusted
demonstrations is cloned along with these, the others are forgotten. The noise with which the policy plays takes it to places
where nobody has demonstrated anything; that it came well out of them shows how. Nothing looks at true rewards or successes.

Where episodes can be begun again, several attempts are made at each start: otherwise the starts that are easy already would be
cloned most, and those that fail never.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cail_core.algorithms.batch import Batch, demo_batch
from cail_core.algorithms.eq7.cail import Cail, draw_by
from cail_core.algorithms.eq7.outer import RankedTrajectories
from cail_core.algorithms.registry import Training
from cail_core.algorithms.settings import OuterConfig
from cail_core.algorithms.trainers.base import Metrics, ema, mean_of
from cail_core.algorithms.trainers.cloning import CloningLearner
from cail_core.algorithms.trainers.corrective import displaced, mismeasured
from cail_core.algorithms.trainers.trust import Trust
from cail_core.config import setting
from cail_core.demos.demonstrations import Demonstrations, Ints
from cail_core.errors import BadInput
from cail_core.policy import ACTION_BOUND
from cail_core.rl.networks import TanhGaussianActor
from cail_core.rl.rollout import Rollout, collect
from cail_core.tasks.base import Array, BatchEnv, Practised, RepeatingEnv
from cail_core.tasks.variation import Paced

SHORTEST, LONGEST = 0.75, 1.5
"""Times the usual length of the trusted demonstrations. What takes longer waits near the goal, which looks good; what ends sooner
came to a bad end on a good way."""
TRIES = 3
"""So often a start is tried again at which no attempt was accepted."""
UNKNOWN = {"return": math.nan, "success": math.nan}


@dataclass
class Noisy:
    """The policy with what it practises with, drawn beforehand: noise [steps, environments, actions] and gains [environments,
    actions]."""

    actor: TanhGaussianActor
    drawn: Tensor
    gains: Tensor
    _step: int = 0

    @torch.no_grad()
    def act(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        wish = self.gains * self.actor.gaussian(observation)[0] + self.drawn[self._step]
        action = torch.tanh(wish).clamp(-ACTION_BOUND, ACTION_BOUND)
        self._step += 1
        return action, self.actor.log_prob(observation, action)

    def noise(self, steps: int, num_envs: int) -> Tensor:
        return self.drawn

    def gain(self, num_envs: int) -> Tensor:
        return self.gains


@dataclass(frozen=True)
class SelfImitationConfig:
    """Cloning one's own good episodes."""

    RENAMED: ClassVar[dict[str, str]] = {
        "noise": "noise_std", "spread": "per_env_noise", "gains": "action_gain_std", "of_better": "accept_top_fraction",
        "standard": "accept_quantile", "rounds_kept": "replay_rounds", "share_kept": "replay_fraction",
        "own_share": "self_batch_fraction"}

    num_envs: int = setting(16, "environments", low=1)
    steps_per_env: int = setting(450, "steps in each of them, in a round", low=1)
    attempts: int = setting(1, "environments in a row that begin the same episodes, each with its own noise and gains: starts "
                               "then count alike, and where no attempt is accepted it is tried again", low=1)
    noise_std: float = setting(0.1, "std of the noise on actions, before squashing", low=1e-3)
    per_env_noise: bool = setting(False, "noise grows over the environments, from none to twice `noise_std`: the policy that is "
                                         "handed out acts without any")
    action_gain_std: float = setting(0.0, "std of the log action gain per axis, drawn once per environment and round. Explores "
                                          "without jitter", low=0.0, high=1.0)
    accept: str = setting("top_group", "which own episodes are cloned, by their learned return. top_group: the better of the two "
                                       "groups that a round's returns fall into; demo_quantile: those that reach the trusted "
                                       "demonstrations", choices=("top_group", "demo_quantile"))
    accept_top_fraction: float = setting(0.75, "top_group: the upper fraction of that group; the rest are slow or only look as "
                                               "if they belonged to it", low=0.01, high=1.0)
    accept_quantile: float = setting(0.3, "demo_quantile: the quantile of the trusted demonstrations, by weight, to reach",
                                     low=0.0, high=1.0)
    cloning_steps: int = setting(500, "gradient steps after each round", low=1)
    replay_rounds: int = setting(8, "accepted episodes of this many last rounds are cloned", low=1)
    replay_fraction: float = setting(0.0, "or of this last fraction of all rounds, if that is more: the longer it lasts, the "
                                          "less a single round can change", low=0.0, high=1.0)
    self_batch_fraction: float = setting(0.5, "of each batch, once there are accepted episodes", low=0.0, high=1.0)


class SelfImitationLearner(CloningLearner):
    """First `bc_warmup_steps` of cloning, then rounds: act, judge, clone. Its steps are those in the environment.

    Its config has the sections `cloning` and `self_imitation`, and its trust a reward model, which judges the episodes.
    """

    def __init__(self, training: Training[Any], trust: Trust) -> None:
        super().__init__(training, trust)
        if trust.reward_model is None:
            raise ValueError("self-imitation needs the reward that is learned with the confidence: expected offline_trust")
        task, demos = training.task, training.demos
        c: SelfImitationConfig = training.config.self_imitation
        if self.actor.log_std is not None:
            self.actor.log_std.data.fill_(math.log(c.noise_std))
        self._seed, self._horizon = training.seed, training.horizon
        self._reward_model = trust.reward_model
        shown = learned_returns(self._reward_model, demos, trust.outer, self._horizon)
        self._threshold = weighted_quantile(shown, torch.as_tensor(demos.starts), trust.fixed_weight, c.accept_quantile)
        self._median_length = median_length(demos, trust.fixed_weight)
        self._self_buffer: list[tuple[Batch, Tensor, Tensor]] = []
        """The accepted pairs of the last rounds, B there, and what each counts."""
        self._rounds = 0
        played = task.stricter() if isinstance(task, Practised) else task
        self._pace = played.pace_of if isinstance(played, Paced) else lambda seed: 1.0
        self._env: BatchEnv = played.make_env(c.num_envs)
        if c.attempts > 1 and not isinstance(self._env, RepeatingEnv):
            self._env.close()
            raise BadInput(f"expected self_imitation.attempts: 1, given {c.attempts}: the task '{task.spec.name}' cannot begin "
                           "an episode twice")
        self._observation: Array
        self._open: list[list[tuple[Array, ...]]]
        self._missed: dict[int, int] = {}
        """Starts at which no attempt was accepted, and how often that was so."""
        self._watched = UNKNOWN
        """True return and success of the last round's episodes: to look at, never to choose by."""

    def begin_segment(self, segment: int) -> None:
        self._observation = self._env.reset(int(np.random.SeedSequence((self._seed, segment)).generate_state(1)[0]))
        self._open = [[] for _ in range(self._env.num_envs)]

    def iterate(self) -> Metrics:
        c = self.config.self_imitation
        if self.done == 0:
            self._clone(self.config.bc_warmup_steps)
        noise = noise_stds(c.noise_std, self._env.num_envs, c.per_env_noise)[:, None] * torch.randn(
            (c.steps_per_env, self._env.num_envs, self.actor.action_dim), generator=self.generator)
        gains = drawn_gains(c.action_gain_std, self._env.num_envs, self.actor.action_dim, self.generator)
        agenda = self._begin_alike()
        rollout = collect(self._env, self._observation, Noisy(self.actor, noise, gains), c.steps_per_env)
        self._observation = rollout.current
        self.done += rollout.steps
        episodes, begun = self._ended(rollout)
        share = 0.0
        if episodes is not None:
            starts = np.array([agenda[i][k] for i, k in begun] if agenda else range(len(begun)))
            judged = at_pace(episodes, [self._pace(start) for start in starts.tolist()]) if agenda else episodes
            returns = learned_returns(self._reward_model, judged, self.trust.outer, self._horizon)
            good = (top_group(returns, c.accept_top_fraction) if c.accept == "top_group" else returns >= self._threshold).numpy()
            good &= about(self._median_length, np.diff(judged.starts))
            if agenda:
                self._missed = missed(self._missed, starts, good, c.attempts)
            share = float(good.mean())
            if good.any():
                taken = episodes.select(np.flatnonzero(good))
                pairs = demo_batch(taken)
                moves = torch.empty(0) if self._corrections is None else self._corrections.at(pairs)
                self._self_buffer.append((pairs, moves, start_weights(taken, starts[good])))
        self._rounds += 1
        self._self_buffer = self._self_buffer[-max(c.replay_rounds, math.ceil(c.replay_fraction * self._rounds)) :]
        return self._clone(c.cloning_steps) | self._confidence_metrics() | self._watched | {"accepted_episodes": share}

    def _begin_alike(self) -> list[list[int]]:
        """Where episodes can be begun again: begin this round's, `attempts` environments in a row alike, every second time at a
        start that was missed before. The starts of each environment; none where every episode is another."""
        c, env = self.config.self_imitation, self._env
        if c.attempts == 1 or not isinstance(env, RepeatingEnv):
            return []
        groups = -(-env.num_envs // c.attempts)
        starts = torch.randint(2**31, (c.steps_per_env, groups), generator=self.generator).numpy()  # more than can be ended
        again = np.array(list(self._missed), np.int64)[: starts[1::2].size]
        starts[1::2].flat[: len(again)] = again
        agenda = [starts[:, i // c.attempts].tolist() for i in range(env.num_envs)]
        self._observation = env.begin(agenda)
        self._open = [[] for _ in range(env.num_envs)]
        return agenda

    def _clone(self, times: int) -> Metrics:
        """Cloning, with the policy's own accepted episodes for a share of each batch once there are any."""
        c, fraction = self.config.cloning, self.config.self_imitation.self_batch_fraction
        size = round(fraction * c.batch_size) if self._self_buffer else 0
        if size:
            own = Batch(*(torch.cat(columns) for columns in zip(*(pairs for pairs, _, _ in self._self_buffer), strict=True)))
            moves = torch.cat([moves for _, moves, _ in self._self_buffer])
            cum_weights = torch.cat([weights for _, _, weights in self._self_buffer]).double().cumsum(0)
        metrics = []
        for rows, demo in self._cloning_batches(times):
            weight = self._row_weights(rows)
            if size:
                drawn = draw_by(cum_weights, size, self.generator)
                pairs = own.rows(drawn)
                if c.corrective_noise_steps:
                    pairs = displaced(pairs, moves[drawn], c.corrective_noise_steps, c.corrective_horizon, self.generator)
                pairs = mismeasured(pairs, self.errors, self.generator)
                demo = Batch(*(torch.cat([a[size:], b]) for a, b in zip(demo, pairs, strict=True)))
                weight = torch.cat([weight[size:], weight[size:].mean().expand(size)])
            metrics.append({"inner_loss": self.inner_learner.weighted_step(weight, demo, demo), "accepted": 1.0})
            self._average = ema(self._average, self.inner_learner.theta, c.ema_decay)
        self.inner_learner.inner.load(self._average)
        return mean_of(metrics)

    def _ended(self, rollout: Rollout) -> tuple[Demonstrations | None, list[tuple[int, int]]]:
        """The episodes that ended in this stretch, whole ones only; of each its environment, and its place among those there."""
        r = rollout
        columns = [part.numpy() for part in (r.observation, r.action, r.next_observation, r.terminated, r.env_reward, r.success)]
        ended = (r.terminated | r.truncated).numpy()
        done: list[list[tuple[Array, ...]]] = []
        begun: list[tuple[int, int]] = []
        for i, steps in enumerate(self._open):
            before = len(done)
            for t in range(len(ended)):
                steps.append(tuple(column[t, i] for column in columns))
                if ended[t, i]:
                    done.append(list(steps))
                    begun.append((i, len(done) - 1 - before))
                    steps.clear()
        self._watched = {"return": float(np.mean([sum(float(step[4]) for step in episode) for episode in done])),
                         "success": float(np.mean([bool(episode[-1][5]) for episode in done]))} if done else UNKNOWN
        if not done:
            return None, []
        states, actions, after, terminated, *_ = zip(*(step for episode in done for step in episode), strict=True)
        starts = np.cumsum([0, *map(len, done)])
        return Demonstrations(np.array(states, np.float32), np.array(actions, np.float32), np.array(after, np.float32),
                              np.array(terminated, bool), starts, np.zeros(len(done), np.int64)), begun

    def state(self) -> dict[str, Any]:
        return super().state() | {"reward_model": self._reward_model.theta, "threshold": self._threshold,
                                  "rounds": self._rounds, "missed": self._missed, "median_length": self._median_length,
                                  "self_buffer": [[*pairs, moves, weights] for pairs, moves, weights in self._self_buffer]}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._reward_model.theta, self._threshold = dict(state["reward_model"]), state["threshold"]
        self._jacobians()
        self._rounds, self._missed, self._median_length = state["rounds"], state["missed"], state["median_length"]
        self._self_buffer = [(Batch(*columns[:-2]), columns[-2], columns[-1]) for columns in state["self_buffer"]]

    def close(self) -> None:
        self._env.close()


def noise_stds(noise: float, num_envs: int, per_env: bool) -> Tensor:
    """σ in each environment: everywhere the same, or evenly from none to twice as much."""
    return torch.linspace(0.0, 2.0 * noise, num_envs) if per_env and num_envs > 1 else torch.full((num_envs,), noise)


def drawn_gains(std: float, num_envs: int, actions: int, generator: torch.Generator) -> Tensor:
    """Factors of the policy's axes in each environment, in pairs of one and its inverse: only what is chosen makes them drift."""
    half = std * torch.randn(((num_envs + 1) // 2, actions), generator=generator)
    return torch.exp(torch.stack([half, -half], dim=1).flatten(0, 1)[:num_envs])


def missed(before: dict[int, int], starts: Ints, good: NDArray[np.bool_], attempts: int) -> dict[int, int]:
    """The starts to try again: those with no good attempt out of a whole set, at most `TRIES` times, the latest last."""
    now = dict(before)
    for start in dict.fromkeys(starts.tolist()):
        there = starts == start
        if good[there].any():
            now.pop(start, None)
        elif there.sum() == attempts:
            times = now.pop(start, 0) + 1
            if times <= TRIES:
                now[start] = times
    return now


def start_weights(episodes: Demonstrations, starts: Ints) -> Tensor:
    """What each pair counts, such that all starts count alike, however many attempts at them were accepted."""
    _, place, accepted = np.unique(starts, return_inverse=True, return_counts=True)
    return torch.from_numpy(np.repeat(1.0 / accepted[place], np.diff(episodes.starts)).astype(np.float32))


def at_pace(episodes: Demonstrations, paces: Sequence[float]) -> Demonstrations:
    """The episodes as they would have been at the trained pace: one that took twice as many steps is judged by every second."""
    rows, lengths = [], []
    for (begin, end), pace in zip(pairwise(episodes.starts.tolist()), paces, strict=True):
        count = max(1, round((end - begin) / pace))
        rows.append(np.minimum(end - 1, np.round(np.linspace(begin, end - 1, count)).astype(np.int64)))
        lengths.append(count)
    kept = np.concatenate(rows)
    return replace(episodes, states=episodes.states[kept], actions=episodes.actions[kept], next_states=episodes.next_states[kept],
                   terminated=episodes.terminated[kept], starts=np.cumsum([0, *lengths]))


@torch.no_grad()
def learned_returns(model: Cail, episodes: Demonstrations, outer: OuterConfig, horizon: int) -> Tensor:
    """η' of every episode, as the outer loss sees those that are ranked: waiting until the time limit included."""
    trajectories = RankedTrajectories.of(episodes, np.arange(episodes.episodes), outer.gamma, outer.returns, horizon=horizon)
    return trajectories.returns(model.inner.reward(model.theta, trajectories.batch))


def weighted_quantile(returns: Tensor, starts: Tensor, weight: Tensor, quantile: float) -> float:
    """The quantile of the demonstrations' learned returns, each of them counting with the weight of its pairs."""
    by_episode = torch.stack([weight[a:b].sum() for a, b in pairwise(starts.tolist())])
    order = torch.argsort(returns)
    reached = torch.cumsum(by_episode[order], 0) / by_episode.sum()
    return float(returns[order][int(torch.searchsorted(reached, torch.tensor(quantile)).clamp_max(len(order) - 1))])


def median_length(demos: Demonstrations, weight: Tensor) -> int:
    """Steps of the trusted demonstrations: half of the weight is on those that are no longer."""
    length = np.diff(demos.starts)
    by_episode = np.add.reduceat(weight.numpy(), demos.starts[:-1])
    order = np.argsort(length)
    half = np.searchsorted(by_episode[order].cumsum(), by_episode.sum() / 2)
    return int(length[order][half])


def about(median: int, lengths: Ints) -> NDArray[np.bool_]:
    """Which episodes take about as long as the trusted demonstrations."""
    return (lengths >= SHORTEST * median) & (lengths <= LONGEST * median)


def top_group(returns: Tensor, fraction: float) -> Tensor:
    """The upper `fraction` of the better group, where `returns` fall apart into two.

    The groups are those whose means explain most of the variance (Otsu), outliers drawn in to the outer tenths. The rest of the
    better group are the slow ones, and those that only look as if they belonged to it.
    """
    low, high = torch.quantile(returns, torch.tensor([0.1, 0.9])).tolist()
    ordered = returns.clamp(low, high).sort(descending=True).values.double()
    n, total = torch.arange(1, len(ordered)), ordered.cumsum(0)
    between = n * (len(ordered) - n) * (total[:-1] / n - (total[-1] - total[:-1]) / (len(ordered) - n)).square()
    size = int(between.argmax()) + 1 if len(ordered) > 1 else 1
    chosen = torch.zeros(len(returns), dtype=torch.bool)
    chosen[returns.argsort(descending=True)[: math.ceil(fraction * size)]] = True
    return chosen
