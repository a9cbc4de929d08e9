"""Collects demonstrations from a task's demonstrators; episode k depends on the seed and k alone, so a cut-off run goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cail_core.config import to_dict
from cail_core.demos import layout
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.episode import Episode, end_flags, outcome_of
from cail_core.demos.features import ACTION, REWARD, STATE, SUCCESS, frame_features
from cail_core.demos.truth import Marking, TruthWriter
from cail_core.demos.writer import DemoWriter
from cail_core.errors import BadInput
from cail_core.policy import load_demonstrators
from cail_core.tasks import BatchEnv, Demonstrator, Policy, RestartableEnv, Step, Task, TaskSpec
from cail_core.tasks.base import Array
from cail_core.users import import_module

Mix = Sequence[tuple[Demonstrator, float]]
"""Who demonstrates, and which share of the episodes each gives."""


def schedule(mix: Mix, episodes: int) -> list[Demonstrator]:
    """Who gives which episode: at every length of the list the shares are met as closely as whole numbers allow."""
    given = [0] * len(mix)
    order = []
    for k in range(1, episodes + 1):
        behind = [share * k - n for (_, share), n in zip(mix, given, strict=True)]
        turn = int(np.argmax(behind))
        given[turn] += 1
        order.append(mix[turn][0])
    return order


class Take:
    """One episode of one demonstrator while it is recorded."""

    def __init__(self, who: Demonstrator, policy: Policy, first: Array, spec: TaskSpec | None = None) -> None:
        self.who, self.policy, self.observation, self._spec = who, policy, first, spec
        self._states: list[Array] = []
        self._actions: list[Array] = []
        self._rewards: list[float] = []
        self._successes: list[bool] = []
        self._bad: list[bool] = []

    def act(self) -> Array:
        self._states.append(self.observation)
        self._actions.append(self.policy(self.observation))
        self._bad.append(isinstance(self.policy, Marking) and self.policy.bad)
        return self._actions[-1]

    def follow(self, step: Step, i: int) -> bool:
        """Take over what the action led to in environment `i`; True when the episode ended."""
        self._rewards.append(float(step.reward[i]))
        self._successes.append(bool(step.success[i]))
        self.observation = step.observation[i]
        return bool(step.terminated[i] or step.truncated[i])

    def episode(self, step: Step, i: int, *, success: bool, outcome: str | None = None) -> Episode:
        """The whole, once `step` ended it; its first state is the true reset state."""
        truncated = not bool(step.terminated[i])
        frames: dict[str, Any] = {
            STATE: np.stack(self._states),
            ACTION: np.stack(self._actions) if self._spec is None else self._spec.in_units(np.stack(self._actions)),
            REWARD: np.array(self._rewards, dtype=np.float32),
            **end_flags(len(self._states), truncated=truncated),
        }
        if success:
            frames[SUCCESS] = np.array(self._successes, dtype=bool)
        outcome = outcome or outcome_of(self._successes[-1] if success else None, truncated)
        return Episode(frames, step.next_observation[i].copy(), self.who.name, outcome, bad=np.array(self._bad, dtype=bool))


def roll_out(env: BatchEnv, who: Demonstrator, seed: tuple[int, int], *, success: bool, spec: TaskSpec | None = None) -> Episode:
    """One episode of one demonstrator in a single environment; its actions in the units that `spec` has for them."""
    rng = np.random.default_rng(seed)
    policy = who.start(rng)
    take = Take(who, policy, env.reset(seed=int(rng.integers(2**31)))[0], spec)
    while True:
        step = env.step(take.act()[None])
        if take.follow(step, 0):
            return take.episode(step, 0, success=success)


def roll_out_many(
    env: RestartableEnv, turns: Iterable[tuple[int, Demonstrator]], seed: int, *, success: bool, spec: TaskSpec | None = None
) -> Iterator[Episode]:
    """The episodes of `turns` (number and demonstrator), in their order, as many at once as there are environments."""
    order = list(turns)
    waiting, finished = iter(order), dict[int, Episode]()
    takes: list[tuple[int, Take] | None] = [None] * env.num_envs
    idle: Array | None = None
    for number, _ in order:
        while number not in finished:
            for i, busy in enumerate(takes):
                if busy is None and (turn := next(waiting, None)) is not None:
                    k, who = turn
                    rng = np.random.default_rng((seed, k))
                    policy = who.start(rng)
                    takes[i] = k, Take(who, policy, env.restart(i, int(rng.integers(2**31))), spec)
            actions = [take[1].act() if take else idle for take in takes]
            idle = np.zeros_like(next(action for action in actions if action is not None))
            step = env.step(np.stack([idle if action is None else action for action in actions]))
            for i, busy in enumerate(takes):
                if busy is not None and busy[1].follow(step, i):
                    finished[busy[0]] = busy[1].episode(step, i, success=success, outcome=env.outcome(i))
                    takes[i] = None
        yield finished.pop(number)


def mix_of(task: Task, name: str) -> Mix:
    """The task's mix of that name."""
    mixes = task.mixes()
    if not mixes:
        raise BadInput(f"task '{task.spec.name}' brings no demonstrators; give your own with --demonstrators MODULE:FUNCTION, or "
                       f"saved policies with --policies (`cail oracle --task {task.spec.name} --out DIR` trains some)")
    if name not in mixes:
        raise BadInput(f"expected a mix out of {', '.join(mixes)} for task '{task.spec.name}', given '{name}'")
    return mixes[name]


def mix_of_policies(task: Task, folders: Sequence[Path]) -> Mix:
    """Saved policies (or folders of them) as demonstrators, each with the same share of the episodes."""
    people = load_demonstrators(folders, task.spec)
    return [(who, 1 / len(people)) for who in people]


def mix_of_function(task: Task, where: str) -> Mix:
    """What MODULE:FUNCTION returns, each with the same share of the episodes: {name: start}, where start(rng) begins an episode
    and gives its policy, and policy(observation) gives an action. Observations are what the environment gives (a dict, where it
    gives one), actions are in its own units and are cut off at its bounds."""
    module, _, function = where.partition(":")
    if not module or not function:
        raise BadInput(f"expected --demonstrators MODULE:FUNCTION, given '{where}'")
    loaded = import_module(module, f"--demonstrators {where}")
    given = getattr(loaded, function, None)
    if not callable(given):
        raise BadInput(f"--demonstrators {where}: the module {module} has no function '{function}'")
    people = given()
    if not isinstance(people, dict) or not people or not all(callable(start) for start in people.values()):
        raise BadInput(f"--demonstrators {where}: expected a dict of names and functions start(rng), given {people!r}")
    file = getattr(loaded, "__file__", None)
    version = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else ""
    return [(Demonstrator(str(name), _starter(task, start, f"{where}, {name}"), version), 1 / len(people))
            for name, start in people.items()]


def _starter(task: Task, start: Callable[[np.random.Generator], Callable[[Any], Any]],
             what: str) -> Callable[[np.random.Generator], Policy]:
    spec = task.spec
    as_given = getattr(task, "as_given", lambda state: state)

    def begun(rng: np.random.Generator) -> Policy:
        act = start(rng)
        if not callable(act):
            raise BadInput(f"{what}: expected start(rng) to give a function of the observation, given {act!r}")

        def policy(state: Array) -> Array:
            action = np.asarray(act(as_given(state)), dtype=np.float64).reshape(-1)
            if action.shape != (spec.action_dim,) or not np.isfinite(action).all():
                raise BadInput(f"{what}: expected {spec.action_dim} finite numbers ({', '.join(spec.action_names)}), given "
                               f"{action}")
            return np.clip(spec.normalised(action), -1.0, 1.0)

        return policy

    return begun


def collect(
    task: Task,
    mix: Mix,
    episodes: int,
    seed: int,
    out: Path,
    *,
    truth: bool = False,
    progress: Callable[[int], None] = lambda saved: None,
) -> DemoDataset:
    """Fill the dataset at `out` up to `episodes`; each is durable once saved, and the same call goes on where one stopped.

    `truth`: keep beside it which frames were shown badly on purpose (`demos/truth.py`).
    """
    spec = task.spec
    if episodes < 1:
        raise BadInput(f"expected at least 1 episode, given {episodes}")
    recipe = {
        "demonstrators": {who.name: [share, who.version] for who, share in mix},
        "settings": to_dict(config) if (config := getattr(task, "config", None)) is not None else {},
        "episodes": episodes,
        "seed": seed,
    }
    recipe = json.loads(json.dumps(recipe))  # as it is read back: without tuples
    if (out / layout.INFO).exists():
        known = DemoDataset(out)
        if known.task != spec.name or known.info["cail"].get("collect") != recipe:
            raise BadInput(
                f"{out} exists and was not collected with this task, its settings, mix, number of episodes and seed; "
                "choose another --out, or the same options to go on with it"
            )
        writer = DemoWriter.open(out)
    else:
        writer = DemoWriter.create(
            out,
            task=spec.name,
            text=spec.text,
            robot_type=spec.robot_type,
            fps=spec.fps,
            features=frame_features(spec.observation_names, spec.action_names, success=spec.has_success),
            about={"collect": recipe},
        )
    kept = TruthWriter(out, writer.episodes) if truth else None
    turns = list(enumerate(schedule(mix, episodes)))[writer.episodes :]
    env = task.make_env(min(max(1, len(turns)), spec.most_envs))
    if not isinstance(env, RestartableEnv):
        env.close()
        env = task.make_env(1)
    try:
        with writer:
            if isinstance(env, RestartableEnv):
                made = roll_out_many(env, turns, seed, success=spec.has_success, spec=spec)
            else:
                made = (roll_out(env, who, (seed, k), success=spec.has_success, spec=spec) for k, who in turns)
            for episode in made:
                if kept is not None and episode.bad is not None:
                    kept.add(episode.bad)
                writer.save_episode(episode)
                progress(writer.episodes)
    finally:
        env.close()
    return DemoDataset(out)
