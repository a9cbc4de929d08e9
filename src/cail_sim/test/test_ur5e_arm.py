"""UR5eArm behind the filter against the control box: real processes, real sockets, faults on demand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from boxes import RunningBox

from cail_robot.arm import STILL, ArmError, ArmMode, Twist
from cail_robot.control.state_machine import ArmControl, State, StatusCode
from cail_robot.robots.ur5e import kinematics
from cail_robot.robots.ur5e.arm import UR5eArm
from cail_robot.robots.ur5e.config import GripperConfig, UR5eConfig
from cail_robot.safety.limits import Limits

pytest.importorskip("rtde_control")

DOWN: Twist = (0.0, 0.0, -0.04, 0.0, 0.0, 0.0)
PATIENT: dict[str, float] = {"watchdog_hz": 8.0, "command_timeout_s": 0.3, "link_timeout_s": 0.3}
"""A test machine may be busy. The benchmark measures the real settings."""
GRIPPERS = [GripperConfig(), GripperConfig(kind="digital", output=16, travel_s=0.1)]


class Lab:
    """A node without ROS: the control loop in a thread, and a person who commands."""

    def __init__(self, box: RunningBox, **settings: object) -> None:
        self.box = box
        self.arm = UR5eArm(UR5eConfig(robot_ip=box.host, **{**PATIENT, **settings}))  # type: ignore[arg-type]
        self.control = ArmControl(self.arm, Limits(stale_after_s=0.3, max_stamp_age_s=0.5))
        self.wanted: Twist | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()
        self.until_state(State.IDLE)

    def _loop(self) -> None:
        while not self._ending.is_set():
            if self.wanted is not None:
                self.control.command(self.wanted, "base", time.time())
            self.control.cycle()
            time.sleep(0.002)

    def until_state(self, state: State, timeout_s: float = 15.0) -> str:
        end = time.monotonic() + timeout_s
        while self.control.state is not state:
            assert time.monotonic() < end, f"expected {state}, is {self.control.status}"
            time.sleep(0.002)
        return self.control.status.reason

    def move(self) -> None:
        """Enable, command rest, then motion, and see the arm move."""
        self.wanted = STILL
        done, text = self.control.enable(True)
        assert done, text
        end = time.monotonic() + 5.0
        while self.control.status.needs_zero:
            assert time.monotonic() < end
            time.sleep(0.002)
        self.wanted = DOWN
        self.box.wait_for(moving=True)

    def clear(self) -> None:
        """clear_fault until it is through."""
        end = time.monotonic() + 15.0
        while self.control.state is not State.IDLE:
            assert time.monotonic() < end, self.control.status
            if self.control.state is State.FAULT:
                self.control.clear_fault(unlock=True)
            time.sleep(0.1)

    def stays_at_rest(self, seconds: float = 0.4) -> None:
        """Although motion is still commanded."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert not self.box.status()["moving"]
            time.sleep(0.01)

    def close(self) -> None:
        self._ending.set()
        self._thread.join(20)
        self.control.close()


@pytest.fixture
def lab(box: RunningBox) -> Iterator[Lab]:
    lab = Lab(box)
    yield lab
    lab.close()


def test_moves_as_the_filter_says_and_ends_in_order(lab: Lab, box: RunningBox):
    lab.move()
    start = lab.arm.read()
    assert start.mode is ArmMode.READY
    assert box.status()["watchdog"]
    end = time.monotonic() + 10.0
    while (now := lab.arm.read()).position[2] > start.position[2] - 0.01:
        assert time.monotonic() < end, lab.control.status
        time.sleep(0.01)
    assert now.position[:2] == pytest.approx(start.position[:2], abs=1e-3)
    assert now.twist[2] == pytest.approx(-0.04, abs=0.005)
    assert now.jacobian is not None
    assert now.jacobian @ now.qdot == pytest.approx(now.twist, abs=1e-6)
    frame = kinematics.forward(now.q, lab.arm.config.tool_offset)
    assert now.position == pytest.approx(frame.origin, abs=1e-6)
    lab.close()
    status = box.wait_for(moving=False, runtime="STOPPED")
    assert "dashboard" in str(status["said"])
    assert lab.arm.loop_pid() is None


@pytest.mark.parametrize(
    ("fault", "repair", "text"),
    [
        ("pstop", "", "protective stop"),
        ("estop", "release", "emergency stop"),
        ("pendant-stop", "", "stopped at the pendant"),
        ("pause", "", "paused at the pendant"),
        ("safeguard open", "safeguard closed", "safeguard"),
        ("slider 0.5", "slider 1", "slider is at 50%"),
        ("remote off", "remote on", "remote control is off"),
    ],
)
def test_a_fault_stops_the_arm_until_it_is_cleared(lab: Lab, box: RunningBox, fault: str, repair: str, text: str):
    lab.move()
    box.fault(fault)
    assert text in lab.until_state(State.FAULT)
    by_safety = fault in ("pstop", "estop", "safeguard open")
    assert lab.control.status.code is (StatusCode.SAFETY_STOP if by_safety else StatusCode.FAULT)
    box.wait_for(moving=False)
    lab.stays_at_rest()
    if repair:
        lab.control.clear_fault(unlock=True)  # too early: what stops the arm is still there
        time.sleep(0.3)
        assert lab.control.state is State.FAULT
        box.fault(repair)
        lab.stays_at_rest()
    lab.clear()
    lab.stays_at_rest(0.2)  # no motion without a new enable
    lab.move()


def test_silence_of_the_node_stops_the_arm(lab: Lab, box: RunningBox):
    lab.move()
    lab._ending.set()
    lab._thread.join()
    box.wait_for(moving=False)
    state = lab.arm.read()
    assert state.mode is ArmMode.FAULT
    assert "silent" in state.faults[0]
    lab.arm.send_twist(DOWN)
    time.sleep(0.1)
    assert not box.status()["moving"]


def test_a_killed_loop_is_stopped_by_the_watchdog_and_started_again(lab: Lab, box: RunningBox):
    lab.move()
    pid = lab.arm.loop_pid()
    assert pid is not None
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    status = box.wait_for(moving=False)
    assert float(str(status["moving_at"])) - killed < 0.6
    lab.until_state(State.DISCONNECTED)
    lab.until_state(State.IDLE)
    lab.stays_at_rest()
    assert lab.arm.loop_pid() != pid
    lab.move()


@pytest.mark.parametrize("fault", ["drop 200", "freeze 1000", "half-open 800", "restart 300", "garbage 200"])
def test_a_broken_link_stops_the_arm_and_comes_back_at_rest(lab: Lab, box: RunningBox, fault: str):
    lab.move()
    box.fault(fault)
    box.wait_for(moving=False)
    if fault == "garbage 200":  # ur_rtde may read over some of it
        lab.until_state(State.DISCONNECTED)
    end = time.monotonic() + 20.0
    while lab.control.state not in (State.IDLE, State.FAULT) or box.status()["clients"] == 0:
        assert time.monotonic() < end, lab.control.status
        time.sleep(0.01)
    lab.stays_at_rest()
    lab.clear()
    lab.move()


def test_nobody_there_is_one_sentence():
    arm = UR5eArm(UR5eConfig(robot_ip="127.200.200.200"))
    with pytest.raises(ArmError, match=r"no control box answers at 127\.200\.200\.200"):
        arm.connect()
    arm.close()
    arm.close()


def test_a_refused_program_is_a_fault_that_can_be_cleared(box: RunningBox):
    box.fault("script refuse")
    arm = UR5eArm(UR5eConfig(robot_ip=box.host))
    arm.connect()
    try:
        state = arm.read()
        assert state.mode is ArmMode.FAULT
        assert "program does not start" in state.faults[0]
        box.fault("script accept")
        arm.recover()
        end = time.monotonic() + 15
        while arm.read().mode is not ArmMode.READY:
            assert time.monotonic() < end, arm.read()
            time.sleep(0.01)
    finally:
        box.fault("script accept")
        arm.close()


def move_gripper(arm: UR5eArm, opening: float) -> None:
    arm.send_gripper(opening)
    end = time.monotonic() + 10
    while abs(arm.read().gripper - opening) > 0.02:
        assert time.monotonic() < end
        arm.send_twist(STILL)
        time.sleep(0.01)


@pytest.mark.parametrize("gripper", GRIPPERS)
def test_grippers_open_and_close(box: RunningBox, gripper: GripperConfig):
    arm = UR5eArm(UR5eConfig(robot_ip=box.host, gripper=gripper, **PATIENT))  # type: ignore[arg-type]
    arm.connect()
    try:
        for opening, level in ((0.0, 1 << 16), (1.0, 0)):
            move_gripper(arm, opening)
            if gripper.kind == "digital":
                assert box.status()["digital_out"] == level
            else:
                assert box.status()["gripper"] == pytest.approx(opening, abs=0.02)
    finally:
        arm.close()


@pytest.mark.parametrize("gripper", GRIPPERS)
def test_a_closed_gripper_is_never_called_open_after_a_fault(box: RunningBox, gripper: GripperConfig):
    arm = UR5eArm(UR5eConfig(robot_ip=box.host, gripper=gripper, **PATIENT))  # type: ignore[arg-type]
    arm.connect()
    try:
        move_gripper(arm, 0.0)
        box.fault("pstop")
        end = time.monotonic() + 15
        while arm.read().mode is not ArmMode.FAULT:
            assert time.monotonic() < end, arm.read()
        arm.recover()
        while (state := arm.read()).mode is not ArmMode.READY:
            assert state.gripper < 0.02
            assert time.monotonic() < end, state
            time.sleep(0.002)
        assert arm.read().gripper < 0.02
        if gripper.kind == "robotiq":  # one that connects anew asks before it tells
            arm.connect()
            assert arm.read().gripper < 0.02
    finally:
        arm.close()


def until(what: object, text: str, arm: UR5eArm, timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not what():  # type: ignore[operator]
        assert time.monotonic() < end, f"{text}: {arm.read()}"
        arm.send_twist(STILL)
        time.sleep(0.01)


def test_a_gripper_that_does_not_answer_is_said_at_once_and_so_is_its_return(box: RunningBox):
    arm = UR5eArm(UR5eConfig(robot_ip=box.host, **PATIENT))  # type: ignore[arg-type]
    box.fault("gripper silent")
    arm.connect()
    try:
        until(lambda: any("the robotiq gripper does not answer" in note for note in arm.read().notes), "silence", arm)
        box.fault("gripper answers")
        until(lambda: not arm.read().notes, "its return", arm)
    finally:
        box.fault("gripper answers")
        arm.close()


def test_nothing_but_a_command_to_the_gripper_activates_it(box: RunningBox):
    """Activating moves the fingers fully: not at the start, and not when the tool's power comes back."""
    box.fault("gripper inactive")
    before = box.status()["gripper_activations"]
    arm = UR5eArm(UR5eConfig(robot_ip=box.host, **PATIENT))  # type: ignore[arg-type]
    arm.connect()
    try:
        until(lambda: any("not activated" in note for note in arm.read().notes), "that it is not activated", arm)
        opening = box.status()["gripper"]
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            arm.send_twist(STILL)
            time.sleep(0.02)
        assert (box.status()["gripper_activations"], box.status()["gripper"]) == (before, opening)
        move_gripper(arm, 0.0)
        assert box.status()["gripper_activations"] == before + 1
        until(lambda: not arm.read().notes, "that it is well", arm)
    finally:
        arm.close()


def test_a_protective_stop_needs_more_than_clearing_a_fault(box: RunningBox):
    lab = Lab(box)
    try:
        box.fault("pstop")
        lab.until_state(State.FAULT)
        done, text = lab.control.clear_fault()
        assert not done
        assert "See that nobody is clamped" in text
        time.sleep(0.2)
        assert box.status()["safety"] == "PROTECTIVE_STOP"
        lab.clear()
    finally:
        lab.close()


def test_a_loop_whose_node_was_killed_before_it_began_ends(box: RunningBox, tmp_path):
    """The node is killed in the moment between starting the loop and the loop's first look at who started it."""
    program = (
        "import os, signal, subprocess, sys\n"
        "from cail_robot.robots.ur5e.arm import UR5eArm\n"
        "from cail_robot.robots.ur5e.config import UR5eConfig\n"
        "started = subprocess.Popen\n"
        "def killed(command, **options):\n"
        "    made = started(command, **options)\n"
        "    print(made.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "subprocess.Popen = killed\n"
        f"UR5eArm(UR5eConfig(robot_ip='{box.host}')).connect()\n"
    )
    node = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    pid = int(node.stdout)
    end = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < end, "the loop outlives its node"
        time.sleep(0.05)
    assert box.status()["runtime"] == "STOPPED"


def test_a_program_of_somebody_else_is_not_ended_without_being_asked(box: RunningBox):
    import rtde_control

    other = rtde_control.RTDEControlInterface(box.host)
    arm = UR5eArm(UR5eConfig(robot_ip=box.host, **PATIENT))  # type: ignore[arg-type]
    try:
        assert box.status()["runtime"] == "PLAYING"
        arm.connect()
        until(lambda: arm.read().mode is ArmMode.FAULT, "a fault", arm)
        assert "a program runs on the box" in arm.read().faults[0]
        assert box.status()["runtime"] == "PLAYING"
        other.stopScript()
        other.disconnect()
        arm.recover()
        until(lambda: arm.read().mode is ArmMode.READY, "control", arm)
    finally:
        arm.close()


def test_settings_are_checked():
    from cail_core.config import find_config, read_yaml
    from cail_core.errors import ConfigError
    from cail_robot.safety.limits import load_with_limits

    assert load_with_limits(UR5eConfig, find_config("ur5e")) == UR5eConfig()
    base, own = read_yaml(find_config("limits")), read_yaml(find_config("ur5e"))["limits"]
    assert not [name for name, value in own.items() if base[name] == value], "a robot's file names only what differs"
    with pytest.raises(ConfigError, match="tool_offset: expected 6"):
        UR5eConfig(tool_offset=(0.0, 0.0, 0.1))
