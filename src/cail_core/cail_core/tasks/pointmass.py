"""A point mass that accelerates towards a goal on a plane: small enough for tests, rich enough for the tutorial.

Observation: goal − position (m), velocity (m/s). Action: acceleration, 1 = `max_acceleration`. Reward per step:
−‖goal − position‖ − 0.05 ‖a‖². An episode always runs to its time limit; it is a success if it ends at rest on the goal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cail_core.config import find_config, load_config, setting
from cail_core.demos.truth import BadThroughout
from cail_core.errors import ConfigError, listed
from cail_core.tasks.base import Array, BatchEnv, Demonstrator, Flags, Policy, Step, TaskSpec, Thing, View

WALL_M = 2.0


@dataclass(frozen=True)
class PointMassConfig:
    """`config/pointmass.yaml`."""

    dt_s: float = setting(0.1, "one step, seconds", low=0.001, high=1.0)
    max_steps: int = setting(50, "time limit, steps", low=1)
    max_acceleration: float = setting(2.0, "what an action of 1 means, m/s^2", low=0.01)
    max_speed: float = setting(1.0, "m/s", low=0.01)
    goal_radius_m: float = setting(0.1, "success: closer to the goal than this, m", low=0.0)
    rest_speed: float = setting(0.15, "success: slower than this, m/s", low=0.0)
    misjudged_m: float = setting(1.5, "how far beside the goal a demonstrator of skill 0 aims, m", low=0.0)
    skills: dict[str, float] = setting({"expert": 1.0}, "demonstrators and their skill in [0, 1]")
    mixes: dict[str, dict[str, float]] = setting(
        {"expert": {"expert": 1.0}}, "named mixes: share of the episodes by demonstrator"
    )

    def __post_init__(self) -> None:
        faults = [
            f"skills.{name}: expected 0 … 1, given {skill!r}"
            for name, skill in self.skills.items()
            if not isinstance(skill, (int, float)) or not 0 <= skill <= 1
        ]
        for mix, shares in self.mixes.items():
            faults += [f"mixes.{mix}: no demonstrator '{name}' in skills" for name in shares if name not in self.skills]
            if not abs(sum(shares.values()) - 1) <= 1e-6:
                faults.append(f"mixes.{mix}: shares sum to {sum(shares.values()):g}, expected 1")
        if faults:
            raise ConfigError(listed("pointmass config", faults))


class PointMassEnv:
    """A batch of point masses in NumPy."""

    def __init__(self, num_envs: int, config: PointMassConfig) -> None:
        self.num_envs = num_envs
        self._config = config
        self._rng = np.random.default_rng(0)
        self._position = np.zeros((num_envs, 2))
        self._velocity = np.zeros((num_envs, 2))
        self._goal = np.zeros((num_envs, 2))
        self._steps = np.zeros(num_envs, dtype=np.int64)

    def reset(self, seed: int) -> Array:
        self._rng = np.random.default_rng(seed)
        self._start(np.ones(self.num_envs, dtype=bool))
        return self._observe()

    def step(self, action: Array) -> Step:
        c = self._config
        a = np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0)
        velocity = self._velocity + a * (c.max_acceleration * c.dt_s)
        speed = np.linalg.norm(velocity, axis=1, keepdims=True)
        velocity *= np.minimum(1.0, c.max_speed / np.maximum(speed, 1e-9))
        position = self._position + velocity * c.dt_s
        self._velocity = np.where(np.abs(position) > WALL_M, 0.0, velocity)
        self._position = np.clip(position, -WALL_M, WALL_M)
        self._steps += 1

        distance = np.linalg.norm(self._goal - self._position, axis=1)
        reward = (-distance - 0.05 * np.sum(a**2, axis=1)).astype(np.float32)
        success = (distance < c.goal_radius_m) & (np.linalg.norm(self._velocity, axis=1) < c.rest_speed)
        truncated = self._steps >= c.max_steps
        reached = self._observe()
        self._start(truncated)
        observation = self._observe() if truncated.any() else reached
        return Step(observation, reached, reward, np.zeros_like(truncated), truncated, success)

    def close(self) -> None:
        """Nothing to release."""

    def _start(self, which: Flags) -> None:
        n = int(which.sum())
        if n == 0:
            return
        self._position[which] = self._rng.uniform(-1.0, 1.0, (n, 2))
        bearing = self._rng.uniform(0.0, 2 * np.pi, n)
        reach = self._rng.uniform(0.6, 1.2, n)
        offset = reach[:, None] * np.stack([np.cos(bearing), np.sin(bearing)], axis=1)
        self._goal[which] = np.clip(self._position[which] + offset, -1.2, 1.2)
        self._velocity[which] = 0.0
        self._steps[which] = 0

    def _observe(self) -> Array:
        return np.concatenate([self._goal - self._position, self._velocity], axis=1).astype(np.float32)


def demonstrator(name: str, skill: float, misjudged_m: float) -> Demonstrator:
    """A person who steers to where they believe the goal is; `skill` in [0, 1] from hopeless to expert.

    The less skilled misjudge the goal to the same side, so that averaging over people does not cancel their fault.
    """

    def start(rng: np.random.Generator) -> Policy:
        bearing = rng.normal(np.pi / 4, 0.4)
        believed = (1.0 - skill) * misjudged_m * np.array([np.cos(bearing), np.sin(bearing)])
        stiffness, damping, tremor = 1.0 + 2.0 * skill, 2.0, 0.05 + 0.5 * (1.0 - skill)

        def policy(observation: Array) -> Array:
            error, velocity = observation[:2] + believed, observation[2:]
            action = stiffness * error - damping * velocity + rng.normal(0.0, tremor, 2)
            return np.clip(action, -1.0, 1.0).astype(np.float32)

        return policy if skill == 1.0 else BadThroughout(policy)

    return Demonstrator(name, start)


class PointMass:
    """The task, its environments and its graded demonstrators."""

    def __init__(self, config_file: Path | None = None) -> None:
        self.config = load_config(PointMassConfig, config_file or find_config("pointmass"))
        self.spec = TaskSpec(
            name="pointmass",
            text="Accelerate the point mass to the goal and come to rest there.",
            robot_type="pointmass",
            fps=round(1 / self.config.dt_s),
            max_steps=self.config.max_steps,
            observation_names=("goal_dx", "goal_dy", "velocity_x", "velocity_y"),
            action_names=("acceleration_x", "acceleration_y"),
            action_scale=f"{self.config.max_acceleration} m/s^2",
            has_success=True,
            view=View(
                moves="point mass",
                position=({"goal_dx": -1.0}, {"goal_dy": -1.0}),
                things=(Thing("goal", ({"1": 0.0}, {"1": 0.0}), radius_m=self.config.goal_radius_m),),
                labels=("x from the goal", "y from the goal"),
            ),
        )

    def make_env(self, num_envs: int) -> BatchEnv:
        return PointMassEnv(num_envs, self.config)

    def mixes(self) -> dict[str, Sequence[tuple[Demonstrator, float]]]:
        from cail_core.tasks.pointmass_lapses import lapse_mixes

        made = {name: demonstrator(name, skill, self.config.misjudged_m) for name, skill in self.config.skills.items()}
        mixes = {mix: [(made[name], share) for name, share in shares.items()] for mix, shares in self.config.mixes.items()}
        return {**mixes, **lapse_mixes(self.config)}
