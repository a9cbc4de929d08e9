"""How the episodes of a deployment ended, and the table of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cail_core.demos.episode import INTERRUPTED
from cail_core.evaluation import Evaluation
from cail_robot.control.state_machine import StatusCode
from cail_robot.deploy.stress import Measuring

ENDS = ("success", "dropped", "collided", "timeout", "failure", INTERRUPTED)
WORDS = {"timeout": "timed out", "failure": "other failures"}


def outcome_of_stop(code: StatusCode) -> str:
    """What an episode comes to that an arm ended by stopping: it may well have been driven into a stop of its safety system."""
    return "failure" if code is StatusCode.SAFETY_STOP else INTERRUPTED


@dataclass(frozen=True)
class Played:
    """One episode. `outcome` is a name of `demos.episode.OUTCOMES`."""

    outcome: str
    total_reward: float
    seconds: float
    takeovers: int = 0
    why: str = ""
    """What ended it, where that was neither the task nor the time."""


@dataclass
class Tally:
    """All episodes so far, and what happened on the way."""

    episodes: list[Played] = field(default_factory=list)
    takeovers: int = 0
    guard_stops: int = 0
    stale_stops: int = 0
    holds: int = 0
    decisions: int = 0
    slowed: int = 0
    discarded: int = 0
    unrecorded: int = 0
    measured: Measuring | None = None
    """Of the arm and its tracker."""

    def count(self, outcome: str) -> int:
        return sum(one.outcome == outcome and not one.takeovers for one in self.episodes)

    def short(self) -> str:
        """One line for the screen."""
        shown = [f"{self.count(end)} {WORDS.get(end, end)}" for end in ENDS if self.count(end)]
        helped = sum(one.takeovers > 0 for one in self.episodes)
        shown += [f"{helped} with a takeover"] if helped else []
        return f"{len(self.episodes)} played{': ' if shown else ''}{', '.join(shown)}"

    def table(self) -> list[str]:
        """The summary: success counts only where nobody took over; the return is that of those episodes."""
        n, helped = len(self.episodes), [one for one in self.episodes if one.takeovers]
        rows = [("episodes", str(n)), *((WORDS.get(end, end), str(self.count(end))) for end in ENDS)]
        if helped:
            saved = sum(one.outcome == "success" for one in helped)
            rows.append(("taken over", f"{len(helped)}, of which {saved} then succeeded"))
        if n:
            success = [one.outcome == "success" and not one.takeovers for one in self.episodes]
            alone = [one for one in self.episodes if not one.takeovers]
            made = Evaluation(np.zeros(n), np.zeros(n, dtype=np.int64), np.array(success))
            low, high = made.success_interval()
            rows.append(("success rate", f"{100 * made.success_rate:.1f}%  (95% interval {100 * low:.1f}% … {100 * high:.1f}%)"))
            if alone:
                returns = np.array([one.total_reward for one in alone])
                rows.append(("return", f"{returns.mean():.2f} ± {returns.std():.2f}  ({len(alone)} episodes without a takeover)"))
        rows.append(("interventions", str(self.takeovers)))
        share = 100 * self.slowed / max(self.decisions, 1)
        rows.append(("guard", f"{self.guard_stops} stops, slower in {share:.1f}% of {self.decisions} decisions"))
        rows.append(("stale inputs", f"{self.stale_stops} stops"))
        rows.append(("arm held", f"{self.holds} times"))
        rows += [("discarded", str(self.discarded))] if self.discarded else []
        rows += [("not recorded", str(self.unrecorded))] if self.unrecorded else []
        rows += self.measured.rows() if self.measured else []
        width = max(len(name) for name, _ in rows)
        return [f"{name:<{width}}  {text}" for name, text in rows]
