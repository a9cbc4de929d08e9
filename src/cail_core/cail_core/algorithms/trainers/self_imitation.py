"""Practice: a cloned policy plays, and what it does well it clones too (`cail-hybrid`).

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
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cail_core.algorithms.batch import Batch, demo_batch
from cail_core.algorithms.eq7.cail import Cail, draw_by
from cail_core.algorithms.eq7.outer import RankedTrajectories
from cail_core.algorithms.method import MethodConfig
from cail_core.algorithms.trainers.corrective import displaced, mismeasured
from cail_core.algorithms.trainers.learners import CloningLearner, Metrics, averaged, mean_of
from cail_core.demos.demonstrations import Demonstrations, Ints
from cail_core.errors import BadInput
from cail_core.policy import ACTION_BOUND
from cail_core.rl.networks import TanhGaussianActor
from cail_core.rl.rollout import Rollout, collect
from cail_core.tasks.base import Array, BatchEnv, Practised, RepeatingEnv, Task
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


class PracticeLearner(CloningLearner):
    """First `clone` steps of cloning, then rounds: play, judge, clone. Its steps are those in the environment."""

    def __init__(self, task: Task, demos: Demonstrations, config: MethodConfig, seed: int, generator: torch.Generator) -> None:
        if config.confidence != "before":
            raise BadInput(f"practice is judged by what was learned with the confidence: expected confidence: before, given "
                           f"{config.confidence}")
        super().__init__(demos, config, generator, task.spec.max_steps)
        c = config.practice
        if self.actor.log_std is not None:
            self.actor.log_std.data.fill_(math.log(c.noise))
        self._seed, self._horizon = seed, task.spec.max_steps
        shown = learned_returns(self._judge, demos, config, self._horizon)
        self._standard = accepted_from(shown, torch.as_tensor(demos.starts), self._weight, c.standard)
        self._usual = usual_length(demos, self._weight)
        self._own: list[tuple[Batch, Tensor, Tensor]] = []
        """The accepted pairs of the last rounds, B there, and what each counts."""
        self._rounds = 0
        played = task.stricter() if isinstance(task, Practised) else task
        self._pace = played.pace_of if isinstance(played, Paced) else lambda seed: 1.0
        self._env: BatchEnv = played.make_env(c.num_envs)
        if c.attempts > 1 and not isinstance(self._env, RepeatingEnv):
            self._env.close()
            raise BadInput(f"expected practice.attempts: 1, given {c.attempts}: the task '{task.spec.name}' cannot begin an "
                           "episode twice")
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
        c = self.config.practice
        if self.done == 0:
            self._clone(self.config.clone)
        noise = deviations(c.noise, self._env.num_envs, c.spread)[:, None] * torch.randn(
            (c.steps_per_env, self._env.num_envs, self.actor.action_dim), generator=self.generator)
        gains = drawn_gains(c.gains, self._env.num_envs, self.actor.action_dim, self.generator)
        agenda = self._begin_alike()
        rollout = collect(self._env, self._observation, Noisy(self.actor, noise, gains), c.steps_per_env)
        self._observation = rollout.current
        self.done += rollout.steps
        episodes, begun = self._ended(rollout)
        share = 0.0
        if episodes is not None:
            starts = np.array([agenda[i][k] for i, k in begun] if agenda else range(len(begun)))
            judged = at_pace(episodes, [self._pace(start) for start in starts.tolist()]) if agenda else episodes
            returns = learned_returns(self._judge, judged, self.config, self._horizon)
            good = (better(returns, c.of_better) if c.accept == "better" else returns >= self._standard).numpy()
            good &= about(self._usual, np.diff(judged.starts))
            if agenda:
                self._missed = missed(self._missed, starts, good, c.attempts)
            share = float(good.mean())
            if good.any():
                taken = only(episodes, np.flatnonzero(good))
                pairs = demo_batch(taken)
                moves = torch.empty(0) if self._corrections is None else self._corrections.at(pairs)
                self._own.append((pairs, moves, start_weights(taken, starts[good])))
        self._rounds += 1
        self._own = self._own[-max(c.rounds_kept, math.ceil(c.share_kept * self._rounds)) :]
        return self._clone(c.cloning_steps) | self._confidence_metrics() | self._watched | {"accepted_episodes": share}

    def _begin_alike(self) -> list[list[int]]:
        """Where episodes can be begun again: begin this round's, `attempts` environments in a row alike, every second time at a
        start that was missed before. The starts of each environment; none where every episode is another."""
        c, env = self.config.practice, self._env
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
        c, practice = self.config.cloning, self.config.practice
        size = round(practice.own_share * c.batch) if self._own else 0
        if size:
            own = Batch(*(torch.cat(columns) for columns in zip(*(pairs for pairs, _, _ in self._own), strict=True)))
            moves = torch.cat([moves for _, moves, _ in self._own])
            chances = torch.cat([weights for _, _, weights in self._own]).double().cumsum(0)
        metrics = []
        for rows, demo in self._cloning_batches(times):
            weight = self._row_weights(rows)
            if size:
                drawn = draw_by(chances, size, self.generator)
                pairs = own.rows(drawn)
                if c.corrective:
                    pairs = displaced(pairs, moves[drawn], c.corrective, c.back_over, self.generator)
                pairs = mismeasured(pairs, self.errors, self.generator)
                demo = Batch(*(torch.cat([a[size:], b]) for a, b in zip(demo, pairs, strict=True)))
                weight = torch.cat([weight[size:], weight[size:].mean().expand(size)])
            metrics.append({"inner_loss": self.cail.weighted_step(weight, demo, demo), "accepted": 1.0})
            self._average = averaged(self._average, self.cail.theta, c.average)
        self.cail.inner.load(self._average)
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
        return super().state() | {"judge": self._judge.theta, "standard": self._standard, "rounds": self._rounds,
                                  "missed": self._missed, "usual": self._usual,
                                  "own": [[*pairs, moves, weights] for pairs, moves, weights in self._own]}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._judge.theta, self._standard = dict(state["judge"]), state["standard"]
        self._moves()
        self._rounds, self._missed, self._usual = state["rounds"], state["missed"], state["usual"]
        self._own = [(Batch(*columns[:-2]), columns[-2], columns[-1]) for columns in state["own"]]

    def close(self) -> None:
        self._env.close()


def deviations(noise: float, num_envs: int, spread: bool) -> Tensor:
    """σ in each environment: everywhere the same, or evenly from none to twice as much."""
    return torch.linspace(0.0, 2.0 * noise, num_envs) if spread and num_envs > 1 else torch.full((num_envs,), noise)


def drawn_gains(deviation: float, num_envs: int, actions: int, generator: torch.Generator) -> Tensor:
    """Factors of the policy's axes in each environment, in pairs of one and its inverse: only what is chosen makes them drift."""
    half = deviation * torch.randn(((num_envs + 1) // 2, actions), generator=generator)
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


def only(demos: Demonstrations, episodes: Any) -> Demonstrations:
    """Some of the episodes."""
    rows = np.concatenate([np.arange(demos.starts[e], demos.starts[e + 1]) for e in episodes])
    starts = np.cumsum([0, *np.diff(demos.starts)[episodes]])
    return Demonstrations(demos.states[rows], demos.actions[rows], demos.next_states[rows], demos.terminated[rows], starts,
                          np.zeros(len(episodes), np.int64))


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
def learned_returns(judge: Cail, episodes: Demonstrations, config: MethodConfig, horizon: int) -> Tensor:
    """η' of every episode, as the outer loss sees those that are ranked: waiting until the time limit included."""
    every = np.arange(episodes.episodes)
    trajectories = RankedTrajectories.of(episodes, every, config.ppo.gamma, config.outer.returns,
                                         horizon=horizon if config.absorbing else 0)
    batch = trajectories.batch
    if not config.absorbing:
        batch = batch._replace(state=torch.cat([batch.state, torch.zeros(len(batch.state), 1)], dim=1))
    return trajectories.returns(judge.inner.reward(judge.theta, batch))


def accepted_from(returns: Tensor, starts: Tensor, weight: Tensor, standard: float) -> float:
    """The learned return that all but the share `standard` of the trusted weight comes up to."""
    by_episode = torch.stack([weight[a:b].sum() for a, b in pairwise(starts.tolist())])
    order = torch.argsort(returns)
    reached = torch.cumsum(by_episode[order], 0) / by_episode.sum()
    return float(returns[order][int(torch.searchsorted(reached, torch.tensor(standard)).clamp_max(len(order) - 1))])


def usual_length(demos: Demonstrations, weight: Tensor) -> int:
    """Steps of the trusted demonstrations: half of the weight is on those that are no longer."""
    length = np.diff(demos.starts)
    by_episode = np.add.reduceat(weight.numpy(), demos.starts[:-1])
    order = np.argsort(length)
    half = np.searchsorted(by_episode[order].cumsum(), by_episode.sum() / 2)
    return int(length[order][half])


def about(usual: int, lengths: Ints) -> NDArray[np.bool_]:
    """Which episodes take about as long as usual."""
    return (lengths >= SHORTEST * usual) & (lengths <= LONGEST * usual)


def better(returns: Tensor, share: float) -> Tensor:
    """The upper `share` of the better group, where `returns` fall apart into two.

    The groups are those whose means explain most of the variance (Otsu), outliers drawn in to the outer tenths. The rest of the
    better group are the slow ones, and those that only look as if they belonged to it.
    """
    low, high = torch.quantile(returns, torch.tensor([0.1, 0.9])).tolist()
    ordered = returns.clamp(low, high).sort(descending=True).values.double()
    n, total = torch.arange(1, len(ordered)), ordered.cumsum(0)
    between = n * (len(ordered) - n) * (total[:-1] / n - (total[-1] - total[:-1]) / (len(ordered) - n)).square()
    size = int(between.argmax()) + 1 if len(ordered) > 1 else 1
    chosen = torch.zeros(len(returns), dtype=torch.bool)
    chosen[returns.argsort(descending=True)[: math.ceil(share * size)]] = True
    return chosen
