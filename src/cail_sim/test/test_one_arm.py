"""The world behaves the same however it is stepped."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from cail_core.tasks.pick_place_avoid import Vec
from cail_robot.arm import STILL, ArmState
from cail_robot.safety.filter import SafetyFilter
from cail_sim.bullet.world import Start, World
from cail_sim.tasks.panda import Panda
from cail_sim.tasks.ur5e import UR5e

COMMAND_TICKS = 10
"""Commands change at 50 Hz, whatever the world is stepped at."""


class Carried(NamedTuple):
    tool: NDArray[np.float64]
    """At every change of command."""
    grasp: NDArray[np.float64]
    """The neck from the tool when the hand has closed."""
    grip_n: float


def carry(task: Panda, ticks: int) -> Carried:
    """Down to the bottle, close, up, around and down, with commands that are the same for every `ticks`."""
    world = World(task.model, task.config.world, task.config.task)
    world.begin(Start((0.7, -0.025), (0.3, -0.3), (0.6, 0.06, 0.2)))
    path: list[Vec] = []

    def go(velocity: Vec, seconds: float, closing: bool) -> None:
        for command in ramped(velocity, seconds):
            for _ in range(COMMAND_TICKS // ticks):
                world.advance(command, closing, ticks)
            path.append(world.arm.tool)

    try:
        go((0.25, -0.2, 0.0), 0.84, False)
        go((0.0, 0.0, -0.2), 0.66, False)
        go((0.0, 0.0, 0.0), 0.2, False)
        go((0.0, 0.0, 0.0), 0.8, True)
        seen = world.scene()
        grasp = np.add(seen.bottle, task.config.task.neck_height_m * np.array(seen.bottle_up)) - seen.tool
        grip = held_with(world) * ticks  # PyBullet divides a tick's impulse by the length of the whole call
        go((0.0, 0.0, 0.25), 0.5, True)
        go((-0.2, -0.45, 0.0), 1.2, True)
        go((-0.45, 0.0, 0.0), 1.0, True)
        return Carried(np.array(path), grasp, grip)
    finally:
        world.close()


def ramped(velocity: Vec, seconds: float) -> list[Vec]:
    """Up to the velocity and back to rest as the safety filter lets an arm."""
    limits, period = Panda().config.limits, COMMAND_TICKS / 500
    smoothing = SafetyFilter(limits, period)
    middle = ArmState(0.0, (0.5, 0.0, 0.18), (1.0, 0.0, 0.0, 0.0), STILL, (), (), 1.0)
    steps = round(seconds / period)
    wishes = [velocity] * (steps // 2) + [(0.0, 0.0, 0.0)] * (steps - steps // 2)
    return [smoothing.step((*wish, 0.0, 0.0, 0.0), middle).motion.linear for wish in wishes]


def held_with(world: World) -> float:
    """Newtons with which one finger presses on the bottle."""
    contacts = world.engine.getContactPoints(world.arm.body, world.bottle, world.arm.model.fingers[0],
                                             physicsClientId=world.client)
    return float(sum(contact[9] for contact in contacts))


@pytest.fixture(scope="module", params=[Panda, UR5e], ids=["panda", "ur5e"])
def carried(request: pytest.FixtureRequest) -> dict[int, Carried]:
    task = request.param()
    return {ticks: carry(task, ticks) for ticks in (10, 5, 1)}


def test_the_same_commands_at_50_100_and_500_hz_are_the_same_motion(carried: dict[int, Carried]) -> None:
    for ticks in (10, 5):
        assert np.linalg.norm(carried[ticks].tool - carried[1].tool, axis=1).max() < 0.2e-3
    assert np.ptp(carried[1].tool[:, 1]) > 0.1, "it must have gone somewhere"


def test_and_the_same_grasp(carried: dict[int, Carried]) -> None:
    for ticks in (10, 5):
        assert np.abs(carried[ticks].grasp - carried[1].grasp).max() < 0.2e-3


def test_the_hand_grips_as_hard_as_the_model_says(carried: dict[int, Carried]) -> None:
    for found in carried.values():
        assert found.grip_n == pytest.approx(20.0, rel=0.25)


@pytest.mark.parametrize("kind", [Panda, UR5e])
def test_a_decision_is_two_control_periods(kind: type[Panda]) -> None:
    """What the node does with a command, period by period, is what an environment does with a decision."""
    task = kind()
    env = task.one()
    world = World(task.model, task.config.world, task.config.task)
    begin = Start((0.7, -0.025), (0.3, -0.3), (0.6, 0.06, 0.2))
    try:
        env.start_at(begin)
        world.begin(begin)
        period = 5 / task.config.task.ticks_per_s
        guarded = SafetyFilter(task.config.limits, period)
        for action in ([1.0, -0.5, 0.0], [1.0, 0.5, 0.2], [-0.3, 0.1, -1.0]) * 5:
            env.decide(action)
            cut = min(1.0, 1.0 / float(np.linalg.norm(action)))
            twist = tuple(task.config.task.max_speed * cut * a for a in action)
            for _ in range(2):
                arm = world.arm
                state = ArmState(0.0, arm.tool, arm.orientation, STILL, arm.q, (), arm.opening)
                world.advance(guarded.step((twist[0], twist[1], twist[2], 0.0, 0.0, 0.0), state).motion.linear, False, 5)
        assert world.arm.tool == pytest.approx(env.scene.tool, abs=1e-9)
    finally:
        env.close()
        world.close()
