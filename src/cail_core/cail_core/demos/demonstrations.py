"""Demonstrations in memory, as a learner sees them: no rewards, no returns, the order of the ranked ones only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Demonstrations:
    """All state-action pairs of a dataset, episode after episode.

    `starts` has one more entry than there are episodes: episode i is rows `starts[i]:starts[i + 1]`. `rank` is 1 for
    the best ranked episode, equal ranks are ties, 0 means not ranked.
    """

    states: Floats
    actions: Floats
    next_states: Floats
    terminated: Flags
    starts: Ints
    rank: Ints
    demonstrator: list[str] = field(default_factory=list)
    robot: str = ""

    def __post_init__(self) -> None:
        n = len(self.states)
        if not (len(self.actions) == len(self.next_states) == len(self.terminated) == n == self.starts[-1]):
            raise ValueError("states, actions, next_states, terminated and starts disagree on the number of pairs")
        if len(self.rank) != len(self.starts) - 1:
            raise ValueError("rank needs one entry per episode")

    @property
    def episodes(self) -> int:
        return len(self.starts) - 1

    @property
    def episode_of_pair(self) -> Ints:
        """The episode that each state-action pair belongs to."""
        return np.repeat(np.arange(self.episodes, dtype=np.int64), np.diff(self.starts))

    @property
    def ranked(self) -> Ints:
        """The ranked episodes, best first."""
        chosen = np.flatnonzero(self.rank)
        return chosen[np.argsort(self.rank[chosen], kind="stable")]

    def rows(self, episode: int) -> slice:
        return slice(int(self.starts[episode]), int(self.starts[episode + 1]))

    @property
    def lengths(self) -> Ints:
        """Pairs in each episode."""
        return np.diff(self.starts)

    def rows_of(self, episodes: Ints) -> Ints:
        """The rows of some episodes, one episode after another."""
        return np.concatenate([np.arange(self.starts[e], self.starts[e + 1]) for e in episodes])

    def select(self, episodes: Ints) -> Demonstrations:
        """Some of the episodes, with their ranks."""
        rows = self.rows_of(episodes)
        return Demonstrations(self.states[rows], self.actions[rows], self.next_states[rows], self.terminated[rows],
                              np.cumsum([0, *self.lengths[episodes]]), self.rank[episodes],
                              [self.demonstrator[e] for e in episodes] if self.demonstrator else [], self.robot)

    def digest(self) -> str:
        """Tells whether two sets of demonstrations, ranks included, are the same to a learner."""
        made = hashlib.sha256()
        for part in (self.states, self.actions, self.starts, self.rank):
            made.update(np.ascontiguousarray(part).tobytes())
        return made.hexdigest()[:16]
