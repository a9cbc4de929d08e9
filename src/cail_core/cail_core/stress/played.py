"""What is played: every condition at three strengths, all together, and every observation moved; each is kept once it is known.

Each condition that the task can be played under (`tasks.variation`) is set to half of the way from what was trained to the end of
the practised range, to that end, and half as far again beyond it. "All together" draws every condition of an episode from the
ranges, at these strengths. Then one entry of the observation after another is moved by what its sensors may be wrong by: where
that changes how episodes end, the policy steers by it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cail_core import __version__, durable
from cail_core.errors import BadInput
from cail_core.policy import Mode, Network, PolicyRunner
from cail_core.report.played import play
from cail_core.tasks.base import Policy, Task, TaskSpec
from cail_core.tasks.variation import FIELDS, NOMINAL, Variation, Varied

STRESS = "stress.json"
STRENGTHS = (0.5, 1.0, 1.5)
SHORT = ("delay_s", "speed", "grasp_offset_m", "noise_m", "bias_m", "tracker_s")
"""What the short form plays, at the end of the practised range only, beside all together."""
EPISODES = 16
AS_TRAINED_TIMES = 3
"""So many times the episodes are played as trained: every other case is held against these."""
ROUNDS = 4
"""A case that seems to lose but may be chance is played again, on other starts, up to so many times in all."""
LOSES, CHANCE = 0.1, 0.004
"""A loss is a success rate that falls by more than the first, which by chance is less likely than the second (`chance`): some
eighty cases are held against one baseline, and a test of a good policy should call none of them a loss by luck."""
WORKS = 0.5
"""A policy that succeeds less often than this as trained is not shown to hold anything, and nothing else is played."""
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

    def key(self, episodes: int) -> str:
        return " ".join(filter(None, (self.what, self.observation, f"{self.strength:g} {self.value:g} of {episodes}")))

    def variation(self, task: Varied) -> Variation:
        if self.what == ALL:
            return Variation(**{name: tuple(_reached(name, end, self.strength) for end in getattr(task.variation, name))
                                for name in FIELDS})
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

    @property
    def failures(self) -> int:
        return round((1.0 - self.success) * self.episodes)

    def with_more(self, more: Result) -> Result:
        """Both together."""
        n = self.episodes + more.episodes
        gaps = [gap for gap in (self.closest_m, more.closest_m) if gap is not None]
        mean = (self.returns * self.episodes + more.returns * more.episodes) / n
        return replace(self, success=1.0 - (self.failures + more.failures) / n, closest_m=min(gaps, default=None), episodes=n,
                       returns=round(mean, 2))


def cases(task: Varied, short: bool) -> list[Case]:
    """What is played under, as trained first."""
    found, strengths = [Case(AS_TRAINED, 0.0, 0.0)], (1.0,) if short else STRENGTHS
    for name in FIELDS:
        usual = getattr(NOMINAL, name)
        for end in dict.fromkeys(getattr(task.variation, name)):
            if end != usual and (not short or name in SHORT):
                found += [Case(name, s, round(_reached(name, end, s), 6)) for s in strengths]
    if len(found) == 1:
        return found
    return found + [Case(ALL, s, s) for s in strengths]


def _reached(name: str, end: float, strength: float) -> float:
    """So much of the way from what was trained to the end of a range; factors stay well above 0."""
    usual: float = getattr(NOMINAL, name)
    value = usual + strength * (end - usual)
    return max(value, 0.25 if name == "period" else 0.1) if usual == 1.0 else value


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
    """The policy that sees this observation moved; where a gate hides it from the policy, moving it changes nothing."""
    network = policy.network
    mean = network.weights["observation_mean"].copy()
    mean[policy.card.observation_names.index(name)] -= by
    return Mode(Network({**network.weights, "observation_mean": mean}, network.activation, network.gates))


def stressable(task: Task) -> bool:
    """Whether there is something to play it under, and something to count."""
    return (isinstance(task, Varied) and not task.spec.on_arm and task.spec.has_success
            and any(end != getattr(NOMINAL, name) for name in FIELDS for end in getattr(task.variation, name)))


def checked(policy: PolicyRunner, task: Task, episodes: int) -> Varied:
    """The task, if it and the policy can be played."""
    if not stressable(task) or not isinstance(task, Varied):
        raise BadInput("expected a task that can be played under other conditions, given "
                       f"'{task.spec.name}', which has no variation to play or no success to count (docs/stress.md)")
    if episodes < 1:
        raise BadInput(f"expected at least 1 episode of each case, given {episodes}")
    policy.check(task.spec)
    return task


def stress(policy: PolicyRunner, task: Task, folder: Path | None, *, short: bool = False, episodes: int = EPISODES, seed: int = 0,
           advance: Callable[[int, int], None] = lambda done, of: None) -> list[Result]:
    """Play every case; `folder` keeps what was played, and what it has of this very policy is not played again."""
    task = checked(policy, task, episodes)
    wanted = cases(task, short) + ([] if short else moved(task.spec, policy))
    key = {"policy": fingerprint(policy), "task": task.spec.name, "seed": seed, "cail": __version__,
           "variation": {name: list(getattr(task.variation, name)) for name in FIELDS}}
    held = _read(folder / STRESS, key) if folder else {}
    results: list[Result] = []
    for done, case in enumerate(wanted):
        name = case.key(episodes)
        if name not in held:
            held[name] = _settled(case, task, policy, episodes, seed, results[0] if results else None)
            if folder is not None:
                content = {"key": key, "cases": {name: asdict(result) for name, result in held.items()}}
                durable.write_bytes(folder / STRESS, json.dumps(content, indent=1).encode())
        results.append(held[name])
        if results[0].success < WORKS:
            advance(1, 1)
            break
        advance(done + 1, len(wanted))
    return results


def _settled(case: Case, task: Varied, policy: PolicyRunner, episodes: int, seed: int, usual: Result | None) -> Result:
    """Played until it is clear whether it loses, or often enough."""
    if usual is None:
        return _played(case, task, policy, AS_TRAINED_TIMES * episodes, seed)
    found = _played(case, task, policy, episodes, seed)
    for again in range(1, ROUNDS):
        if not falls(found, usual) or loses(found, usual):
            break
        other = int(np.random.SeedSequence((seed, again)).generate_state(1)[0])
        found = found.with_more(_played(case, task, policy, episodes, other))
    return found


def _played(case: Case, task: Varied, policy: PolicyRunner, episodes: int, seed: int) -> Result:
    player: Policy = shifted(policy, case.observation, case.value) if case.what == SEES else policy
    found = play(task.under(case.variation(task)), player, episodes, seed)
    return Result(case.what, case.strength, case.value, case.observation, float(np.mean(found.success)),
                  round(min(found.closest), 4) if found.closest else None, episodes, round(float(np.mean(found.returns)), 2))


def falls(result: Result, usual: Result) -> bool:
    return result.success < usual.success - LOSES


def loses(result: Result, usual: Result) -> bool:
    """Whether this is a loss against what it has as trained, and not chance."""
    return falls(result, usual) and chance(result.failures, result.episodes, usual.failures, usual.episodes) < CHANCE


def chance(failures: int, episodes: int, usual_failures: int, usual_episodes: int) -> float:
    """Fisher's exact test: how likely so many or more of all the failures fall on this case if it is as good as the usual."""
    all_failures, n = failures + usual_failures, episodes + usual_episodes
    ways = sum(math.comb(episodes, k) * math.comb(usual_episodes, all_failures - k)
               for k in range(failures, min(all_failures, episodes) + 1))
    return ways / math.comb(n, all_failures)


def fingerprint(policy: PolicyRunner) -> str:
    """Tells policies apart by what they do."""
    digest = hashlib.sha256(json.dumps([policy.card.gates, policy.card.activation], sort_keys=True).encode())
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
