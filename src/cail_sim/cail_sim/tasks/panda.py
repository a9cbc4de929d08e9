"""The simulated tasks by name: `panda` (the whole of pick-place-avoid) and `panda-carry` (starts with the bottle grasped)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cail_core.config import find_config, setting
from cail_core.errors import ConfigError, listed
from cail_core.tasks import BatchEnv, Demonstrator, TaskSpec
from cail_core.tasks.pick_place_avoid import (
    ACTION_NAMES,
    GRIPPER_ACTION,
    OBSERVATION_NAMES,
    OBSERVATION_UNITS,
    PickPlaceAvoidConfig,
    gates,
    sensors,
    view,
)
from cail_core.tasks.pick_place_avoid.topics import NEEDS, PickPlaceAvoidView
from cail_core.tasks.variation import NOTHING, Variation
from cail_robot.safety.limits import Limits, load_with_limits
from cail_sim.bullet.arm import PANDA, ArmModel
from cail_sim.bullet.vector import Batch, LocalEnv, WorkerEnv
from cail_sim.bullet.world import WorldConfig
from cail_sim.tasks.demonstrators import demonstrator
from cail_sim.tasks.env import PickPlaceAvoidEnv, drawn_conditions
from cail_sim.tasks.lapses import lapse_mixes

SHOWN_LIMITS = ("max_linear_speed", "max_linear_acceleration", "max_linear_jerk")
"""Of the safety filter: a policy's card keeps them."""


@dataclass(frozen=True)
class PandaConfig:
    """`config/panda.yaml`, of both `panda` and `panda-carry`."""

    max_ticks: int = setting(3000, "time limit of `panda`, which includes reaching for the bottle, ticks", low=1)
    carry_max_ticks: int = setting(2000, "time limit of `panda-carry`, ticks (the paper's)", low=1)
    workers: int = setting(0, "processes that step the environments, 0: one for each core; episodes do not depend on it", low=0)
    explicit_gripper: bool = setting(False, "a fourth action opens (> 0) or closes the gripper, in place of the reflex")
    practice_margin_m: float = setting(0.018, "the obstacle is wider by this on every side while a policy practises", low=0.0,
                                       high=0.05)
    task: PickPlaceAvoidConfig = setting(PickPlaceAvoidConfig, "what counts as held, dropped, moved, standing")
    limits: Limits = setting(Limits, "of the safety filter that every action passes")
    world: WorldConfig = setting(WorldConfig, "the things on the table")
    variation: Variation = setting(Variation, "what differs from episode to episode while a policy practises")
    demonstrators: dict[str, list[float]] = setting({"expert": [1.0, 1.0]}, "people and the range of their episodes' quality")
    mixes: dict[str, dict[str, float]] = setting({"expert": {"expert": 1.0}}, "named mixes: share of the episodes by person")

    def __post_init__(self) -> None:
        faults = [
            f"demonstrators.{name}: expected the least and the greatest quality, 0 … 1, given {ends}"
            for name, ends in self.demonstrators.items()
            if len(ends) != 2 or not 0 <= ends[0] <= ends[1] <= 1
        ]
        for mix, shares in self.mixes.items():
            unknown = [name for name in shares if name not in self.demonstrators]
            faults += [f"mixes.{mix}: nobody in demonstrators is called '{name}'" for name in unknown]
            if not abs(sum(shares.values()) - 1) <= 1e-6:
                faults.append(f"mixes.{mix}: shares sum to {sum(shares.values()):g}, expected 1")
        if faults:
            raise ConfigError(listed("panda config", faults))


class Panda:
    """Reach for the bottle, pick it up, carry it around the obstacle, put it standing on the platform."""

    name = "panda"
    robot_type = "franka_panda_pybullet"
    simulated_by = "panda_sim"
    model: ArmModel = PANDA
    grasped = False

    def __init__(self, config_file: Path | None = None) -> None:
        self._set_up(load_with_limits(PandaConfig, config_file or find_config("panda")))

    @classmethod
    def of(cls, config: PandaConfig, played_under: Variation = NOTHING) -> Panda:
        """The task with these settings instead of a file's, its episodes under conditions drawn from this."""
        made = cls.__new__(cls)
        made._set_up(config, played_under)
        return made

    def _set_up(self, config: PandaConfig, played_under: Variation = NOTHING) -> None:
        self.config, task = config, config.task
        self.variation, self.played_under = config.variation, played_under
        self.max_ticks = self.config.carry_max_ticks if self.grasped else self.config.max_ticks
        self.spec = TaskSpec(
            name=self.name,
            text=" ".join((self.__doc__ or "").split()),
            robot_type=self.robot_type,
            fps=round(1 / task.decision_s),
            max_steps=-(-self.max_ticks // task.ticks_per_decision),
            observation_names=OBSERVATION_NAMES,
            action_names=(*ACTION_NAMES, GRIPPER_ACTION) if self.config.explicit_gripper else ACTION_NAMES,
            action_scale=f"{task.max_speed} m/s",
            has_success=True,
            start_m=() if self.grasped else tuple(sum(ends) / 2 for ends in config.world.tool_start),
            most_envs=8,  # a world takes some 40 MB
            view=view(task, self.config.world.bottle_radius_m, self.config.world.obstacle_half_m[0],
                      2 * self.config.world.obstacle_half_m[2]),
            observation_units=OBSERVATION_UNITS,
            limits={name: getattr(self.config.limits, name) for name in SHOWN_LIMITS},
            gates=gates(task),
            sensors=sensors(),
            needs=NEEDS,
            simulated_by=self.simulated_by,
        )

    def one(self, *, visible: bool = False, window: bool = False) -> PickPlaceAvoidEnv:
        """A single environment in this process."""
        c = self.config
        return PickPlaceAvoidEnv(self.model, c.world, c.task, c.limits, self.max_ticks, grasped=self.grasped,
                                 explicit_gripper=c.explicit_gripper, variation=self.played_under, visible=visible,
                                 window=window)

    def make_env(self, num_envs: int) -> BatchEnv:
        workers = min(num_envs, self.config.workers or len(os.sched_getaffinity(0)))
        if workers > 1:
            return WorkerEnv(self, num_envs, workers)
        batch = Batch(num_envs, self.spec.observation_dim, self.spec.action_dim)
        return LocalEnv([self.one() for _ in range(num_envs)], batch, range(num_envs))

    def stricter(self) -> Panda:
        """The task with a wider obstacle, under varying conditions: who passes this one without touching it passes the real one,
        on another arm too, with room to spare."""
        world, margin = self.config.world, self.config.practice_margin_m
        x, y, z = world.obstacle_half_m
        return type(self).of(replace(self.config, world=replace(world, obstacle_half_m=(x + margin, y + margin, z))),
                             self.variation)

    def under(self, variation: Variation) -> Panda:
        return type(self).of(self.config, variation)

    def pace_of(self, seed: int) -> float:
        if self.played_under == NOTHING:
            return 1.0
        conditions = drawn_conditions(self.played_under, np.random.default_rng(seed))[1]
        return 1.0 / (conditions.speed * conditions.period)

    def over_topics(self, rate: int) -> PickPlaceAvoidView:
        """The task as a recorder sees it."""
        c = self.config
        return PickPlaceAvoidView(c.task, rate, grasped=self.grasped, explicit_gripper=c.explicit_gripper)

    def demonstrators(self) -> dict[str, Demonstrator]:
        c = self.config
        return {name: demonstrator(name, ends[0], ends[1], c.task, explicit_gripper=c.explicit_gripper)
                for name, ends in c.demonstrators.items()}

    def mixes(self) -> dict[str, Sequence[tuple[Demonstrator, float]]]:
        c, made = self.config, self.demonstrators()
        mixes = {mix: [(made[name], share) for name, share in shares.items()] for mix, shares in c.mixes.items()}
        return {**mixes, **lapse_mixes(made, c.task, c.limits.max_linear_speed, explicit_gripper=c.explicit_gripper)}


class PandaCarry(Panda):
    """Carry the grasped bottle around the obstacle, put it standing on the platform."""

    name = "panda-carry"
    grasped = True
