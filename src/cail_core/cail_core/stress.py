"""What a policy holds before an arm moves: success under delay, other speeds, grasps and trackers, each alone and all together.

Each condition that the task can be played under (`tasks.variation`) is set to half of the way from what was trained to the end of
the practised range, to that end, and half as far again beyond it. "All together" draws every condition of an episode from the
ranges, at these strengths. Then one entry of the observation after another is moved by what its sensors may be wrong by: where
that changes how episodes end, the policy steers by it.

Every case is kept as soon as it was played, so that a run that was cut off goes on.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cail_core import __version__, durable
from cail_core.errors import BadInput
from cail_core.policy import Mode, Network, PolicyRunner
from cail_core.report.played import play
from cail_core.tasks.base import Policy, Task, TaskSpec
from cail_core.tasks.variation import FIELDS, NOMINAL, WORDS, Conditions, Variation, Varied, shown

STRESS = "stress.json"
STRENGTHS = (0.5, 1.0, 1.5)
SHORT = ("delay_s", "speed", "grasp_offset_m", "noise_m", "bias_m")
"""What the short form plays, at the end of the practised range only, beside all together."""
EPISODES, SHORT_EPISODES = 24, 16
LOSES = 0.1
"""A success rate that falls by more than this is a loss and not chance: of 24 episodes three."""
ALL, AS_TRAINED, SEES = "all", "as trained", "sees"
SENSED_ELSE = 0.05
"""Where a task says nothing of its sensors: an observation is moved by this share of its deviation in what was learned from."""


@dataclass(frozen=True)
class Case:
    """Episodes under one condition. `what` is a condition's name, `ALL`, `AS_TRAINED`, or `SEES` for a moved observation."""

    what: str
    strength: float
    value: float
    """Of the condition; of a moved observation by how much, in its own units."""
    observation: str = ""

    @property
    def key(self) -> str:
        return f"{self.what} {self.observation} {self.strength:g} {self.value:g}"

    def variation(self, task: Varied) -> Variation:
        if self.what == ALL:
            return task.variation.scaled(self.strength)
        return Variation.only(NOMINAL if self.what in (AS_TRAINED, SEES) else replace(NOMINAL, **{self.what: self.value}))


@dataclass(frozen=True)
class Result:
    """How the episodes of a case ended."""

    what: str
    strength: float
    value: float
    observation: str
    success: float
    closest_m: float | None
    """The narrowest gap to what must be kept clear of, as it was seen; None where the task has nothing of the kind."""
    episodes: int
    returns: float


def cases(task: Varied, short: bool) -> list[Case]:
    """What is played under, as trained first."""
    found, strengths = [Case(AS_TRAINED, 0.0, 0.0)], (1.0,) if short else STRENGTHS
    for name in FIELDS:
        usual = getattr(NOMINAL, name)
        for end in dict.fromkeys(getattr(task.variation, name)):
            if end != usual and (not short or name in SHORT):
                found += [Case(name, s, round(_valid(name, usual + s * (end - usual)), 6)) for s in strengths]
    return found + [Case(ALL, s, s) for s in strengths]


def _valid(name: str, value: float) -> float:
    """Factors stay well above 0."""
    return max(value, 0.1) if getattr(NOMINAL, name) == 1.0 else value


def moved(spec: TaskSpec, policy: PolicyRunner) -> list[Case]:
    """Each entry of the observation up and down by what it may be wrong by."""
    found = []
    for i, name in enumerate(spec.observation_names):
        by = math.sqrt(sum((sensor.uncertainty * sensor.moves.get(name, 0.0)) ** 2 for sensor in spec.sensors))
        if not spec.sensors and policy.guard is not None:
            by = SENSED_ELSE * float(policy.guard.states[:, i].std())
        if by > 0:
            found += [Case(SEES, strength, round(strength * by, 6), name) for strength in (-1.0, 1.0)]
    return found


def shifted(policy: PolicyRunner, name: str, by: float) -> Mode:
    """The policy that sees this observation moved."""
    network = policy.network
    mean = network.weights["observation_mean"].copy()
    mean[policy.card.observation_names.index(name)] -= by
    return Mode(Network({**network.weights, "observation_mean": mean}, network.activation, network.gates))


def stress(policy: PolicyRunner, task: Task, folder: Path | None, *, short: bool = False, episodes: int = 0, seed: int = 0,
           advance: Callable[[int, int], None] = lambda done, of: None) -> list[Result]:
    """Play every case; `folder` keeps what was played, and what it has of this very policy is not played again."""
    if not isinstance(task, Varied):
        raise BadInput(f"expected a task that can be played under other conditions, such as panda or ur5e, given "
                       f"'{task.spec.name}', which has no variation (cail_core/tasks/variation.py says what that takes)")
    policy.check(task.spec)
    episodes = episodes or (SHORT_EPISODES if short else EPISODES)
    wanted = cases(task, short) + ([] if short else moved(task.spec, policy))
    key = {"policy": fingerprint(policy), "task": task.spec.name, "episodes": episodes, "seed": seed, "cail": __version__}
    held = _read(folder / STRESS, key) if folder else {}
    results: list[Result] = []
    for done, case in enumerate(wanted):
        if case.key not in held:
            held[case.key] = _played(case, task, policy, episodes, seed)
            if folder is not None:
                content = {"key": key, "cases": {name: asdict(result) for name, result in held.items()}}
                durable.write_bytes(folder / STRESS, json.dumps(content, indent=1).encode())
        results.append(held[case.key])
        advance(done + 1, len(wanted))
    return results


def _played(case: Case, task: Varied, policy: PolicyRunner, episodes: int, seed: int) -> Result:
    player: Policy = shifted(policy, case.observation, case.value) if case.what == SEES else policy
    found = play(task.under(case.variation(task)), player, episodes, seed)
    return Result(case.what, case.strength, case.value, case.observation, float(np.mean(found.success)),
                  round(min(found.closest), 4) if found.closest else None, episodes, round(float(np.mean(found.returns)), 2))


def fingerprint(policy: PolicyRunner) -> str:
    """Tells policies apart by what they do."""
    digest = hashlib.sha256(json.dumps(policy.card.gates, sort_keys=True).encode())
    for name in sorted(policy.network.weights):
        digest.update(np.ascontiguousarray(policy.network.weights[name]).tobytes())
    return digest.hexdigest()[:16]


def _read(path: Path, key: Mapping[str, Any]) -> dict[str, Result]:
    """What the file holds of this very policy; an unreadable file is as good as none, since it can be made again."""
    try:
        content = json.loads(path.read_bytes())
        return {name: Result(**one) for name, one in content["cases"].items()} if content["key"] == key else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


# What it means.


def baseline(results: Sequence[Result]) -> Result:
    return next(result for result in results if result.what == AS_TRAINED)


def rows(results: Sequence[Result]) -> dict[tuple[str, bool], list[Result]]:
    """Of each condition, in either direction, the results from mild to strong."""
    found: dict[tuple[str, bool], list[Result]] = {}
    for result in results:
        if result.what not in (AS_TRAINED, SEES):
            usual = getattr(NOMINAL, result.what, 0.0)
            found.setdefault((result.what, result.value >= usual), []).append(result)
    return found


def holds(results: Sequence[Result]) -> dict[str, float]:
    """How far each condition may go without a loss, as far as it was played: the last value before the first loss."""
    usual, found = baseline(results).success, {}
    for (what, more), series in rows(results).items():
        value = getattr(NOMINAL, what, 0.0)
        for result in series:
            if result.success < usual - LOSES:
                break
            value = result.value
        found[what if more or what not in TWO_SIDED else f"{what}_least"] = value
    return found


TWO_SIDED = ("period", "acceleration", "friction", "mass")


def leans(results: Sequence[Result]) -> list[Result]:
    """Observations that, moved by what they may be wrong by, change how episodes end; the worst first."""
    usual = baseline(results).success
    worst: dict[str, Result] = {}
    for result in results:
        if result.what == SEES and result.success < usual - LOSES:
            before = worst.get(result.observation)
            worst[result.observation] = result if before is None or result.success < before.success else before
    return sorted(worst.values(), key=lambda result: result.success)


def sentences(results: Sequence[Result]) -> list[str]:
    """What a person must know, most important first."""
    usual = baseline(results)
    said = [f"as trained: {usual.success:.0%} of {usual.episodes} episodes"]
    lost = list(_losses(results))
    said += lost
    for result in leans(results):
        said.append(f"steers by {result.observation}: moved by {abs(result.value):.2g}, which its sensors may be wrong by, "
                    f"{result.success:.0%} succeed")
    if len(said) == 1:
        together = [result for result in results if result.what == ALL]
        most = max((result.strength for result in together), default=0.0)
        said.append(f"holds every condition that was played, all together up to {most:g} times the practised ranges")
    return said


def _losses(results: Sequence[Result]) -> Iterator[str]:
    usual = baseline(results).success
    for (what, _), series in rows(results).items():
        first = next((result for result in series if result.success < usual - LOSES), None)
        if first is None:
            continue
        if what == ALL:
            yield f"loses with everything together at {first.strength:g} times the practised ranges: {first.success:.0%}"
        else:
            yield f"fails from {WORDS[what]} {shown(what, first.value)} on: {first.success:.0%}"


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """For the policy's card."""
    return {"episodes": baseline(results).episodes, "success": baseline(results).success, "holds": holds(results),
            "leans": [result.observation for result in leans(results)], "sentences": sentences(results),
            "cases": [{name: value for name, value in asdict(result).items() if name not in ("episodes", "observation") or value}
                      for result in results if result.what != SEES]}


def condition_text(result: Result) -> str:
    """A row's name for people."""
    if result.what == ALL:
        return f"all together, × {result.strength:g}"
    if result.what == AS_TRAINED:
        return AS_TRAINED
    if result.what == SEES:
        return f"{result.observation} {result.value:+.2g}"
    return Conditions(**{result.what: result.value}).text()
