"""The task for `cail`: its spec, its view of the topics, an environment to act in, and people who demonstrate it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from cail_core.config import find_config, load_config
from cail_core.recording.sync import ArmSample, Vector
from cail_core.tasks import BatchEnv, Demonstrator, Policy, Step, TaskSpec
from cail_core.tasks.base import Array
from stack_two_cups.table import GRASP_M, Table, sample_of
from stack_two_cups.view import ACTION_NAMES, NEEDS, OBSERVATION_NAMES, STACKED_M, CupsConfig, CupsView

RATE = 20
"""Decisions a second; it divides the 100 Hz of an arm's topics."""
START = (0.5, 0.0, 0.3)


class StackTwoCups:
    """Put the first cup into the second."""

    def __init__(self, config_file: Path | None = None) -> None:
        self.config = load_config(CupsConfig, config_file or find_config("stack-two-cups"))
        self.spec = TaskSpec(
            name="stack-two-cups",
            text="Put the first cup into the second.",
            robot_type="cups_table",
            fps=RATE,
            max_steps=self.config.max_steps,
            observation_names=OBSERVATION_NAMES,
            action_names=ACTION_NAMES,
            action_scale=f"{self.config.max_speed} m/s",
            has_success=True,
            start_m=START,
            needs=NEEDS,
        )

    def over_topics(self, rate: int) -> CupsView:
        return CupsView(self.config, rate)

    def make_env(self, num_envs: int) -> BatchEnv:
        return CupsEnv(self.config, num_envs)

    def mixes(self) -> dict[str, Sequence[tuple[Demonstrator, float]]]:
        careful, hasty = (Demonstrator(name, person(error)) for name, error in (("careful", 0.002), ("hasty", 0.02)))
        return {"careful": [(careful, 1.0)], "graded": [(careful, 0.5), (hasty, 0.5)]}


class CupsEnv:
    """Environments in this process: the tool goes where it is told. The view judges, as it does over the topics."""

    def __init__(self, config: CupsConfig, num_envs: int) -> None:
        self.num_envs, self._config = num_envs, config
        self._views = [CupsView(config, RATE) for _ in range(num_envs)]
        self._tables = [Table(config, 0) for _ in range(num_envs)]

    def reset(self, seed: int) -> Array:
        self._rng = np.random.default_rng(seed)
        self._tool, self._opening = np.tile(np.array(START), (self.num_envs, 1)), np.ones(self.num_envs)
        self._steps = np.zeros(self.num_envs, dtype=np.int64)
        return np.stack([self._start(i) for i in range(self.num_envs)])

    def step(self, action: Array) -> Step:
        n = self.num_envs
        reached, observation = np.zeros((n, len(OBSERVATION_NAMES)), np.float32), []
        reward, ended, success = np.zeros(n, np.float32), np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        for i, wish in enumerate(action.tolist()):
            twist = self._views[i].twist(wish)
            self._tool[i] += np.array(twist[:3]) / RATE
            self._opening[i] = 0.0 if wish[3] < 0.0 else 1.0
            self._tables[i].move(tuple(self._tool[i]), self._opening[i])
            sample = self._sample(i, twist)
            reward[i], outcome = self._views[i].advance(sample, twist)
            reached[i] = self._views[i].observe(sample)
            ended[i], success[i] = outcome is not None, outcome == "success"
        self._steps += 1
        late = (self._steps >= self._config.max_steps) & ~ended
        observation = [self._start(i) if ended[i] or late[i] else reached[i] for i in range(n)]
        return Step(np.stack(observation), reached, reward, ended, late, success)

    def close(self) -> None:
        """Nothing to release."""

    def _start(self, i: int) -> Array:
        self._tables[i].restart(int(self._rng.integers(2**31)))
        self._tool[i], self._opening[i], self._steps[i] = START, 1.0, 0
        sample = self._sample(i, (0.0,) * 6)
        self._views[i].begin(sample)
        return np.array(self._views[i].observe(sample), dtype=np.float32)

    def _sample(self, i: int, executed: Vector) -> ArmSample:
        opening = float(self._opening[i])
        return sample_of(0, tuple(self._tool[i].tolist()), executed, opening, opening, self._tables[i])


def person(error_m: float) -> Callable[[np.random.Generator], Policy]:
    """Somebody who grasps the first cup, lifts it, carries it over the second and lets go, aiming so far beside it."""

    def start(rng: np.random.Generator) -> Policy:
        aim = rng.normal(0.0, error_m, 2)

        def policy(observation: Array) -> Array:
            tool, one, two, opening = observation[:3], observation[3:6], observation[6:9], observation[9]
            grip_from_tool = one + np.array((0.0, 0.0, GRASP_M))
            goal = two + np.array((aim[0], aim[1], STACKED_M))
            holding = opening < 0.5 and np.linalg.norm(grip_from_tool) < 0.015
            if not holding:
                near = np.linalg.norm(grip_from_tool[:2]) < 0.01
                way = grip_from_tool if near else np.array([*grip_from_tool[:2], 0.2 - tool[2]])
                close = np.linalg.norm(grip_from_tool) < 0.008
                return np.array([*np.clip(20.0 * way, -1.0, 1.0), -1.0 if close else 1.0], dtype=np.float32)
            over = np.linalg.norm(goal[:2]) < 0.01
            way = goal if over else np.array([*(goal[:2] if tool[2] > 0.17 else (0.0, 0.0)), 0.2 - tool[2]])
            done = over and abs(goal[2]) < 0.008
            return np.array([*np.clip(20.0 * way, -1.0, 1.0), 1.0 if done else -1.0], dtype=np.float32)

        return policy

    return start
