"""One environment of pick-place-avoid: a world, an arm, the task, and the safety filter that every action passes.

The filter is the one that stands in front of a real arm, called every `CONTROL_TICKS` of a decision, as the simulator's node
calls it: an episode here and one over the topics are the same.

An episode may be played under other `Conditions`: what the policy decides then comes later or holds longer, the arm is slower or
the things are seen with a tracker's errors. Whether it succeeded is judged by where things truly are.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from cail_core.tasks.pick_place_avoid import Outcome, PickPlaceAvoid, PickPlaceAvoidConfig, Scene, Vec
from cail_core.tasks.variation import NOMINAL, NOTHING, Conditions, Variation
from cail_robot.arm import STILL, ArmState, Twist
from cail_robot.safety.filter import SafetyFilter
from cail_robot.safety.limits import Limits, paced
from cail_sim.bullet.arm import ArmModel
from cail_sim.bullet.world import Start, World, WorldConfig, advance_all, spread
from cail_sim.tasks.eyes import Eyes

CONTROL_TICKS = 5
"""Ticks in one period of the simulated arm's control: 10 ms, so that a stop is not held up by the period, and that two make a
decision, which a recording at 50 Hz needs."""


class PickPlaceAvoidEnv:
    """Steps one world. `start` begins an episode drawn from a generator, `decide` executes one action."""

    def __init__(self, model: ArmModel, world: WorldConfig, task: PickPlaceAvoidConfig, limits: Limits, max_ticks: int, *,
                 grasped: bool, explicit_gripper: bool, variation: Variation = NOTHING, visible: bool = False,
                 window: bool = False) -> None:
        self.world = World(model, world, task, visible=visible, window=window)
        self.task = PickPlaceAvoid(task, max_ticks)
        self.limits, self._max_ticks = limits, max_ticks
        self._variation = variation
        self._speed, self._grasped, self._explicit = task.max_speed, grasped, explicit_gripper
        self.conditions = NOMINAL
        self._set_conditions(NOMINAL, np.random.default_rng(0))
        self.scene: Scene = self.start(np.random.default_rng(0))

    def start(self, rng: np.random.Generator) -> Scene:
        """Begin an episode; what it is like depends on the next seven draws of `rng`, and on as many more as conditions need."""
        draws, conditions = drawn_conditions(self._variation, rng)
        if self._variation != NOTHING:
            self._set_conditions(conditions, rng)
        config = self.world.config.widened(self.conditions.start_m) if self.conditions.start_m else self.world.config
        return self.start_at(spread(config, draws, grasped=self._grasped))

    def start_at(self, start: Start) -> Scene:
        """Begin an episode there."""
        self.scene = self.world.begin(start)
        self.filter.reset()
        self._coming.clear()
        self._twist, self._closing = STILL, self._grasped
        self._now = 0
        self._steps: list[Vec] = []
        self.commanded: list[list[float]] = []
        """The motors' speeds in each control period of the last decision."""
        self.task.begin(self.scene, closing=self._grasped)
        if self._eyes is not None:
            self._eyes.begin(self.scene, closing=self._grasped)
        return self.scene

    def observe(self) -> list[float]:
        return self.task.observe(self.scene) if self._eyes is None else self._eyes.observe()

    def decide(self, action: list[float]) -> tuple[float, Outcome | None]:
        """Execute an action in [-1, 1] for one decision: its reward, and how the episode ended, if it did."""
        return decide_all([self], [action])[0]

    def close(self) -> None:
        self.world.close()

    def _set_conditions(self, conditions: Conditions, rng: np.random.Generator) -> None:
        c, task = conditions, self.task.config
        self.conditions = c
        control_s = CONTROL_TICKS / task.ticks_per_s
        self.filter = SafetyFilter(paced(self.limits, c.speed, c.acceleration), control_s)
        self._cut = self._speed * c.speed
        self.task.max_ticks = round(self._max_ticks * max(1.0, c.period) / c.speed)
        self._periods = c.period * task.ticks_per_decision / CONTROL_TICKS
        self._late, self._jitter = c.delay_s / control_s, c.jitter_s / control_s
        self._coming: deque[tuple[float, Twist, bool]] = deque()
        self._rng = np.random.default_rng(int(rng.integers(2**62)))
        self._exact = not (c.jitter_s or self._periods % 1.0)
        exact = not (c.grasp_offset_m or c.lean or c.noise_m or c.bias_m or c.tracker_s or c.delay_s or c.jitter_s)
        self._eyes = None if exact else Eyes(task, c, self._rng)
        self.world.set_matter(c.friction, c.mass)
        self.world.arm.gripper_speed = c.gripper * self.world.arm.model.finger_speed

    def _decided(self, action: list[float]) -> int:
        """Take a decision: what it commands comes when it is due. The control periods until the next one."""
        wish = action[3] if self._explicit else None
        closing = self.task.gripper(self.scene, wish) if self._eyes is None else self._eyes.gripper(wish)
        x, y, z = _unit(action[0]), _unit(action[1]), _unit(action[2])
        norm = math.sqrt(x * x + y * y + z * z)
        most = self._cut / norm if norm > 1.0 else self._cut
        late, periods = self._late, self._periods
        if not self._exact:
            early = self._jitter * self._rng.random(2)
            late, periods = late + early[0], periods + early[1] - self._jitter / 2 + self._rng.random() - 0.5
        self._coming.append((self._now + late, (x * most, y * most, z * most, 0.0, 0.0, 0.0), closing))
        self._steps, self.commanded = [], []
        return max(1, round(periods))

    def _permitted(self) -> tuple[Vec, bool]:
        """What the filter lets through in the next control period, in m/s, and whether the gripper closes."""
        while self._coming and self._coming[0][0] <= self._now + 0.5:
            _, self._twist, self._closing = self._coming.popleft()
        self._now += 1
        velocity = self.filter.step(self._twist, self._state()).motion.linear
        self._steps.append(velocity)
        return velocity, self._closing

    def _ended(self) -> tuple[float, Outcome | None]:
        """The decision's control periods have passed."""
        self.scene = self.world.scene()
        n, steps = len(self._steps), self._steps
        executed = (sum(v[0] for v in steps) / n, sum(v[1] for v in steps) / n, sum(v[2] for v in steps) / n)
        if self._eyes is not None:
            self._eyes.look(self.scene, n * CONTROL_TICKS)
            self.task.closing = self._closing  # what the hand does, which was decided a while ago
        return self.task.advance(self.scene, executed, n * CONTROL_TICKS)

    def _state(self) -> ArmState:
        """What the filter looks at. The joints' own limits are kept by the arm (`SimArm`), so no Jacobian is given."""
        arm = self.world.arm
        return ArmState(0.0, arm.tool, arm.orientation, STILL, arm.q, (), arm.opening)


def drawn_conditions(variation: Variation, rng: np.random.Generator) -> tuple[list[float], Conditions]:
    """What an episode that begins from `rng` draws first: its start (`spread`), and what it is played under."""
    draws = rng.random(7).tolist()
    return draws, variation.draw(rng) if variation != NOTHING else NOMINAL


def _unit(value: float) -> float:
    """Cut to [-1, 1]; what is not a number stays so, and the filter refuses it."""
    return 1.0 if value > 1.0 else -1.0 if value < -1.0 else value


def decide_all(envs: Sequence[PickPlaceAvoidEnv], actions: Sequence[list[float]]) -> list[tuple[float, Outcome | None]]:
    """`PickPlaceAvoidEnv.decide` in environments of the same settings, with the same result as one by one, and faster."""
    periods = [env._decided(action) for env, action in zip(envs, actions, strict=True)]
    acting = envs
    for done in range(max(periods)):
        if done:
            acting = [env for env, count in zip(envs, periods, strict=True) if count > done]
        velocities, closing = zip(*(env._permitted() for env in acting), strict=True)
        advance_all([env.world for env in acting], velocities, closing, CONTROL_TICKS)
        for env in acting:
            env.commanded.append(env.world.arm.commanded)
    return [env._ended() for env in envs]
