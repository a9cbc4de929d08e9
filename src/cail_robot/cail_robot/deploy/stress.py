"""What a policy's card was shown to hold (`cail stress`), held against what is asked of the arm and what is measured there.

Measured at rest, before the first episode: how old the arm's pose and those of the things are when a decision is taken, how often
the tracker looks and how much its positions scatter. Measured while it plays: the time from a command after rest to the first
executed twist that shows it. Plain Python, no ROS.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from cail_core.recording.sync import Vector
from cail_core.stress.findings import LEAST
from cail_core.tasks.variation import WORDS, shown

REST_S = 1.0
"""So long is looked before the first episode."""
MOVES = 5e-4
"""m/s: what is commanded or executed below this is rest."""
UNANSWERED_S = 2.0
"""A command that nothing was executed of for so long was not for the arm."""
SAME_LOOK_S = 1e-3
"""Stamps closer than this are one message."""
SCATTER = 1.15
"""A standard deviation of some fifty looks is off by a tenth now and then: this much more than the card holds is the same."""
WAY_OUT = "--beyond-stress runs it all the same"


def asked_beyond(held: Mapping[str, float], speed: float, rate: float, acceleration: float) -> list[str]:
    """What is asked for and the card does not hold: shares of the trained speed, rate and acceleration."""
    asked = {"speed": speed, "period": 1.0 / rate, "acceleration": acceleration}
    return [f"{WORDS[name]}: {shown(name, value)} of the trained one, its card holds down to {shown(name, held[name + LEAST])}"
            for name, value in asked.items() if value < held.get(name + LEAST, 0.0) * (1 - 1e-6)]


class Measuring:
    """What is known of one arm and its tracker so far."""

    def __init__(self, held: Mapping[str, float], decision_s: float) -> None:
        """`held`: of the card. A tracker that looks once in `decision_s` is always fresh."""
        self._held, self._decision_s = held, decision_s
        self._began: float | None = None
        self._until = 0.0
        self._ages: dict[str, list[float]] = {}
        self._looks: dict[str, list[tuple[float, Vector]]] = {}
        self._resting, self._asked_at = False, math.nan
        self.answers: list[float] = []
        """Seconds from commands to their execution."""

    # What is seen.

    @property
    def enough(self) -> bool:
        return self._began is not None and self._until - self._began >= REST_S - 1e-9

    def at_rest(self, now: float, ages: Mapping[str, float], things: Mapping[str, Vector]) -> None:
        """A decision that could be taken now would see messages this old, and the things here."""
        self._began = now if self._began is None else self._began
        self._until = now
        for name in ("ee_pose", *things):
            self._ages.setdefault(name, []).append(ages[name])
        for name, pose in things.items():
            looks, stamp = self._looks.setdefault(name, []), now - ages[name]
            if not looks or stamp - looks[-1][0] > SAME_LOOK_S:
                looks.append((stamp, pose[:3]))

    def commanded(self, now: float, twist: Vector) -> None:
        if math.hypot(*twist[:3]) <= MOVES:
            self._asked_at = math.nan
        elif self._resting and math.isnan(self._asked_at):
            self._asked_at = now

    def executed(self, when: float, twist: Vector) -> bool:
        """Whether this is the first that shows a command after rest."""
        moves = math.hypot(*twist[:3]) > MOVES / 2
        waited, self._resting = when - self._asked_at, not moves
        if not moves or math.isnan(waited) or waited < 0:
            return False
        self._asked_at = math.nan
        if waited > UNANSWERED_S:
            return False
        self.answers.append(waited)
        return True

    # What it comes to; nan where it is not known.

    @property
    def tracker_s(self) -> float:
        """Between two looks at the thing that is looked at least often."""
        found = [(looks[-1][0] - looks[0][0]) / (len(looks) - 1) for looks in self._looks.values() if len(looks) > 1]
        seldom = [self._until - looks[0][0] for looks in self._looks.values() if len(looks) == 1 and self._began is not None]
        return max((*found, *seldom), default=math.nan)

    @property
    def noise_m(self) -> float:
        """Standard deviation along an axis, of the thing that scatters most."""
        return max((math.sqrt(statistics.fmean(statistics.pvariance(axis) for axis in zip(*(at for _, at in looks), strict=True)))
                    for looks in self._looks.values() if len(looks) > 2), default=math.nan)

    @property
    def seen_s(self) -> float:
        """How old the oldest input is at a decision, in the middle of all; of a thing without the time that it waits for the
        tracker's next look, which the tracker's period stands for."""
        found = []
        for name, ages in self._ages.items():
            looks = self._looks.get(name, [])
            period = (looks[-1][0] - looks[0][0]) / (len(looks) - 1) if len(looks) > 1 else 0.0
            found.append(max(0.0, statistics.median(ages) - period / 2))
        return max(found, default=math.nan)

    @property
    def delay_s(self) -> float:
        """From what is seen to the motion that follows from it, as far as it is known."""
        moved = statistics.median(self.answers) if self.answers else 0.0
        return self.seen_s + moved

    def beyond(self) -> list[str]:
        """What the card was not shown to hold."""
        found = {"delay_s": (self.delay_s, 1.0), "noise_m": (self.noise_m, SCATTER), "tracker_s": (self.tracker_s, 1.05)}
        return [f"{WORDS[name]} {shown(name, value)} measured, its card holds {shown(name, self._held[name])}"
                for name, (value, margin) in found.items()
                if name in self._held and value > margin * self._held[name]
                and not (name == "tracker_s" and value <= 1.05 * self._decision_s)]

    def rows(self) -> Sequence[tuple[str, str]]:
        """For the closing table, beside what the card holds."""
        found = {"delay_s": self.delay_s, "noise_m": self.noise_m, "tracker_s": self.tracker_s}
        made = []
        for name, known in found.items():
            if not math.isnan(value := round(known, 5)):
                parts = self._parts() if name == "delay_s" else ""
                card = f"; its card holds {shown(name, self._held[name])}" if name in self._held else ""
                made.append((WORDS[name], f"{shown(name, value)}{parts}{card}"))
        return made

    def short(self) -> str:
        """One line for the screen."""
        return ", ".join(f"{name} {text.split(' (')[0].split(';')[0]}" for name, text in self.rows()) or "not yet"

    def _parts(self) -> str:
        seen = f"{1e3 * self.seen_s:.0f} ms to see"
        return f" ({seen}, {1e3 * statistics.median(self.answers):.0f} ms to move)" if self.answers else f" ({seen})"
