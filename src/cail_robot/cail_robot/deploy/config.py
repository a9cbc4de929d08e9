"""Settings of a deployment, and everything that is checked before anything starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cail_core.config import setting
from cail_core.demos.collect import mix_of, schedule
from cail_core.errors import BadInput, listed
from cail_core.guard import Guard
from cail_core.policy import load_policy
from cail_core.recording.episode_builder import ActingView, RecordableTask, recordable
from cail_core.stress.played import stressable
from cail_core.tasks import Demonstrator, TaskSpec
from cail_core.tasks.base import Array, Policy, Task, metres_per_second
from cail_robot.control.speed_scaling import Slower
from cail_robot.deploy.stress import WAY_OUT, asked_beyond
from cail_robot.robot import RobotSpec, kind_of, robot_or_unknown
from cail_robot.safety.limits import Limits

OUTSIDE_M = 0.01
"""So far demonstrations may lie outside of an arm's workspace."""
OUTLIERS = 0.01
"""Share of the states at either end that do not count there: a tool that runs into something is pushed out for a moment."""


@dataclass(frozen=True)
class DeployConfig:
    """`config/deploy.yaml`."""

    arm_max_age_s: float = setting(0.2, "pose, gripper, executed twist: older stops the policy", low=0.03, high=60.0)
    things_max_age_s: float = setting(0.5, "poses of the task's things: older stops the policy", low=0.03, high=60.0)
    stale_grace_s: float = setting(1.0, "inputs that are fresh again within this let the policy go on", low=0.0, high=60.0)
    resume_within_s: float = setting(
        0.5, "a real arm that stood still for longer, whatever held it, goes on only when a person says so", low=0.05, high=5.0
    )
    home_limit_s: float = setting(60.0, "the way back may take so long; then a person decides", low=5.0, high=600.0)
    settle_s: float = setting(0.3, "from a reset to the first decision, and from the end to the saving", low=0.05, high=10.0)
    lost_after_s: float = setting(5.0, "no word of the arm's node for so long ends the deployment", low=1.0, high=600.0)
    home_speed: float = setting(0.1, "on the way back to the start, m/s", low=0.01, high=0.25)
    home_rise_m: float = setting(0.12, "above the start, on the way across, m", low=0.0, high=0.5)
    home_within_m: float = setting(0.07, "an arm this close to the start stays where it is, m", low=0.01, high=1.0)


def stale(ages: Mapping[str, float], config: DeployConfig) -> list[str]:
    """Which inputs are too old to act on, and how old."""
    limit = dict.fromkeys(("ee_pose", "twist_executed", "gripper_state"), config.arm_max_age_s)
    return [f"{name} {'was never heard' if math.isinf(age) else f'is {age:.2f} s old'}" for name, age in ages.items()
            if age > limit.get(name, config.things_max_age_s)]


@dataclass(frozen=True)
class Deployment:
    """A policy that fits its arm, and how it is run there."""

    task: RecordableTask
    policy: Policy
    guard: Guard | None
    name: str
    robot: RobotSpec
    rate: int
    max_speed: float
    """m/s, what an action of 1 means here."""
    trained_speed: float
    limits: Limits
    """The arm's."""
    notes: tuple[str, ...]
    """What a person should know before it moves."""
    people: tuple[Demonstrator, ...] = ()
    """Scripted people who give one episode each, in turn, in the place of a policy."""
    seed: int = 0
    trained_limits: Mapping[str, float] = field(default_factory=dict)
    held: Mapping[str, float] = field(default_factory=dict)
    """How far conditions may go, as its card was shown (`cail stress`); empty where that is not known."""
    beyond_stress: bool = False
    """It is run whatever its card holds."""

    def player(self, episode: int) -> tuple[str, Policy]:
        """Who commands an episode, and what they do."""
        if not self.people:
            return f"policy {self.name}", self.policy
        who = self.people[episode % len(self.people)]
        return who.name, who.start(np.random.default_rng((self.seed, episode)))

    @property
    def slower(self) -> float:
        """The share of the trained speed that it runs at."""
        return self.max_speed / self.trained_speed

    def slowed(self) -> Slower:
        """What keeps the path on an arm that is slower than the trained one."""
        trained = self.trained_limits
        return Slower(self.slower, self.trained_speed, trained.get("max_linear_acceleration", 0.0),
                      trained.get("max_linear_jerk", 0.0), 1.0 / self.rate)

    @property
    def time_limit_s(self) -> float:
        """The task's, longer where it moves slower."""
        return self.task.spec.max_steps / self.task.spec.fps / self.slower

    def start(self) -> tuple[float, ...] | None:
        """Where the tool was when the demonstrations began, m."""
        if self.guard is None or self.task.spec.view is None:
            return self.task.spec.start_m or None
        place = _tool(self.task.spec, self.guard.start[None])
        return None if place is None else tuple(place[0].tolist())

    def view(self) -> ActingView:
        view = self.task.over_topics(self.rate)
        assert isinstance(view, ActingView)
        return view


def prepare(
    folder: Path,
    limits: Limits,
    *,
    robot: RobotSpec | str,
    task: str = "",
    rate: int = 0,
    max_speed: float = 0.0,
    without_guard: bool = False,
    other_robot: bool = False,
    beyond_stress: bool = False,
) -> Deployment:
    """Hold the policy's card against the task, the arm and what was asked for; every mismatch is in one BadInput.

    `limits` are the arm's, `robot` is its spec or name. A `rate` or `max_speed` of 0 is the policy's own, as far as the arm
    allows it.
    """
    robot = robot if isinstance(robot, RobotSpec) else robot_or_unknown(robot)
    policy = load_policy(folder)
    card = policy.card
    faults: list[str] = []
    notes: list[str] = []
    found = recordable(task or card.task)
    spec = found.spec
    if spec.name != card.task:
        faults.append(f"task: it was trained for '{card.task}', asked for '{spec.name}'")
    faults += policy.faults(spec)
    faults += _robot_faults(card.robot, spec, robot, other_robot, notes)
    for name, value in card.limits.items():
        if name in spec.limits and spec.limits[name] != value:
            notes.append(f"trained with {name} {value:g}, the task's settings now say {spec.limits[name]:g}")
    if rate and not card.fps <= rate <= 500:
        faults.append(f"rate: it was trained at {card.fps} Hz, asked for {rate}: a decision would hold longer than trained"
                      if rate < card.fps else f"rate: expected at most 500 Hz, given {rate}")  # fmt: skip
    elif rate > card.fps:
        notes.append(f"decides {rate} times a second, trained at {card.fps}")
    try:
        acts = isinstance(found.over_topics(rate or card.fps), ActingView)
    except BadInput as fault:
        acts = True
        faults.append(f"rate: {fault}")
    if not acts:
        faults.append(f"task: '{spec.name}' can be recorded over topics but not acted in (no twist and gripper in its view)")
    trained, speed = metres_per_second(card.action_scale), max_speed
    if trained is None:
        faults.append(f"units: its action of 1 means {card.action_scale}, expected a speed such as 0.5 m/s")
    else:
        # Demonstrations of a slow arm ask for less than 1, and so does a policy that learned from them.
        fastest = trained * min(1.0, float(card.provenance.get("fastest_action", 1.0)) or 1.0)
        fastest = min(fastest, card.limits.get("max_linear_speed", fastest))
        if max_speed > trained:
            faults.append(f"max_speed: trained at {trained:g} m/s, asked for {max_speed:g}: faster than trained is refused")
        if max_speed * fastest / trained > limits.max_linear_speed * (1 + 1e-6):
            faults.append(f"max_speed: the arm's max_linear_speed is {limits.max_linear_speed:g} m/s, asked for {max_speed:g}")
        speed = max_speed or trained * min(1.0, limits.max_linear_speed / fastest)
        if speed < trained:
            notes.append(f"runs at {speed:g} m/s, trained at {trained:g}: everything takes {trained / speed:.3g} times as long")
    if not (math.isfinite(max_speed) and max_speed >= 0):
        faults.append(f"max_speed: expected a speed in m/s, or 0 for the policy's own, given {max_speed:g}")
    trained_acceleration = card.limits.get("max_linear_acceleration", 0.0)
    if limits.max_linear_acceleration < trained_acceleration:
        notes.append(
            f"the arm accelerates by at most {limits.max_linear_acceleration:g} m/s², in training by {trained_acceleration:g}"
        )
    held = card.stress.get("holds", {})
    if trained and speed > 0:
        # A slower arm keeps the path with less acceleration, by the square of its share (`slower`).
        share = speed / trained
        ratio = limits.max_linear_acceleration / (share**2 * trained_acceleration) if trained_acceleration else math.inf
        beyond = asked_beyond(held, share, (rate or card.fps) / card.fps, ratio)
        notes += [f"beyond what its card holds: {text}" for text in beyond] if beyond_stress else []
        faults += [] if beyond_stress else [f"{text}; {WAY_OUT}" for text in beyond]
    notes += _stress_notes(card.stress, found, folder)
    guard = policy.guard
    if without_guard:
        notes.append("runs without its out-of-distribution guard")
        guard = None
    elif guard is None:
        faults.append("guard: the policy has none (trained by an older version, or imported): train it again, or --without-guard")
    elif len(card.observation_names) == spec.observation_dim:
        faults += _outside(spec, guard, limits)
    if faults:
        raise BadInput(listed(f"{folder} does not fit and nothing was started", faults))
    return Deployment(found, policy, guard, _name(folder), robot, rate or card.fps, speed, trained or 1.0, limits, tuple(notes),
                      trained_limits=card.limits, held=held, beyond_stress=beyond_stress)


def _stress_notes(stress: Mapping[str, Any], task: Task, folder: Path) -> list[str]:
    """What a person should know of a card that says too little, or nothing good."""
    if not stress:
        return [f"its card does not say what it holds under delay, noise and other speeds: `cail stress --policy {folder}`"
                ] if stressable(task) else []
    if not stress["holds"]:
        return [f"its card: {'; '.join(stress['sentences'])}"]
    return [f"its card: {text}" for text in stress["sentences"] if text.startswith("steers by")]


def scripted(mix: str, limits: Limits, *, robot: RobotSpec | str, task: str, episodes: int, seed: int) -> Deployment:
    """The task's scripted people of a mix in the place of a policy: demonstrations of graded quality, recorded on an arm."""
    robot = robot if isinstance(robot, RobotSpec) else robot_or_unknown(robot)
    found = recordable(task)
    if not isinstance(found.over_topics(found.spec.fps), ActingView):
        raise BadInput(f"task: '{task}' can be recorded over topics but not acted in (no twist and gripper in its view)")
    people = tuple(schedule(mix_of(found, mix), episodes))
    trained = metres_per_second(found.spec.action_scale)
    if trained is None:
        raise BadInput(f"units: an action of 1 means {found.spec.action_scale}, expected a speed such as 0.5 m/s")
    speed = min(trained, limits.max_linear_speed)
    notes = (f"scripted people of the mix '{mix}' command, not a policy",)
    return Deployment(found, _nobody, None, mix, robot, found.spec.fps, speed, trained, limits, notes, people, seed,
                      found.spec.limits)


def _nobody(observation: Array) -> Array:
    raise RuntimeError("an episode of scripted people has a player of its own")


def _robot_faults(trained: str, spec: TaskSpec, robot: RobotSpec, other_robot: bool, notes: list[str]) -> list[str]:
    given = trained or spec.robot_type
    if kind_of(given) == robot.kind:
        return []
    text = f"it was trained on {given}, this is {robot.name}"
    if other_robot:
        notes.append(f"another robot: {text}")
        return []
    return [f"robot: {text}; --other-robot if that is meant"]


def _tool(spec: TaskSpec, states: np.ndarray) -> np.ndarray | None:
    if spec.view is None or len(spec.view.position) != 3:
        return None
    return spec.place(spec.view.position, states)


def _outside(spec: TaskSpec, guard: Guard, limits: Limits) -> list[str]:
    """Axes along which trusted demonstrations went where the arm may not."""
    places = _tool(spec, guard.states)
    if places is None:
        return []
    low, high = np.quantile(places, [OUTLIERS, 1 - OUTLIERS], axis=0)
    return [
        f"limits: trusted demonstrations reach {axis} from {a:.3f} to {b:.3f} m, the arm's workspace from {least:g} to {most:g}"
        for axis, a, b, least, most in zip("xyz", low, high, limits.floor, limits.ceiling, strict=True)
        if a < least - OUTSIDE_M or b > most + OUTSIDE_M
    ]


def _name(folder: Path) -> str:
    """What to call it: a policy in RUN/policy is known by its run."""
    path = folder.absolute()
    return path.parent.name if path.name == "policy" else path.name
