"""Experts on the point mass who for a while do something wrong, and know it: demonstrations of which only a part is bad.

| who | what they do wrong | for how many steps of 50 |
| --- | --- | --- |
| strays | set out for another place | 8 … 14, from step 0 … 8 |
| pauses | stop on the way | 12 … 20, from step 0 … 6 |
| fumbles | circle around the goal instead of stopping there | 10 … 16, when they get near |
| turns-back | set out in the opposite direction | 6 … 10, from the start |

Before and after they do what an expert does, the way back included. Every episode of this task is equally long, so length says
nothing about who is good. In the mix `two-ways` all of them swerve to the left or to the right, which is equally good: no single
action is right in the middle. Mixes and people were fixed before anything was learned from them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cail_core.tasks.base import Array, Demonstrator, Policy
from cail_core.tasks.pointmass import PointMassConfig, demonstrator

STIFFNESS, DAMPING, TREMOR = 3.0, 2.0, 0.05
"""Those of an expert."""
SWERVE = 1.5
NEAR_M, CIRCLE_M = 0.4, 0.3
LASTS = {"strays": (8, 14), "pauses": (12, 20), "fumbles": (10, 16), "turns-back": (6, 10)}
BEGINS = {"strays": (0, 8), "pauses": (0, 6), "turns-back": (0, 0)}
"""Fumbling begins when the goal is near."""
KINDS = tuple(LASTS)
LAPSES = {"expert": 0.1, "strays": 0.2, "pauses": 0.15, "fumbles": 0.1, "turns-back": 0.15,
          "fair": 0.1, "poor": 0.1, "hopeless": 0.1}
TWO_WAYS = {"either-way": 0.1, "strays-either-way": 0.2, "pauses-either-way": 0.15, "fumbles-either-way": 0.1,
            "turns-back-either-way": 0.15, "fair": 0.1, "poor": 0.1, "hopeless": 0.1}


class Lapsing:
    """An expert for one episode, who lapses once; `kind` "" never does. `swerve` ≠ 0: not straight to the goal."""

    def __init__(self, kind: str, swerve: float, rng: np.random.Generator) -> None:
        self.kind, self.bad = kind, False
        self._swerve, self._rng, self._step = swerve, rng, 0
        self._begun = False
        self._left = int(rng.integers(LASTS[kind][0], LASTS[kind][1] + 1)) if kind else 0
        self._begins = int(rng.integers(BEGINS[kind][0], BEGINS[kind][1] + 1)) if kind in BEGINS else 0
        self._turn = float(rng.choice([-1.0, 1.0]) * rng.uniform(np.pi / 3, 2 * np.pi / 3))
        self._elsewhere: NDArray[np.float64] | None = None
        """Where it strays to, from the goal."""

    def __call__(self, observation: Array) -> Array:
        error, velocity = observation[:2].astype(np.float64), observation[2:].astype(np.float64)
        self._begun = self._begun or (np.hypot(*error) < NEAR_M if self.kind == "fumbles" else self._step >= self._begins)
        self.bad = self._begun and self._left > 0
        wish = self._wrong(error, velocity) if self.bad else self._right(error, velocity)
        self._left -= self.bad
        self._step += 1
        return np.clip(wish + self._rng.normal(0.0, TREMOR, 2), -1.0, 1.0).astype(np.float32)

    def _right(self, error: NDArray[np.float64], velocity: NDArray[np.float64]) -> NDArray[np.float64]:
        return STIFFNESS * error + self._swerve * _across(error) - DAMPING * velocity

    def _wrong(self, error: NDArray[np.float64], velocity: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.kind == "pauses":
            return -DAMPING * velocity
        if self.kind == "turns-back":
            return -STIFFNESS * error - DAMPING * velocity
        if self.kind == "strays":
            if self._elsewhere is None:
                way, (c, s) = error / max(1e-6, np.hypot(*error)), (np.cos(self._turn), np.sin(self._turn))
                self._elsewhere = 1.2 * np.array([c * way[0] - s * way[1], s * way[0] + c * way[1]]) - error
            return STIFFNESS * (error + self._elsewhere) - DAMPING * velocity
        away = float(np.hypot(*error))
        inwards: NDArray[np.float64] = error / max(1e-6, away)
        around = 0.6 * float(np.sign(self._turn)) * _across(inwards) + 2.0 * (away - CIRCLE_M) * inwards
        return 4.0 * (around - velocity)


def _across(way: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([-way[1], way[0]])


def lapsing(kind: str, *, either_way: bool) -> Demonstrator:
    def start(rng: np.random.Generator) -> Policy:
        return Lapsing(kind, float(SWERVE * rng.choice([-1.0, 1.0])) if either_way else 0.0, rng)

    return Demonstrator("-".join([*([kind] if kind else []), *(["either-way"] if either_way else [])]), start)


def lapse_mixes(config: PointMassConfig) -> dict[str, Sequence[tuple[Demonstrator, float]]]:
    """`lapses` and `two-ways`; nothing where the settings have no such people as they take along."""
    if not {"expert", "fair", "poor", "hopeless"} <= set(config.skills):
        return {}
    made = {name: demonstrator(name, skill, config.misjudged_m) for name, skill in config.skills.items()}
    made |= {who.name: who for kind in KINDS for who in (lapsing(kind, either_way=False), lapsing(kind, either_way=True))}
    made["either-way"] = lapsing("", either_way=True)
    return {mix: [(made[name], share) for name, share in shares.items()]
            for mix, shares in (("lapses", LAPSES), ("two-ways", TWO_WAYS))}
