"""The control box's motion without sockets: times, speeds and accelerations worked out by hand."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from cail_robot.robots.ur5e import kinematics as ur
from cail_sim.ursim import dashboard
from cail_sim.ursim.controller import Controller, RobotMode, Runtime, Safety
from cail_sim.ursim.motion import CYCLE_S, STOP_DECELERATION, MoveJ, MoveL, Ramp, Servo, Speed, Stop, Violation
from cail_sim.ursim.plant import KinematicArm
from cail_sim.ursim.rtde import BadPackage, Recipe, Session, package, take
from cail_sim.ursim.script import Script, ScriptReader

CONTROL = Script("rtde_control", 0, True)


def playing_box() -> Controller:
    box = Controller(KinematicArm())
    box.run_script(CONTROL)
    return box


def command(box: Controller, number: int, *doubles: float) -> None:
    values = {f"input_double_register_{i}": value for i, value in enumerate(doubles)}
    box.write_inputs({"input_int_register_0": number, **values})


def cycles(box: Controller, n: int) -> None:
    for _ in range(n):
        box.cycle()


def tool_speed(box: Controller) -> np.ndarray:
    return np.array(ur.twist_of(ur.jacobian_columns(box.q, box.tcp)[1], box.qd))


def test_ramp_goes_up_flat_and_down():
    ramp = Ramp(1.0, 0.5, 2.0)  # up 0.25 s and 0.0625 m, flat 0.875 m in 1.75 s, down as up
    assert ramp.duration_s == pytest.approx(2.25)
    assert ramp.at(0.25) == pytest.approx(0.0625)
    assert ramp.at(1.0) == pytest.approx(0.0625 + 0.75 * 0.5)
    assert ramp.at(2.25) == ramp.at(9.0) == 1.0
    short = Ramp(0.01, 0.5, 4.0)  # too short for its speed: a triangle of 2·√(0.01/4) s
    assert short.duration_s == pytest.approx(0.1)
    assert Ramp(0.0, 1.0, 1.0).duration_s == 0.0


def test_move_j_takes_the_time_of_its_longest_joint():
    target = (0.4, *ur.HOME[1:3], -1.2, *ur.HOME[4:])
    motion, q, n = MoveJ(ur.HOME, target, 1.0, 4.0), ur.HOME, 0
    while not motion.done:
        q, n = motion.step(q, CYCLE_S), n + 1
    assert n * CYCLE_S == pytest.approx(0.65, abs=CYCLE_S)
    assert q == pytest.approx(target)


def test_move_l_goes_straight():
    start = ur.pose_of(ur.forward(ur.HOME))
    target = (start[0] - 0.1, start[1] + 0.1, start[2] - 0.2, *start[3:])
    motion, q, places = MoveL(ur.HOME, target, 0.25, 1.0, ur.NO_TOOL), ur.HOME, []
    while not motion.done:
        q = motion.step(q, CYCLE_S)
        places.append(ur.forward(q).origin)
    way = np.subtract(target[:3], start[:3])
    along = np.subtract(places, start[:3]) @ way / (way @ way)
    assert np.allclose(np.subtract(places, start[:3]), along[:, None] * way, atol=1e-9)
    speeds = np.diff(along) * np.linalg.norm(way) / CYCLE_S
    assert speeds.max() <= 0.25 + 1e-6
    assert np.abs(np.diff(speeds)).max() <= 1.0 * CYCLE_S + 1e-6


def test_moves_out_of_reach_or_without_speed_are_violations():
    with pytest.raises(Violation, match="cannot reach"):
        MoveL(ur.HOME, (1.5, 0, 0, 0, 0, 0), 0.25, 1.0, ur.NO_TOOL)
    with pytest.raises(Violation, match="speed 0"):
        MoveJ(ur.HOME, ur.HOME, 0.0, 1.0)


def test_speed_l_accelerates_as_told():
    box = playing_box()
    command(box, 10, 0.0, 0.0, -0.1, 0, 0, 0, 0.5, 0.0)
    for n in range(1, 101):
        box.cycle()
        assert tool_speed(box)[2] == pytest.approx(-0.5 * n * CYCLE_S, abs=1e-3)
    cycles(box, 10)
    assert tool_speed(box) == pytest.approx([0, 0, -0.1, 0, 0, 0], abs=1e-4)


def test_speed_l_is_slowed_to_the_tool_and_joint_limits():
    box = playing_box()
    command(box, 10, 0.0, 0.0, -9.0, 0, 0, 0, 20.0, 0.002)
    cycles(box, 60)
    assert math.hypot(*tool_speed(box)[:3]) <= 1.5 + 1e-3
    assert max(map(abs, box.qd)) <= ur.JOINT_SPEED_LIMIT + 1e-6


def test_servo_arrives_within_speed_and_acceleration():
    motion, q, qs = Servo((0.0,) * 6), ur.HOME, [ur.HOME]
    target = (ur.HOME[0] + 1.0, *ur.HOME[1:])
    motion.aim(target, 0.05, 600.0)
    for _ in range(1500):
        q = motion.step(q, CYCLE_S)
        qs.append(q)
    speeds = np.diff(np.array(qs)[:, 0]) / CYCLE_S
    assert q == pytest.approx(target, abs=1e-3)
    assert np.abs(speeds).max() <= ur.JOINT_SPEED_LIMIT + 1e-9
    assert np.abs(np.diff(speeds)).max() / CYCLE_S <= 40.0 + 1e-6


def test_stop_brakes_at_its_deceleration():
    qd = (0.5, 0.0, -0.25, 0.0, 0.0, 0.0)
    stop, q, n = Stop(ur.HOME, qd, 5.0, ur.NO_TOOL, linear=False), ur.HOME, 0
    while not stop.done:
        q, n = stop.step(q, CYCLE_S), n + 1
    assert n * CYCLE_S == pytest.approx(0.1, abs=CYCLE_S)
    assert q[0] - ur.HOME[0] == pytest.approx(0.5**2 / (2 * 5.0), rel=0.03)


def test_end_of_a_program_brakes_and_nothing_goes_on():
    box = playing_box()
    command(box, 9, 0.6, 0, 0, 0, 0, 0, 10.0, 0.0)
    cycles(box, 50)
    assert box.qd[0] == pytest.approx(0.6)
    box.end_program("test")
    assert box.runtime is Runtime.STOPPING
    n = 0
    while box.qd[0] > 0:
        box.cycle()
        n += 1
    assert n * CYCLE_S == pytest.approx(0.6 / STOP_DECELERATION, abs=2 * CYCLE_S)
    before = box.q
    cycles(box, 100)
    assert (box.q, box.runtime) == (before, Runtime.STOPPED)


def test_watchdog_counts_from_the_last_command():
    box = playing_box()
    command(box, 35, 10.0)
    cycles(box, 2)
    for _ in range(5):
        command(box, 9, 0.2, 0, 0, 0, 0, 0, 10.0, 0.0)
        cycles(box, 45)
        assert box.runtime is Runtime.PLAYING
    cycles(box, 4)
    assert box.runtime is Runtime.PLAYING  # 98 ms after the last command
    cycles(box, 3)
    assert box.runtime in (Runtime.STOPPING, Runtime.STOPPED)


def test_a_pause_resumes_with_the_old_speed_and_a_protective_stop_waits():
    box = playing_box()
    command(box, 9, 0.3, 0, 0, 0, 0, 0, 10.0, 0.0)
    cycles(box, 50)
    box.protective_stop("test")
    cycles(box, 50)
    assert (box.qd, box.runtime, box.safety) == ((0.0,) * 6, Runtime.PAUSED, Safety.PROTECTIVE_STOP)
    assert "Cannot unlock" in str(dashboard.answer(box, "unlock protective stop"))
    cycles(box, 2500)
    assert dashboard.answer(box, "unlock protective stop") == "Protective stop releasing"
    cycles(box, 50)
    assert box.qd == (0.0,) * 6
    assert dashboard.answer(box, "play") == "Starting program"
    cycles(box, 100)
    assert box.qd[0] == pytest.approx(0.3)


def test_an_emergency_stop_needs_power_again():
    box = playing_box()
    box.emergency_stop()
    cycles(box, 2)
    assert box.robot_mode is RobotMode.POWER_OFF
    assert dashboard.answer(box, "power on") == "Failed to execute: power on"
    box.release_emergency_stop()
    box.run_script(CONTROL)
    assert box.runtime is Runtime.STOPPED
    assert dashboard.answer(box, "power on") == "Powering on"
    assert dashboard.answer(box, "brake release") == "Brake releasing"
    cycles(box, 600)
    assert box.robot_mode is RobotMode.RUNNING


def test_a_new_speed_waits_for_the_call_before_it():
    speed = Speed(ur.HOME, (0.0,) * 6, ur.NO_TOOL, linear=False)
    speed.aim((0.1, 0, 0, 0, 0, 0), 100.0, 0.1)
    q = speed.step(ur.HOME, CYCLE_S)
    speed.aim((-0.1, 0, 0, 0, 0, 0), 100.0, 0.002)
    n = 1
    while speed.now[0] > 0:
        q, n = speed.step(q, CYCLE_S), n + 1
    assert n == 51


def test_recipes_pack_in_order_and_refuse_what_is_too_short():
    recipe = Recipe(
        ["timestamp", "actual_q", "robot_mode"], {"timestamp": "DOUBLE", "actual_q": "VECTOR6D", "robot_mode": "INT32"}
    )
    values = {"timestamp": 1.5, "actual_q": (1.0, 2.0, 3.0, 4.0, 5.0, 6.0), "robot_mode": 7}
    data = recipe.pack(values)
    assert data == struct.pack(">d6di", 1.5, 1, 2, 3, 4, 5, 6, 7)
    assert recipe.unpack(data + b"tail") == values
    with pytest.raises(BadPackage):
        recipe.unpack(data[:-1])


def test_inputs_have_one_owner_until_it_leaves():
    box, claimed = Controller(KinematicArm()), {}
    first, second = Session(box, claimed), Session(box, claimed)
    ask = b"input_int_register_0,input_double_register_0,"
    assert first.answer("I", ask) == package("I", b"\1INT32,DOUBLE")
    assert second.answer("I", ask) == package("I", b"\0IN_USE,IN_USE")
    assert second.answer("I", b"no_such_thing") == package("I", b"\0NOT_FOUND")
    assert first.answer("I", b"input_int_register_0") == package("I", b"\2INT32")
    first.close()
    assert second.answer("I", ask)[3] == 3


def test_packages_come_in_pieces():
    whole, buffer = package("V", b"\0\2"), bytearray()
    for byte in whole[:-1]:
        buffer.append(byte)
        assert take(buffer) is None
    buffer += whole[-1:] + b"\0"
    assert take(buffer) == ("V", b"\0\2")
    assert buffer == b"\0"
    with pytest.raises(BadPackage):
        take(bytearray(b"\0\2V"))


def test_programs_come_in_pieces():
    text = b"junk\ndef rtde_control():\n  global reg_offset_int = # int\n24\n  def process_cmd():\n  end\nend\n"
    reader, found = ScriptReader(), []
    for i in range(len(text)):
        found += reader.feed(text[i : i + 1])
    assert found == [Script("rtde_control", 24, True)]
