"""What differs between the simulator where a policy learns and the arm where it acts, and by how much it may.

`Conditions` is one case of it, `Variation` the ranges that cases are drawn from. What is practised under a variation does not
lean on what only one simulator has; `cail stress` plays under one condition after the other. A task says whether it can be played
under them (`Varied`), and has the ranges in its config.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Protocol, runtime_checkable

import numpy as np

from cail_core.config import setting
from cail_core.errors import ConfigError, listed
from cail_core.tasks.base import Task


@dataclass(frozen=True)
class Conditions:
    """Of one episode. As they are here nothing differs."""

    delay_s: float = 0.0
    period: float = 1.0
    jitter_s: float = 0.0
    speed: float = 1.0
    acceleration: float = 1.0
    grasp_offset_m: float = 0.0
    lean: float = 0.0
    friction: float = 1.0
    mass: float = 1.0
    noise_m: float = 0.0
    bias_m: float = 0.0
    tracker_s: float = 0.0
    start_m: float = 0.0
    gripper: float = 1.0

    def text(self) -> str:
        """What differs, in words."""
        said = [f"{WORDS[f.name]} {shown(f.name, getattr(self, f.name))}" for f in fields(self)
                if getattr(self, f.name) != f.default]
        return ", ".join(said) or "as trained"


NOMINAL = Conditions()
WORDS = {
    "delay_s": "delay", "period": "control period", "jitter_s": "jitter", "speed": "speed limit", "acceleration": "acceleration",
    "grasp_offset_m": "grasp offset", "lean": "lean in the hand", "friction": "friction", "mass": "mass",
    "noise_m": "tracker noise", "bias_m": "tracker bias", "tracker_s": "tracker period", "start_m": "wider start",
    "gripper": "gripper speed",
}  # fmt: skip
Range = tuple[float, ...]


@dataclass(frozen=True)
class Variation:
    """Least and greatest of each condition; every episode draws its own, each of them independently and evenly."""

    delay_s: Range = setting((0.0, 0.0), "s from what is seen to the motion that follows from it")
    period: Range = setting((1.0, 1.0), "times as long as trained that a decision holds")
    jitter_s: Range = setting((0.0, 0.0), "s by which a decision comes earlier or later than it should, at most")
    speed: Range = setting((1.0, 1.0), "share of the trained speed that the arm runs at; the path stays the same")
    acceleration: Range = setting((1.0, 1.0), "times the trained acceleration and jerk limits")
    grasp_offset_m: Range = setting((0.0, 0.0), "m by which the tool is not where the arm says, in some direction")
    lean: Range = setting((0.0, 0.0), "by which an object seems to lean, sine of the angle, in some direction")
    friction: Range = setting((1.0, 1.0), "times the simulator's")
    mass: Range = setting((1.0, 1.0), "times the simulator's, of the object")
    noise_m: Range = setting((0.0, 0.0), "m, standard deviation of a tracked position from one look to the next")
    bias_m: Range = setting((0.0, 0.0), "m by which a tracked thing seems to stand elsewhere, in some direction, all the episode")
    tracker_s: Range = setting((0.0, 0.0), "s between two looks of the tracker; 0: always fresh")
    start_m: Range = setting((0.0, 0.0), "m by which the start region is wider on every side")
    gripper: Range = setting((1.0, 1.0), "times the speed at which the simulated gripper opens and closes")

    def __post_init__(self) -> None:
        least = {"period": 0.25, "speed": 0.05, "acceleration": 0.1, "friction": 0.05, "mass": 0.05, "gripper": 0.05}
        faults = []
        for f in fields(self):
            ends = getattr(self, f.name)
            if len(ends) != 2 or not least.get(f.name, 0.0) <= ends[0] <= ends[1]:
                faults.append(f"{f.name}: expected the least and the greatest, from {least.get(f.name, 0.0):g} on, given {ends}")
        if faults:
            raise ConfigError(listed("variation", faults))

    @classmethod
    def only(cls, conditions: Conditions) -> Variation:
        """Every episode under these."""
        return cls(**{f.name: (getattr(conditions, f.name),) * 2 for f in fields(cls)})

    def draw(self, rng: np.random.Generator) -> Conditions:
        """The conditions of one episode."""
        shares = rng.random(len(FIELDS)).tolist()
        return Conditions(*(low + u * (high - low) for u, (low, high) in zip(shares, map(self._ends, FIELDS), strict=True)))

    def scaled(self, share: float) -> Variation:
        """Ranges that reach this share of the way from what was trained to these."""
        def towards(name: str) -> Range:
            usual = getattr(NOMINAL, name)
            return tuple(usual + share * (end - usual) for end in self._ends(name))

        return replace(self, **{name: towards(name) for name in FIELDS})

    def _ends(self, name: str) -> Range:
        ends: Range = getattr(self, name)
        return ends


FIELDS = tuple(f.name for f in fields(Conditions))
NOTHING = Variation()


@runtime_checkable
class Varied(Task, Protocol):
    """A task whose environments can be played under other conditions."""

    variation: Variation
    """What is practised under."""

    def under(self, variation: Variation) -> Task:
        """The task, each episode of which draws its conditions from this."""
        ...


@runtime_checkable
class Paced(Task, Protocol):
    """A task whose episodes go at different paces."""

    def pace_of(self, seed: int) -> float:
        """Times as many decisions as in training that an episode takes which was begun from this seed (`RepeatingEnv.begin`)."""
        ...


def shown(name: str, value: float) -> str:
    """A condition's value with its unit, as a person says it."""
    if name.endswith("_s"):
        return f"{1e3 * value:.3g} ms"
    if name.endswith("_m"):
        return f"{1e3 * value:.3g} mm"
    return f"{value:.3g}" if name == "lean" else f"× {value:.3g}"


def varied(task: Task) -> Task:
    """The task under all of its variation but speed: a slower arm takes more steps, and PPO judges step by step."""
    return task.under(replace(task.variation, speed=(NOMINAL.speed,) * 2)) if isinstance(task, Varied) else task
