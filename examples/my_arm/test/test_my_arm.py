from __future__ import annotations

import argparse
import time

import pytest
from my_arm import SPEC
from my_arm.arm import HOME, MyArm

from cail_robot.arm import Arm
from cail_robot.control.state_machine import ArmControl, State
from cail_robot.robot import find_robot


def test_it_is_installed() -> None:
    assert find_robot("my_arm") is SPEC


def test_it_is_an_arm() -> None:
    assert isinstance(MyArm(), Arm)


def test_it_moves_within_its_limits_and_stops_without_commands() -> None:
    parser = argparse.ArgumentParser()
    bringup = SPEC.load()
    bringup.add_arguments(parser)
    limits = bringup.limits(parser.parse_args([]))
    control = ArmControl(bringup.arm(parser.parse_args([])), limits)
    control.cycle()
    assert control.enable(True)[0]
    now = time.time
    control.command((0.0,) * 6, "my_arm_base", now())
    for _ in range(50):
        control.command((1.0, 0.0, 0.0, 0.0, 0.0, 0.0), "my_arm_base", now())
        cycle = control.cycle()
    assert cycle is not None
    assert cycle.outcome.twist[0] == pytest.approx(limits.max_linear_speed)
    assert cycle.state.position[0] > HOME[0]
    control.stop("enough")
    for _ in range(20):
        cycle = control.cycle()
    assert control.state is State.FAULT
    assert cycle is not None
    assert not any(cycle.outcome.twist)
