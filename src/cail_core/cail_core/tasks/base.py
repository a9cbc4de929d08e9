"""What a task is: names, units, limits, environments to act in, and demonstrators of graded quality."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cail_core.errors import BadInput
from cail_core.recording.topics import faults_of

if TYPE_CHECKING:
    from cail_core.policy import Network

Array = NDArray[np.float32]
Flags = NDArray[np.bool_]
GYM, DATA = "gym", "data"
"""Names of tasks that need no package: `gym:ID` is a Gymnasium environment, `data:NAME` a dataset without an environment."""


class NoEnvironment(BadInput):
    """Something must act, and there is nothing to act in."""


Axis = Mapping[str, float]
"""A coordinate in metres as a weighted sum of entries of the observation; the entry "1" stands for the number 1."""


@dataclass(frozen=True)
class Thing:
    """Something that stands in the scene and is drawn: a goal, or what must be kept clear of."""

    name: str
    at: tuple[Axis, ...]
    radius_m: float = 0.0
    keep_clear: bool = False


@dataclass(frozen=True)
class View:
    """What a person would see from above (x, y) and, where the task has height (z), from the side."""

    moves: str
    position: tuple[Axis, ...]
    things: tuple[Thing, ...] = ()
    radius_m: float = 0.0
    """Half the width of what moves: counts as well in the distance to what must be kept clear of."""
    labels: tuple[str, ...] = ("x", "y", "z")


@dataclass(frozen=True)
class Gate:
    """Observations that mean something in one phase of a task only: where every entry of `when` lies within its bounds, a policy
    does not see those that are `hidden`, and cannot steer by what they happen to be."""

    hidden: tuple[str, ...]
    when: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Sensor:
    """Something that is measured with an error, and by how much each entry of the observation moves for each unit of it."""

    name: str
    unit: str
    uncertainty: float
    """What it may be wrong by, all of an episode."""
    moves: Mapping[str, float]


@dataclass(frozen=True)
class TaskSpec:
    """The fixed facts of a task. Actions are always in [-1, 1]; `action_scale` says what 1 means."""

    name: str
    text: str
    robot_type: str
    fps: int
    max_steps: int
    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    action_scale: str = "1"
    has_success: bool = False
    most_envs: int = 20
    """Environments worth having at once: a world of a simulator may take much memory."""
    view: View | None = None
    on_arm: bool = False
    """Acted out by an arm over ROS, perhaps a real one: nothing plays there that was not asked for."""
    observation_units: str = ""
    """How the observed numbers are meant, such as "lengths in units of 0.2 m"; a policy's card keeps it."""
    start_m: tuple[float, ...] = ()
    """About where the tool is when an episode begins, m; empty where that means nothing."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """What the safety filter allows where the task is learned; a policy's card keeps it."""
    gates: tuple[Gate, ...] = ()
    sensors: tuple[Sensor, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)
    """What the task looks at beside the arm: topic -> type, such as {"cup_1": POSE} of `recording.topics`. In a lab a tracker
    publishes it."""
    simulated_by: str = ""
    """Which robot of `cail deploy` simulates it behind a node; none where it is no arm's task."""
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    """What actions of -1 and 1 mean in the units of the demonstrations; empty where these hold numbers in [-1, 1] themselves."""
    action_units: tuple[str, ...] = ()
    own_units: bool = False
    """The observations come in units that were not chosen for a learner: training standardises them by the demonstrations."""
    has_environment: bool = True
    """Whether there is anything to act in; False where all that is known of the task is its demonstrations."""

    def __post_init__(self) -> None:
        if wrong := faults_of(self.needs):
            raise ValueError(f"needs of '{self.name}': {'; '.join(wrong)}")
        places = () if self.view is None else (self.view.position, *(thing.at for thing in self.view.things))
        unknown = sorted({name for at in places for axis in at for name in axis} - {"1", *self.observation_names})
        named = {name for gate in self.gates for name in (*gate.hidden, *gate.when)} | {n for s in self.sensors for n in s.moves}
        if strange := sorted(named - set(self.observation_names)):
            raise ValueError(f"gates or sensors of '{self.name}' use {', '.join(strange)}, which are no observations of it")
        if unknown:
            raise ValueError(f"the view of '{self.name}' uses {', '.join(unknown)}, which are no observations of it")

    def place(self, at: Sequence[Axis], states: NDArray[np.floating]) -> NDArray[np.float64]:
        """Coordinates in metres, one row for each row of `states`."""
        entry = {name: i for i, name in enumerate(self.observation_names)}
        made = np.zeros((len(states), len(at)))
        for column, axis in enumerate(at):
            for name, weight in axis.items():
                made[:, column] += weight * (1.0 if name == "1" else states[:, entry[name]])
        return made

    def normalised(self, actions: NDArray[np.floating]) -> Array:
        """Actions as the demonstrations hold them, in [-1, 1]."""
        if not self.action_low:
            return np.asarray(actions, dtype=np.float32)
        low, high = np.array(self.action_low), np.array(self.action_high)
        made: Array = (2.0 * (np.asarray(actions, dtype=np.float64) - low) / (high - low) - 1.0).astype(np.float32)
        return made

    def in_units(self, actions: NDArray[np.floating]) -> Array:
        """Actions in [-1, 1] as the demonstrations hold them."""
        return in_units(actions, self.action_low, self.action_high)

    @property
    def observation_dim(self) -> int:
        return len(self.observation_names)

    @property
    def action_dim(self) -> int:
        return len(self.action_names)


def in_units(actions: NDArray[np.floating], low: Sequence[float], high: Sequence[float]) -> Array:
    """Actions in [-1, 1] between `low` and `high`; as they are where these are empty."""
    if not len(low):
        return np.asarray(actions, dtype=np.float32)
    bottom, top = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    made: Array = (bottom + (np.asarray(actions, dtype=np.float64) + 1.0) / 2.0 * (top - bottom)).astype(np.float32)
    return made


def metres_per_second(action_scale: str) -> float | None:
    """The speed that an action of 1 means, such as of "0.5 m/s"; None where it means something else."""
    number, _, unit = action_scale.partition(" ")
    try:
        value = float(number)
    except ValueError:
        return None
    return value if unit == "m/s" and value > 0 else None


class Step(NamedTuple):
    """One step of a batch of environments.

    `next_observation` is the state the action led to, also at an episode's end; `observation` is the state to act on
    next: the same one, or the first of a new episode where `terminated` (the task ended) or `truncated` (time limit).
    """

    observation: Array
    next_observation: Array
    reward: Array
    terminated: Flags
    truncated: Flags
    success: Flags


class BatchEnv(Protocol):
    """`num_envs` environments stepped at once; an environment that ends starts its next episode by itself."""

    num_envs: int

    def reset(self, seed: int) -> Array:
        """Start all episodes anew; the same seed gives the same episodes."""
        ...

    def step(self, action: Array) -> Step: ...

    def close(self) -> None: ...


@runtime_checkable
class RestartableEnv(BatchEnv, Protocol):
    """Environments that can each be given an episode of its own, so that many demonstrations are collected at once."""

    def restart(self, which: int, seed: int) -> Array:
        """Begin an episode in one environment; the same seed gives the same one in any of them."""
        ...

    def outcome(self, which: int) -> str | None:
        """How the episode ended that the last step ended in this environment (a name of `demos.episode.OUTCOMES`)."""
        ...


@runtime_checkable
class RepeatingEnv(BatchEnv, Protocol):
    """Environments that can be told what episodes to begin, the same ones again too."""

    def begin(self, agenda: Sequence[Sequence[int]]) -> Array:
        """Start all episodes anew: environment i begins its first from the seed agenda[i][0], its second from agenda[i][1], and
        so on; when these are used up, it goes on with others. The same seed gives the same start in any of them."""
        ...


class Played(NamedTuple):
    """T steps of n environments, every array [T, n, …] as in `Step`; `current` [n, …] is the state to act on next."""

    observation: Array
    action: Array
    next_observation: Array
    reward: Array
    terminated: Flags
    truncated: Flags
    success: Flags
    current: Array


@runtime_checkable
class PlayingEnv(BatchEnv, Protocol):
    """Environments that take a network along and act on it for many steps without asking for each action."""

    def play(self, network: Network, steps: int, noise: Array | None = None, gain: Array | None = None) -> Played:
        """Do tanh(gain · network(observation) + noise), with noise [T, n, …] and gain [n, …] as they are given; without noise the
        deterministic policy."""
        ...


Policy = Callable[[Array], Array]
"""Maps one observation to one action in [-1, 1]."""


@dataclass(frozen=True)
class Demonstrator:
    """A source of demonstrations: `start` draws one episode's habits and returns the policy for it."""

    name: str
    start: Callable[[np.random.Generator], Policy]
    version: str = ""
    """Tells two sources of the same name apart, such as a saved policy before and after training on."""


@runtime_checkable
class Task(Protocol):
    """A task by name: what it looks like, where to act in it, who demonstrates it."""

    spec: TaskSpec

    def make_env(self, num_envs: int) -> BatchEnv: ...

    def mixes(self) -> dict[str, Sequence[tuple[Demonstrator, float]]]:
        """Named mixes of demonstrators with the share of the episodes that each gives."""
        ...


@runtime_checkable
class Practised(Task, Protocol):
    """A task that can be made harder to practise in, so that what comes of it is safe in the task itself."""

    def stricter(self) -> Task: ...


def task_names() -> list[str]:
    """All installed tasks, of this package and of others that register under `cail.tasks`."""
    return sorted({entry.name for entry in entry_points(group="cail.tasks")})


def get_task(name: str, config_file: Path | None = None) -> Task:
    """The task called `name`, with its installed settings or those of `config_file`; `gym:[MODULE:]ID` is any Gymnasium one."""
    kind, _, rest = name.partition(":")
    if kind == GYM and rest:
        if config_file is not None:
            raise BadInput(f"expected no settings file for '{name}': a Gymnasium environment has its own; leave --config out")
        from cail_core.tasks.gymnasium import gym_task  # here: Gymnasium takes a while to import

        return gym_task(rest)
    if kind == DATA and rest:
        raise NoEnvironment(f"'{name}' is known by its demonstrations alone: there is no environment to act in; "
                            f"give one with --task ({GYM}:[MODULE:]ID, {', '.join(task_names())})")
    for entry in entry_points(group="cail.tasks"):
        if entry.name == name:
            task = entry.load()(config_file)
            if not isinstance(task, Task):
                raise BadInput(f"task '{name}' ({entry.value}) lacks spec, make_env or mixes: see cail_core.tasks.Task")
            return task
    raise BadInput(f"expected a task out of {', '.join(task_names())} or {GYM}:[MODULE:]ID, given '{name}'")
