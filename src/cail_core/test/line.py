"""A task smaller than the point mass: move along a line to x = 0.5. Methods learn it in a second or two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from cail_core.algorithms.method import method_config, read_part
from cail_core.algorithms.settings import MethodConfig
from cail_core.algorithms.trainers.base import make_learner
from cail_core.demos.demonstrations import Demonstrations
from cail_core.evaluation import evaluate
from cail_core.tasks.base import Array, BatchEnv, Demonstrator, Step, TaskSpec

GOAL, STEPS = 0.5, 20
MIXED: dict[str, Any] = {"aims": (0.5, -0.5), "tremors": (0.1, 0.1), "episodes": 20}
"""`demonstrations` of which half aim at the wrong place."""


class LineEnv:
    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self._rng = np.random.default_rng(0)
        self._x = np.zeros((num_envs, 1), np.float32)
        self._t = 0

    def reset(self, seed: int) -> Array:
        self._rng = np.random.default_rng(seed)
        return self._start()

    def _start(self) -> Array:
        self._t = 0
        self._x = self._rng.uniform(-1, 1, (self.num_envs, 1)).astype(np.float32)
        return self._x.copy()

    def step(self, action: Array) -> Step:
        self._x = np.clip(self._x + 0.2 * np.clip(action, -1, 1), -1, 1).astype(np.float32)
        reached = self._x.copy()
        self._t += 1
        over = np.full(self.num_envs, self._t == STEPS)
        following = self._start() if self._t == STEPS else reached
        return Step(following, reached, -np.abs(reached[:, 0] - GOAL), np.zeros_like(over), over, np.zeros_like(over))

    def close(self) -> None:
        """Nothing to release."""


class Line:
    spec = TaskSpec("line", "Move to 0.5.", "line", 10, STEPS, ("x",), ("velocity",))

    def make_env(self, num_envs: int) -> BatchEnv:
        return LineEnv(num_envs)

    def mixes(self) -> dict[str, Sequence[tuple[Demonstrator, float]]]:
        return {}


def demonstrations(
    aims: Sequence[float], tremors: Sequence[float], *, episodes: int, ranked: int = 0, seed: int = 0
) -> Demonstrations:
    """`episodes` of each of some people, who steer to `aims` with `tremors`. `ranked` of each are ranked by how near they aim."""
    rng = np.random.default_rng(seed)
    env = LineEnv(episodes)
    columns: list[list[Array]] = [[], [], []]
    for aim, tremor in zip(aims, tremors, strict=True):
        x = env.reset(int(rng.integers(2**31)))
        steps = []
        for _ in range(STEPS):
            action = np.clip(3 * (aim - x) + rng.normal(0, tremor, x.shape), -1, 1).astype(np.float32)
            step = env.step(action)
            steps.append((x, action, step.next_observation))
            x = step.observation
        for column, part in zip(columns, zip(*steps, strict=True), strict=True):
            column.append(np.stack(part, axis=1).reshape(-1, 1))
    states, actions, following = (np.concatenate(column) for column in columns)
    people = np.repeat(np.arange(len(aims)), episodes)
    place = {who: k for k, who in enumerate(sorted(range(len(aims)), key=lambda w: abs(aims[w] - GOAL)))}
    rank = np.zeros(len(people), np.int64)
    for who in place:
        for k in range(ranked):
            rank[np.flatnonzero(people == who)[k]] = 1 + place[who] * ranked + k
    return Demonstrations(states, actions, following, np.zeros(len(states), np.bool_),
                          np.arange(len(people) + 1, dtype=np.int64) * STEPS, rank, [f"person-{who}" for who in people])


SMALL: dict[str, Any] = {
    "discriminator.updates": 10, "discriminator.batch_size": 200, "discriminator.hidden": [32, 32], "cloning.batch_size": 200,
    "ppo.rollout_steps": 1000, "ppo.num_envs": 50, "ppo.epochs": 5, "ppo.minibatch": 500, "ppo.learning_rate": 1e-3,
    "ppo.initial_log_std": -1.0, "classifier.steps": 200, "classifier.batch_size": 200, "classifier.hidden": [32, 32],
    "classifier.learning_rate": 1e-3, "reward.hidden": [32, 32], "reward.learning_rate": 1e-3, "reward.steps": 200,
    "reward.batch_size": 32, "reward.snippet": 5, "noise.levels": 11, "noise.rollouts": 4, "noise.cloning_steps": 100,
    "noise.airl_steps": 6000, "dwbc.hidden": [32, 32], "dwbc.learning_rate": 1e-3,
}


def small(method: str, **changes: Any) -> Any:
    """The installed settings with less work, enough for a line; `changes` are settings of the first level."""
    return replace(method_config(method, changes=read_part(method, SMALL)), **changes)


def learned_return(method: str, demos: Demonstrations, config: MethodConfig, steps: int, seed: int = 0) -> float:
    """The return of the policy after `steps`."""
    torch.set_num_threads(1)
    learner = make_learner(method, Line(), demos, config, seed)
    learner.begin_segment(0)
    while learner.done < steps:
        learner.iterate()
    learner.close()
    return evaluate(Line(), lambda o: learner.actor.mode(torch.as_tensor(o)).detach().numpy(), 100).mean


def aim_return(aim: float) -> float:
    """What somebody scores who steers to `aim` with a steady hand."""
    return evaluate(Line(), lambda o: np.clip(3 * (aim - o), -1, 1), 100).mean
