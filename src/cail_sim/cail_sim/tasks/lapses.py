"""Good people who for a while do something wrong, and know it: demonstrations of pick-place-avoid of which only a part is bad.

| who | what they do wrong | for how many decisions |
| --- | --- | --- |
| strays | drive away from where they were going, while reaching or while carrying | 25 … 45 |
| pauses | stand still | 30 … 60 |
| fumbles | hover over the neck, now here, now there | 25 … 45 |
| turns-back | set out for the wrong side of the obstacle | until they are 6 cm beside the way |

Before and after they do what a near-optimal person does, the way back included. In `lapses-equal` some are so much slower
that all kinds take about equally long, and nobody is there who times out: length says nothing. In `lapses-two-ways` everybody
passes the obstacle on either side, which is equally good. Mixes and people were fixed before anything was learned from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from cail_core.tasks import Demonstrator, Policy
from cail_core.tasks.pick_place_avoid import LENGTH_SCALE_M, PickPlaceAvoidConfig, Vec
from cail_sim.tasks.demonstrators import ALONG, CLOSING, FROM_OBSTACLE, FROM_TARGET, NECK, Habits, Person, draw_habits

ACROSS = (ALONG[1], -ALONG[0])
GOOD = (0.93, 1.0)
"""The quality of all of them but for the lapse."""
SLOWER = {"calm": 0.58, "turns-back-late": 0.76, "colliding-late": 0.32}
"""Share of the full speed at which these take about as long as those who lapse."""
NEAR_NECK_M = 0.03
BESIDE_M = 0.06


class Lapsing(Person):
    """Lapses once in the episode. Where a lapse begins and what it does is drawn before it starts."""

    def __init__(self, kind: str, habits: Habits, task: PickPlaceAvoidConfig, rng: np.random.Generator, *,
                 explicit_gripper: bool) -> None:
        super().__init__(habits, task, rng, explicit_gripper=explicit_gripper)
        self.kind = kind
        self._left = int(rng.integers(25, 46))
        self._begun = self._lapses = False
        self._reaching_from = int(rng.integers(3, 20)) if rng.random() < 0.5 else 10_000
        """Decision at which it strays on the way to the bottle."""
        self._carrying_from = float(rng.uniform(-0.22, 0.0))
        """How far along the obstacle it strays on the way with the bottle."""
        self._strength = float(rng.uniform(0.6, 0.9))
        self._turn = float(rng.uniform(-0.5, 0.5))
        self._back, self._aside = rng.uniform(0.3, 1.0, 2).tolist()
        self._spots = [(0.05 * math.cos(a), 0.05 * math.sin(a), float(h)) for a, h in
                       zip(rng.uniform(0.0, 2 * math.pi, 5), rng.uniform(0.05, 0.08, 5), strict=True)]
        self._returning = False

    def _fails(self, o: list[float]) -> bool:
        return self._lapses or super()._fails(o)

    def _wish(self, o: list[float]) -> Vec:
        right = super()._wish(o)
        self._lapses = False
        held = o[CLOSING] > 0.5
        if held and math.hypot(*right) == 0.0:  # the fingers are on their way
            return right
        wrong = {"strays": self._stray, "fumbles": self._fumble, "turns-back": self._turn_back}[self.kind](o, held, right)
        return right if wrong is None else wrong

    def _stray(self, o: list[float], held: bool, right: Vec) -> Vec | None:
        s = LENGTH_SCALE_M
        along, _ = self._beside(o)
        if self._left == 0:
            return None
        if not self._begun:
            on_platform = not held and s * math.hypot(o[FROM_TARGET], o[FROM_TARGET + 1]) < self.task.place_radius_m
            self._begun = not on_platform and (along >= self._carrying_from if held else self._decision >= self._reaching_from)
            if not self._begun:
                return None
        self._left -= 1
        self._lapses = True
        if held:
            side = math.copysign(1.0, self.habits.passing_m)
            x = -self._back * ALONG[0] + side * self._aside * ACROSS[0]
            y = -self._back * ALONG[1] + side * self._aside * ACROSS[1]
            k = self._strength / math.hypot(x, y)
            return k * x, k * y, right[2]
        x, y = -o[NECK], -o[NECK + 1]
        c, t = math.cos(self._turn), math.sin(self._turn)
        k = self._strength / max(1e-6, math.hypot(x, y))
        return k * (c * x - t * y), k * (t * x + c * y), 0.2

    def _fumble(self, o: list[float], held: bool, right: Vec) -> Vec | None:
        s = LENGTH_SCALE_M
        x, y, z = s * o[NECK], s * o[NECK + 1], s * o[NECK + 2]
        self._begun = self._begun or (not held and math.hypot(x, y) < NEAR_NECK_M)
        if not self._begun or held or self._left == 0:
            return None
        self._left -= 1
        self._lapses = True
        dx, dy, height = self._spots[self._left // 10]
        return self._towards(x + dx, y + dy, z + height)

    def _turn_back(self, o: list[float], held: bool, right: Vec) -> Vec | None:
        """Wrong until it is beside the way; then back across, which from there is right, and on."""
        along, across = self._beside(o)
        side = math.copysign(1.0, self.habits.passing_m)
        if not held or along > -0.1 or (self._returning and side * across > BESIDE_M):
            return None
        self._returning = self._returning or side * across < -BESIDE_M
        self._lapses = not self._returning
        ahead, aside = -0.16 - along, (side if self._returning else -side) * 2 * BESIDE_M - across
        x, y = ahead * ALONG[0] + aside * ACROSS[0], ahead * ALONG[1] + aside * ACROSS[1]
        vx, vy, _ = self._towards(x, y, 0.0)
        return vx, vy, right[2]

    def _beside(self, o: list[float]) -> tuple[float, float]:
        """Where the bottle is to the obstacle: along the way and across it, m."""
        x, y = LENGTH_SCALE_M * o[FROM_OBSTACLE], LENGTH_SCALE_M * o[FROM_OBSTACLE + 1]
        return x * ALONG[0] + y * ALONG[1], x * ACROSS[0] + y * ACROSS[1]


def person(kind: str, task: PickPlaceAvoidConfig, *, explicit_gripper: bool, either_way: bool = False,
           quality: tuple[float, float] = GOOD) -> Demonstrator:
    """Somebody who lapses, pauses, or does neither (`kind` "near-optimal" or one of `SLOWER`)."""

    def start(rng: np.random.Generator) -> Policy:
        habits = draw_habits(rng.uniform(*quality), rng)
        if either_way:
            habits = replace(habits, passing_m=habits.passing_m * float(rng.choice([-1.0, 1.0])))
        if kind in SLOWER:
            habits = replace(habits, speed=SLOWER[kind])
        if kind == "pauses":
            at, lasts = int(rng.integers(5, 90)), int(rng.integers(30, 61))
            habits = replace(habits, pauses=((at, at + lasts),))
        elif (lapse := kind.removesuffix("-late")) in ("strays", "fumbles", "turns-back"):
            return Lapsing(lapse, replace(habits, pauses=()), task, rng, explicit_gripper=explicit_gripper)
        return Person(habits, task, rng, explicit_gripper=explicit_gripper)

    return Demonstrator(f"{kind}-either-way" if either_way else kind, start)


KINDS = ("strays", "pauses", "fumbles", "turns-back")
LAPSES = {"near-optimal": 0.1, "strays": 0.2, "pauses": 0.15, "fumbles": 0.1, "turns-back": 0.1, "small-detour": 0.05,
          "large-detour": 0.05, "lost": 0.1, "dropping": 0.05, "colliding": 0.1}
EQUAL = {"calm": 0.15, "strays": 0.2, "pauses": 0.15, "fumbles": 0.15, "turns-back-late": 0.15, "colliding-late": 0.2}
TWO_WAYS = {"near-optimal-either-way": 0.15, "strays-either-way": 0.2, "pauses-either-way": 0.15, "fumbles-either-way": 0.1,
            "turns-back-either-way": 0.15, "lost": 0.1, "dropping": 0.05, "colliding": 0.1}


def lapse_mixes(people: dict[str, Demonstrator], task: PickPlaceAvoidConfig, fastest: float, *,
                explicit_gripper: bool) -> dict[str, Sequence[tuple[Demonstrator, float]]]:
    """The mixes with lapses; `people` are the task's own, and where these lack those that a mix needs it is left out. So is
    `lapses-equal` where the arm is slower (`fastest`, m/s) than what the task calls full speed: there its lengths are not equal.
    """
    make = partial(person, task=task, explicit_gripper=explicit_gripper)
    made = dict(people) | {kind: make(kind) for kind in KINDS}
    made |= {f"{kind}-either-way": make(kind, either_way=True) for kind in ("near-optimal", *KINDS)}
    made |= {kind: make(kind) for kind in ("calm", "turns-back-late")}
    made["colliding-late"] = make("colliding-late", quality=(0.0, 0.12))
    mixes = {"lapses": LAPSES, "lapses-two-ways": TWO_WAYS}
    if fastest >= task.max_speed:
        mixes["lapses-equal"] = EQUAL
    return {mix: [(made[name], share) for name, share in shares.items()]
            for mix, shares in mixes.items() if set(shares) <= set(made)}
