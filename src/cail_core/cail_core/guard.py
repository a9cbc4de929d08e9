"""Where a policy may be trusted: near states that trusted demonstrations have been in.

The guard keeps reference states, drawn from the demonstrations by their confidence. The distance of a state x is

    d(x) = min_r  sqrt( mean_j ((x_j - r_j) / scale_j)² )

with scale_j the spread of the trusted states in entry j: 1 is one spread away from the nearest reference in every entry. The
thresholds come from the demonstrations themselves: the distances of trusted states to the references of all *other* episodes.
Beyond `slow_at` a policy moves slower, beyond `stop_at` it stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cail_core.errors import BadInput, listed
from cail_core.tasks.base import Array

REFERENCES, PROBES = 1024, 2000
"""States kept, and states whose distances give the thresholds."""
QUANTILE, SLOW_FACTOR, STOP_FACTOR = 0.99, 1.0, 1.5
"""`slow_at` and `stop_at` are these factors of the distance that this share of the trusted states does not exceed."""
LEAST_SHARE = 0.25
"""Of the speed just before `stop_at`."""
FLOOR = 0.1
"""A spread counts as at least this share of the mean one: an entry that hardly varied must not decide alone."""
MOST_NUMBERS = 2**22


class Guard:
    """Reference states [n, d], the spread of each entry, the mean state in which trusted episodes began, and the thresholds."""

    def __init__(self, states: Array, scale: Array, start: Array, slow_at: float, stop_at: float) -> None:
        self.states, self.scale, self.start = states, scale, start
        self.slow_at, self.stop_at = slow_at, stop_at
        self._rows = (states / scale).astype(np.float32)
        self._squares = (self._rows**2).sum(axis=1)

    @classmethod
    def fit(cls, states: Array, weight: NDArray[Any], episode: NDArray[Any], seed: int = 0) -> Guard:
        """From all demonstrated states, the confidence in each and the episode it is from."""
        rng, trust = np.random.default_rng(seed), np.maximum(np.asarray(weight, dtype=np.float64), 0.0)
        if not np.isfinite(trust).all() or trust.sum() <= 0:
            trust = np.ones(len(states))
        share = trust / trust.sum()
        spread = np.sqrt(share @ (states - share @ states) ** 2)
        scale = np.maximum(spread, FLOOR * max(float(np.sqrt((spread**2).mean())), 1e-6)).astype(np.float32)
        chosen = rng.choice(len(states), min(REFERENCES, int(np.count_nonzero(share))), replace=False, p=share)
        first = np.flatnonzero(np.diff(episode, prepend=-1))
        first_trust = np.bincount(episode, weights=trust)[episode[first]] + 1e-12
        start = (first_trust / first_trust.sum()) @ states[first]
        unscaled = cls(states[chosen].astype(np.float32), scale, start.astype(np.float32), np.inf, np.inf)
        probes = rng.choice(len(states), min(PROBES, len(states)), p=share)
        usual = float(np.quantile(unscaled._apart(states[probes], episode[probes], episode[chosen]), QUANTILE))
        usual = max(usual, 1e-3)
        return cls(unscaled.states, scale, unscaled.start, SLOW_FACTOR * usual, STOP_FACTOR * usual)

    def _squared(self, state: NDArray[Any]) -> NDArray[np.float32]:
        """Of each of n states to each reference: |x|² − 2 x·r + |r|²."""
        x = (np.asarray(state) / self.scale).astype(np.float32)
        found: NDArray[np.float32] = (x**2).sum(axis=-1)[..., None] - 2.0 * (x @ self._rows.T) + self._squares
        return np.maximum(found, 0.0)

    def distance(self, state: NDArray[Any]) -> float:
        """Of one state [d]."""
        return float(np.sqrt(self._squared(state).min() / len(self.scale)))

    def distances(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """Of many states [n, d]."""
        step = max(1, MOST_NUMBERS // len(self.states))
        nearest = [self._squared(states[i : i + step]).min(axis=1) for i in range(0, len(states), step)]
        found: NDArray[np.float64] = np.sqrt(np.concatenate(nearest, dtype=np.float64) / len(self.scale))
        return found

    def _apart(self, states: NDArray[Any], episode: NDArray[Any], of_reference: NDArray[Any]) -> NDArray[np.float64]:
        """Distances to the references of other episodes; where one episode gave them all, to all but the state itself."""
        squared = self._squared(states)
        own = episode[:, None] == of_reference[None, :]
        if own.all():
            own = squared < 1e-6
        squared[own] = np.inf
        nearest = squared.min(axis=1)
        found: NDArray[np.float64] = np.sqrt(nearest[np.isfinite(nearest)] / len(self.scale), dtype=np.float64)
        return found

    def speed(self, distance: float) -> float:
        """The share of its speed that a policy keeps at this distance: 1, then less, then 0."""
        if distance <= self.slow_at:
            return 1.0
        if not distance < self.stop_at:  # also a NaN
            return 0.0
        return 1.0 - (1.0 - LEAST_SHARE) * (distance - self.slow_at) / (self.stop_at - self.slow_at)

    # How it is kept.

    def arrays(self) -> dict[str, Array]:
        return {"states": self.states, "scale": self.scale, "start": self.start}

    def thresholds(self) -> dict[str, float]:
        return {"slow_at": self.slow_at, "stop_at": self.stop_at}

    def text(self) -> str:
        """For the card."""
        return (
            f"## Where it may be trusted\n\n`cail deploy` slows it down when the state is more than {self.slow_at:.3g} away from"
            f" the nearest of {len(self.states)} states of the demonstrations, drawn by confidence, and stops it beyond"
            f" {self.stop_at:.3g}. Distances are counted in spreads of the trusted states; {QUANTILE:.0%} of these are at most"
            f" {self.slow_at / SLOW_FACTOR:.3g} from those of other episodes.\n"
        )


def read_guard(where: str, arrays: Mapping[str, NDArray[Any]], thresholds: Mapping[str, Any], entries: int) -> Guard:
    """A guard from its file and the card's thresholds; BadInput lists what is wrong."""
    faults = []
    shapes = {"states": (None, entries), "scale": (entries,), "start": (entries,)}
    for name, shape in shapes.items():
        if name not in arrays:
            faults.append(f"{name} is missing")
        elif arrays[name].ndim != len(shape) or arrays[name].shape[-1] != entries or not np.isfinite(arrays[name]).all():
            faults.append(f"{name}: expected finite numbers, {entries} a row, given the shape {arrays[name].shape}")
    if "scale" in arrays and not (arrays["scale"] > 0).all():
        faults.append("scale: expected numbers above 0")
    slow, stop = thresholds.get("slow_at"), thresholds.get("stop_at")
    numbers = isinstance(slow, (int, float)) and isinstance(stop, (int, float))
    if not numbers or not 0 < float(slow or 0) < float(stop or 0) < float("inf"):
        faults.append(f"policy.json, guard: expected 0 < slow_at < stop_at, given {slow} and {stop}")
    if faults:
        raise BadInput(listed(where, faults))
    states, scale, start = (np.asarray(arrays[name], dtype=np.float32) for name in shapes)
    return Guard(states, scale, start, float(slow or 0), float(stop or 0))
