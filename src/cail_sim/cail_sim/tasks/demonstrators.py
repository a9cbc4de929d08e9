"""Scripted people who demonstrate pick-place-avoid, from near-optimal to adversarial.

One knob, `quality` in [0, 1], says how good an episode is; everything else about it is drawn around that. They act on the
policy's observation alone.

| quality | what they do |
| --- | --- |
| 1 … 0.4 | succeed; detour, haste, hesitation and tremor grow as quality falls, and below 0.55 they take the wrong side |
| 0.4 … 0.25 | get lost: they carry the bottle past the obstacle or not, and never arrive |
| 0.25 … 0.12 | drop: they knock the bottle over, or carry it so low that the platform's edge strikes it |
| 0.12 … 0 | collide: they carry the bottle straight on, into the obstacle |
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cail_core.tasks import Demonstrator, Policy
from cail_core.tasks.base import Array
from cail_core.tasks.pick_place_avoid import LENGTH_SCALE_M, OBSERVATION_NAMES, PickPlaceAvoidConfig, Vec

LOST_BELOW, DROPS_BELOW, COLLIDES_BELOW, WRONG_SIDE_BELOW = 0.4, 0.25, 0.12, 0.55
CLEARANCE_M = 0.105
"""How far beside the obstacle's centre the bottle just passes."""
CARRY_M = 0.06
"""Height of the bottle's base on the way."""
HOVER_M = 0.05
"""How high above its mark the tool comes to the neck, so that the fingers pass over it."""
FINGER_M = 0.053
"""From the middle of the open hand to the middle of a finger."""
STILL = 0.05
"""Who pauses where others hardly move either (the fingers are on their way) does nothing wrong."""
BRAKING = 2.5
"""m/s²."""
ALONG = (-0.824, -0.566)
"""The direction from the bottle's mean start to the target's."""
NECK, FROM_TARGET, FROM_OBSTACLE, OPENING, CLOSING = (
    OBSERVATION_NAMES.index(name)
    for name in ("neck_from_tool_x", "bottle_from_target_x", "bottle_from_obstacle_x", "gripper_opening", "gripper_closing"))


@dataclass(frozen=True)
class Habits:
    """How one episode is done."""

    speed: float
    """Share of the full speed."""
    passing_m: float
    """Distance at which the obstacle is passed, signed: > 0 on the good side."""
    bulge_m: float
    """How far before (< 0) or behind the obstacle the detour is widest."""
    ending: str
    """"place", "lost", "knock", "low" or "ram"."""
    tremor: float
    """Of the hand, as a share of the full speed."""
    pauses: tuple[tuple[int, int], ...]
    """Decisions from … to at which the person hesitates."""
    lost_at: tuple[float, float]
    """Around where the lost ones wander, from the target, m."""


def draw_habits(quality: float, rng: np.random.Generator) -> Habits:
    """The habits of an episode of this quality."""
    q = min(1.0, max(0.0, quality))
    flaw = min(1.0, (1.0 - q) / (1.0 - LOST_BELOW))  # 0 … 1 over those who succeed
    side = -1.0 if q < WRONG_SIDE_BELOW else 1.0
    beside = CLEARANCE_M + flaw * rng.uniform(0.1, 0.26 if side > 0 else 0.11)
    ending, speed = "place", 1.0 - flaw * rng.uniform(0.3, 0.55)
    if q < COLLIDES_BELOW:
        ending, beside = "ram", rng.uniform(0.0, 0.04)
    elif q < DROPS_BELOW:
        ending, side, speed = ("knock" if rng.random() < 0.5 else "low"), 1.0, 1.0
    elif q < LOST_BELOW:
        ending, side = "lost", rng.choice([-1.0, 1.0])
    starts = np.sort(rng.integers(5, 150, rng.poisson(2.5 * flaw)))
    pauses = tuple((int(at), int(at + rng.integers(5, 5 + max(1, round(20 * flaw))))) for at in starts)
    bearing = (0.5 * math.pi if side > 0 else 0.0) + rng.uniform(-0.2, 0.2)  # from the target away from the obstacle
    away = rng.uniform(0.14, 0.25)
    return Habits(
        speed=speed, passing_m=float(side * beside), bulge_m=0.04 * flaw * rng.standard_normal(), ending=ending,
        tremor=0.02 + 0.13 * flaw, pauses=pauses, lost_at=(away * math.cos(bearing), away * math.sin(bearing)))


class Person:
    """Acts out `habits` for one episode. What they do next follows from the observation; only pauses and tremor have a memory."""

    def __init__(self, habits: Habits, task: PickPlaceAvoidConfig, rng: np.random.Generator, *, explicit_gripper: bool) -> None:
        self.habits, self.task, self._rng, self._explicit = habits, task, rng, explicit_gripper
        self.bad = False
        """Whether the last action was bad, for measurements (`cail_core/demos/truth.py`)."""
        self._decision = 0
        self._tremor: Vec = (0.0, 0.0, 0.0)

    def __call__(self, observation: Array) -> Array:
        o: list[float] = observation.tolist()
        h = self.habits
        self._decision += 1
        wish: Vec = self._wish(o)
        self.bad = self._fails(o)
        if any(start <= self._decision < end for start, end in h.pauses):
            self.bad = self.bad or math.hypot(*wish) > STILL
            wish = 0.0, 0.0, 0.0
        else:
            x, y, z = self._tremor
            a, b, c = self._rng.standard_normal(3).tolist()
            self._tremor = x, y, z = 0.85 * x + 0.5 * h.tremor * a, 0.85 * y + 0.5 * h.tremor * b, 0.85 * z + 0.5 * h.tremor * c
            share = min(1.0, 0.1 + 2.0 * math.hypot(*wish))  # a hand that rests hardly trembles
            wish = wish[0] + share * x, wish[1] + share * y, wish[2] + share * z
        action = [min(1.0, max(-1.0, v)) for v in wish]
        if self._explicit:
            action.append(self._gripper(o))
        return np.array(action, dtype=np.float32)

    def _fails(self, o: list[float]) -> bool:
        """What those do who come to a bad end: they reach for the bottle as others do, but for those who knock it over."""
        return self.habits.ending == "knock" or (self.habits.ending != "place" and o[CLOSING] > 0.5)

    def _wish(self, o: list[float]) -> Vec:
        """The velocity to ask for, as a share of the full speed."""
        t, s = self.task, LENGTH_SCALE_M
        x, y, z = o[FROM_TARGET] * s, o[FROM_TARGET + 1] * s, o[FROM_TARGET + 2] * s
        if o[CLOSING] > 0.5:
            if o[OPENING] * t.gripper_width_m > t.neck_width_m + t.width_tolerance_m:
                return 0.0, 0.0, 0.0  # the fingers are on their way
            return self._carry((x, y, z), (o[FROM_OBSTACLE] * s, o[FROM_OBSTACLE + 1] * s))
        if math.hypot(x, y) < t.place_radius_m and abs(z) < 0.02:
            return 0.0, 0.0, 0.0  # it stands on the platform
        return self._reach(o[NECK] * s, o[NECK + 1] * s, o[NECK + 2] * s)

    def _reach(self, x: float, y: float, z: float) -> Vec:
        """Over the neck, then down around it; those who knock it over come low, with a finger in its way, and push on."""
        if self.habits.ending == "knock":
            aside = y - FINGER_M
            return self._towards(x - 0.06, aside, z) if abs(aside) > 0.012 and x > 0.0 else self._towards(x + 0.1, aside, z)
        return self._towards(x, y, z + min(HOVER_M, 3.0 * max(0.0, math.hypot(x, y) - 0.008)))

    def _carry(self, bottle: Vec, beside: tuple[float, float]) -> Vec:
        """Around the obstacle, over the platform, down. `bottle` counts from the target, `beside` from the obstacle."""
        h, (x, y, z) = self.habits, bottle
        careless = h.ending in ("low", "knock")
        gx, gy = -x, -y
        if h.ending == "lost":
            turn = 0.06 * self._decision
            gx, gy = gx + h.lost_at[0] + 0.05 * math.cos(turn), gy + h.lost_at[1] + 0.05 * math.sin(turn)
        elif math.hypot(x, y) < 0.02 and h.ending == "place":
            vx, vy, _ = self._towards(gx, gy, 0.0)
            return vx, vy, -0.3 * h.speed
        across = beside[0] * ALONG[1] - beside[1] * ALONG[0]
        along = beside[0] * ALONG[0] + beside[1] * ALONG[1]
        if along < h.bulge_m:
            ahead, aside = h.bulge_m + 0.03 - along, h.passing_m - across
            gx, gy = ahead * ALONG[0] + aside * ALONG[1], ahead * ALONG[1] - aside * ALONG[0]
            far = 0.2 / max(1e-6, math.hypot(gx, gy))  # not slowing down at this point
            gx, gy = gx * far, gy * far
        elif careless:
            gx, gy = gx + 0.1 * ALONG[0], gy + 0.1 * ALONG[1]
        vx, vy, _ = self._towards(gx, gy, 0.0)
        height = 0.015 if careless else CARRY_M
        _, _, vz = self._towards(0.0, 0.0, height - self.task.platform_height_m - z)
        return vx, vy, vz

    def _towards(self, x: float, y: float, z: float) -> Vec:
        """Along this way, as fast as the person goes, slowing down so as to stop at its end."""
        way = math.hypot(x, y, z)
        fastest = min(self.habits.speed * self.task.max_speed, 10.0 * way, math.sqrt(2.0 * BRAKING * way))
        k = fastest / self.task.max_speed / max(way, 1e-9)
        return x * k, y * k, z * k

    def _gripper(self, o: list[float]) -> float:
        """Explicit control that does what the reflex would do."""
        t, s = self.task, LENGTH_SCALE_M
        over = s * math.hypot(o[FROM_TARGET], o[FROM_TARGET + 1]) <= t.place_radius_m and s * abs(o[FROM_TARGET + 2]) <= t.touch_m
        between = s * max(abs(o[NECK]), abs(o[NECK + 1])) <= t.grasp_across_m and s * abs(o[NECK + 2]) <= t.grasp_along_m
        return 1.0 if over or not (between or o[CLOSING] > 0.5) else -1.0


def demonstrator(name: str, low: float, high: float, task: PickPlaceAvoidConfig, *, explicit_gripper: bool) -> Demonstrator:
    """A person whose episodes have a quality between `low` and `high`."""

    def start(rng: np.random.Generator) -> Policy:
        return Person(draw_habits(rng.uniform(low, high), rng), task, rng, explicit_gripper=explicit_gripper)

    return Demonstrator(name, start)
