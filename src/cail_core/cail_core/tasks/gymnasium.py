"""Any Gymnasium environment as a task: `gym:FetchPickAndPlace-v4`, or `gym:my_module:MyEnv-v0` where a module registers it.

Observations become one vector with a name for every number, actions lie in [-1, 1] whatever the bounds of the environment's Box,
`is_success` or `success` in `info` is the success, the registered `max_episode_steps` the horizon. Every episode is begun from a
seed of its own, so that the episodes do not depend on how many environments or processes there are.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from cail_core.errors import BadInput, CailError
from cail_core.tasks.base import GYM, Array, BatchEnv, Demonstrator, Policy, TaskSpec
from cail_core.tasks.from_dataset import range_text
from cail_core.tasks.gym_batch import GymBatch
from cail_core.tasks.gym_robotics import mend
from cail_core.users import first_line, import_module
from cail_core.video import CannotRender

SUCCESS = ("is_success", "success")
"""Keys of `info` that tell of success, the first that is there."""
USUAL_HZ = 10
LARGEST = 2000
"""Entries of an observation; more are a picture in all but name."""
PROBED_STEPS = 5
FAMILIES = ("gymnasium_robotics",)
"""Packages that register environments once they are imported; tried where an ID is not known."""


@dataclass(frozen=True)
class Leaf:
    """One array of an observation: where it is, and how many numbers it gives."""

    path: tuple[str | int, ...]
    space: spaces.Space[Any]
    size: int

    @property
    def names(self) -> list[str]:
        name = "_".join(map(str, self.path)) or "observation"
        return [name] if self.size == 1 else [f"{name}_{i}" for i in range(self.size)]

    def numbers(self, observation: Any) -> NDArray[Any]:
        for key in self.path:
            observation = observation[key]
        if isinstance(self.space, spaces.Box):
            return np.ravel(np.asarray(observation))
        return np.asarray(spaces.flatten(self.space, observation))  # one entry for each value of a discrete one

    def value(self, numbers: Array) -> Any:
        """As the environment gives it."""
        if isinstance(self.space, spaces.Box):
            return numbers.reshape(self.space.shape)
        return spaces.unflatten(self.space, numbers)


def leaves_of(name: str, space: spaces.Space[Any], path: tuple[str | int, ...] = ()) -> list[Leaf]:
    """All arrays of an observation, in the order of the space; BadInput where one is no vector."""
    if isinstance(space, spaces.Dict):
        return [leaf for key, part in space.spaces.items() for leaf in leaves_of(name, part, (*path, key))]
    if isinstance(space, spaces.Tuple):
        return [leaf for i, part in enumerate(space.spaces) for leaf in leaves_of(name, part, (*path, i))]
    what = f"observation '{'_'.join(map(str, path))}'" if path else "observation"
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)):
        size = spaces.flatdim(space)
        if len(space.shape or ()) < 3 and size <= LARGEST:
            return [Leaf(path, space, size)]
        raise BadInput(f"{name}: expected observations of at most {LARGEST} numbers, its {what} is a picture ({space}); "
                       "leave it out with gymnasium.wrappers.FilterObservation where the environment is registered")
    raise BadInput(f"{name}: expected observations of numbers, its {what} is {space}; wrap the environment so that it is a Box")


def make(ident: str, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """The environment `[MODULE:]ID`; whatever keeps it from being made is one line."""
    module, _, env_id = ident.rpartition(":")
    if module:
        import_module(module, f"{GYM}:{ident}")
    for family in (None, *FAMILIES):
        if family is not None:
            with contextlib.suppress(ImportError), contextlib.redirect_stderr(io.StringIO()):  # it writes of others than this one
                gymnasium.register_envs(importlib.import_module(family))
        if "gymnasium_robotics" in sys.modules:  # a module of the user's may have brought it
            mend()
        try:
            return gymnasium.make(env_id, render_mode=render_mode, disable_env_checker=True)
        except gymnasium.error.UnregisteredEnv as fault:
            unknown = fault
        except Exception as fault:  # an environment may fail to be made in any way
            raise BadInput(f"{GYM}:{ident}: cannot be made ({type(fault).__name__}: {first_line(fault)})") from fault
    raise BadInput(f"{GYM}:{ident}: {first_line(unknown)} Expected an ID that is registered, or {GYM}:MODULE:ID with the module "
                   "that registers it")


class GymTask:
    """The task of one Gymnasium environment."""

    def __init__(self, ident: str) -> None:
        self.ident, name = ident, f"{GYM}:{ident}"
        env = make(ident)
        try:
            self._actions = box_of(name, env.action_space)
            self.leaves = leaves_of(name, env.observation_space)
            horizon = getattr(env.spec, "max_episode_steps", None)
            if not horizon:
                raise BadInput(f"{name}: expected a time limit; register it with max_episode_steps=N")
            self._step_s, has_success = self._probed(env)
            fps = rate_of(env)
            names = {kind: named(env, f"{kind}_names", default) for kind, default in (
                ("observation", [n for leaf in self.leaves for n in leaf.names]), ("action", action_names(self._actions)))}
        finally:
            env.close()
        low, high = (tuple(map(float, np.ravel(bound))) for bound in (self._actions.low, self._actions.high))
        plain = all(a == -1.0 for a in low) and all(b == 1.0 for b in high)
        self.spec = TaskSpec(
            name=name, text=f"The Gymnasium environment {ident}.", robot_type=ident.rpartition(":")[2], fps=fps,
            max_steps=int(horizon), observation_names=names["observation"], action_names=names["action"],
            action_scale="1" if plain else range_text(names["action"], low, high, ()), has_success=has_success,
            action_low=() if plain else low, action_high=() if plain else high, own_units=True)

    def make_env(self, num_envs: int) -> BatchEnv:
        return GymBatch(self._opened, num_envs, self.spec.observation_dim, self.spec.action_dim, self._step_s)

    def mixes(self) -> dict[str, Sequence[tuple[Demonstrator, float]]]:
        return {}

    def as_given(self, state: Array) -> Any:
        """A state as the environment itself gives it, such as a dict, for demonstrators that were written for it."""
        parts = np.split(np.asarray(state), np.cumsum([leaf.size for leaf in self.leaves])[:-1])
        whole: Any = {}
        for leaf, numbers in zip(self.leaves, parts, strict=True):
            if not leaf.path:
                return leaf.value(numbers)
            place = whole
            for key in leaf.path[:-1]:
                place = place.setdefault(key, {})
            place[leaf.path[-1]] = leaf.value(numbers)
        return whole

    def render_episode(self, policy: Policy, seed: int) -> Iterator[NDArray[np.uint8]]:
        """One episode of a policy on batches of one, a picture for each step."""
        if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            os.environ.setdefault("MUJOCO_GL", "egl")  # or Gymnasium's MuJoCo environments try for a window first
        try:
            played = self._opened("rgb_array")
        except BadInput as fault:
            raise CannotRender(str(fault)) from None
        try:
            observation, ended = played.reset(seed), False
            while not ended:
                try:
                    picture = played.env.render()
                except Exception as fault:  # each renderer fails in its own way where there is no driver
                    raise CannotRender(f"its pictures cannot be drawn here ({first_line(fault)})") from None
                if not isinstance(picture, np.ndarray) or picture.ndim != 3:
                    raise CannotRender("it has no pictures of itself (render_mode rgb_array)")
                yield picture.astype(np.uint8, copy=False)
                observation, _, terminated, truncated, _ = played.step(policy(observation[None])[0])
                ended = terminated or truncated
        finally:
            played.close()

    def _opened(self, render_mode: str | None = None) -> Opened:
        return Opened(make(self.ident, render_mode), self.leaves, self._actions)

    def _probed(self, env: gymnasium.Env[Any, Any]) -> tuple[float, bool]:
        """How long a step takes, s, and whether the environment tells of success."""
        played = Opened(env, self.leaves, self._actions)
        played.reset(0)
        action = np.zeros(int(np.prod(self._actions.shape)), np.float32)
        took = []
        for _ in range(PROBED_STEPS):
            before = time.perf_counter()
            *_, terminated, truncated, _ = played.step(action)
            took.append(time.perf_counter() - before)
            if terminated or truncated:
                break
        return float(np.median(took)), any(key in played.info for key in SUCCESS)


class Opened:
    """One environment that takes actions in [-1, 1] and gives vectors."""

    def __init__(self, env: gymnasium.Env[Any, Any], leaves: Sequence[Leaf], actions: spaces.Box) -> None:
        self.env, self._leaves, self._actions = env, leaves, actions
        self._low, self._high = actions.low.astype(np.float64), actions.high.astype(np.float64)
        self.info: Mapping[str, Any] = {}

    def reset(self, seed: int) -> Array:
        observation, self.info = self.env.reset(seed=seed)
        return self._vector(observation)

    def step(self, action: Array) -> tuple[Array, float, bool, bool, bool]:
        """Observation, reward, terminated, truncated, success."""
        share = (np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0).reshape(self._actions.shape) + 1.0) / 2.0
        asked = (self._low + share * (self._high - self._low)).astype(self._actions.dtype)
        observation, reward, terminated, truncated, self.info = self.env.step(asked)
        told = next((bool(np.all(self.info[key])) for key in SUCCESS if key in self.info), False)
        return self._vector(observation), float(reward), bool(terminated), bool(truncated) and not terminated, told

    def close(self) -> None:
        self.env.close()

    def _vector(self, observation: Any) -> Array:
        made = np.concatenate([leaf.numbers(observation) for leaf in self._leaves]).astype(np.float32)
        if not np.isfinite(made).all():
            raise CailError(f"the environment {self.env.spec.id if self.env.spec else ''} observed NaN or infinite numbers")
        return made


def box_of(name: str, space: spaces.Space[Any]) -> spaces.Box:
    """The environment's actions, if they are continuous and bounded."""
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise BadInput(f"{name}: expected continuous actions (a Box), given {space}; wrap the environment so that they are")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all() and (space.low < space.high).all()):
        raise BadInput(f"{name}: expected actions with bounds, given {space}; bound them where the environment is registered "
                       "(gymnasium.wrappers.RescaleAction, or a wrapper that gives another action_space)")
    return space


def action_names(space: spaces.Box) -> list[str]:
    return [f"action_{i}" for i in range(int(np.prod(space.shape)))]


def named(env: gymnasium.Env[Any, Any], attribute: str, otherwise: Sequence[str]) -> tuple[str, ...]:
    """Names that the environment itself has for its numbers, where there are as many."""
    given = getattr(env.unwrapped, attribute, None)
    fits = isinstance(given, (list, tuple)) and len(given) == len(otherwise) == len(set(given))
    return tuple(map(str, given)) if given is not None and fits else tuple(otherwise)


def rate_of(env: gymnasium.Env[Any, Any]) -> int:
    """Steps per second of the environment's own time."""
    rate = env.metadata.get("render_fps")
    with contextlib.suppress(AttributeError, TypeError, ZeroDivisionError):
        rate = rate or 1.0 / float(env.unwrapped.dt)  # type: ignore[attr-defined]
    return max(1, round(rate or USUAL_HZ))


@functools.lru_cache(maxsize=16)
def gym_task(ident: str) -> GymTask:
    """Made once: to look at an environment takes as long as to make it."""
    return GymTask(ident)
