"""The control box with the unmodified ur_rtde as its client, over real sockets."""

from __future__ import annotations

import math
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
from boxes import RunningBox, running_box

from cail_robot.robots.ur5e import kinematics as ur
from cail_sim.ursim.motion import STOP_DECELERATION

rtde_control = pytest.importorskip("rtde_control")
rtde_receive = pytest.importorskip("rtde_receive")
rtde_io = pytest.importorskip("rtde_io")
dashboard_client = pytest.importorskip("dashboard_client")


class Clients:
    def __init__(self, host: str) -> None:
        self.receive = rtde_receive.RTDEReceiveInterface(host)
        self.control = rtde_control.RTDEControlInterface(host)

    def close(self) -> None:
        self.control.disconnect()
        self.receive.disconnect()

    def speed(self) -> float:
        return math.hypot(*self.receive.getActualTCPSpeed()[:3])

    def until(self, condition: object, timeout_s: float = 5.0) -> None:
        end = time.monotonic() + timeout_s
        while not condition():  # type: ignore[operator]
            assert time.monotonic() < end
            time.sleep(0.002)

    def reaches(self, wanted: object, *, joints: bool = False, within: float = 1e-6) -> None:
        """The state arrives on a connection of its own, so it may come after the move's end."""
        read = self.receive.getActualQ if joints else self.receive.getActualTCPPose
        self.until(lambda: read()[: len(wanted)] == pytest.approx(wanted, abs=within))  # type: ignore[arg-type]


@pytest.fixture
def ur5e(box: RunningBox) -> Iterator[Clients]:
    clients = Clients(box.host)
    yield clients
    clients.close()


def test_connects_and_streams(ur5e: Clients, box: RunningBox):
    assert ur5e.control.isProgramRunning()
    assert ur5e.receive.getActualQ() == pytest.approx(ur.HOME)
    assert ur5e.receive.getActualTCPPose()[:3] == pytest.approx((0.4919, -0.1333, 0.4879))
    assert (ur5e.receive.getRobotMode(), ur5e.receive.getSafetyMode(), ur5e.receive.getRuntimeState()) == (7, 1, 2)
    before = ur5e.receive.getTimestamp()
    ur5e.until(lambda: ur5e.receive.getTimestamp() > before + 0.2)


def test_speed_l_reaches_its_speed_with_its_acceleration(ur5e: Clients):
    start = ur5e.receive.getActualTCPPose()
    assert ur5e.control.speedL([0.0, 0.06, -0.08, 0, 0, 0], 0.5, 0.0)
    ur5e.until(lambda: ur5e.speed() > 0.0999)
    # Straight, as v² / 2a: 0.1 m/s reached at 0.5 m/s² takes 0.2 s and 1 cm; what follows is at constant speed.
    pose, stamp = ur5e.receive.getActualTCPPose(), ur5e.receive.getTimestamp()
    way = np.subtract(pose, start)[:3]
    assert np.linalg.norm(way) >= 0.0099
    assert way / np.linalg.norm(way) == pytest.approx((0.0, 0.6, -0.8), abs=0.01)
    time.sleep(0.1)
    later, then = ur5e.receive.getActualTCPPose(), ur5e.receive.getTimestamp()
    assert np.linalg.norm(np.subtract(later, pose)[:3]) == pytest.approx(0.1 * (then - stamp), abs=0.002)
    assert pose[3:] == pytest.approx(start[3:], abs=1e-3)
    ur5e.control.speedStop()
    assert ur5e.control.isSteady()
    ur5e.until(lambda: ur5e.speed() == 0.0)


def test_without_a_watchdog_the_arm_goes_on_when_its_client_goes(ur5e: Clients, box: RunningBox):
    ur5e.control.speedL([0.01, 0, 0, 0, 0, 0], 0.5, 0.0)
    box.wait_for(moving=True)
    ur5e.control.disconnect()
    time.sleep(0.3)
    assert box.status()["moving"]


def test_watchdog_stops_the_arm(ur5e: Clients, box: RunningBox):
    ur5e.control.setWatchdog(5.0)
    for _ in range(50):
        assert ur5e.control.speedL([0.05, 0, 0, 0, 0, 0], 2.0, 0.002)
        time.sleep(0.002)
    assert box.status()["moving"]
    last = time.monotonic()
    now = box.wait_for(moving=False, runtime="STOPPED")
    assert "watchdog" in str(now["said"])
    assert 0.15 < float(str(now["moving_at"])) - last < 1.0  # 200 ms, the braking, and a busy machine
    assert not ur5e.control.isProgramRunning()
    assert not ur5e.control.speedL([0.05, 0, 0, 0, 0, 0], 2.0, 0.002)


def test_a_new_speed_is_taken_when_the_call_returns(ur5e: Clients, box: RunningBox):
    ur5e.control.speedL([0.05, 0, 0, 0, 0, 0], 2.0, 0.6)
    ur5e.until(lambda: ur5e.speed() > 0.04)
    begun = ur5e.receive.getTimestamp()
    ur5e.control.speedL([-0.05, 0, 0, 0, 0, 0], 2.0, 0.002)
    ur5e.until(lambda: ur5e.receive.getActualTCPSpeed()[0] < 0)
    assert ur5e.receive.getTimestamp() - begun > 0.45


def test_moves_arrive(ur5e: Clients):
    q = list(ur.HOME)
    q[0], q[3] = 0.4, -1.2
    stamp = ur5e.receive.getTimestamp()
    assert ur5e.control.moveJ(q, 1.0, 4.0)
    # The base leads: 0.4 rad at 1 rad/s and 4 rad/s² take 0.4 + 0.25 s.
    assert ur5e.receive.getTimestamp() - stamp > 0.64
    ur5e.reaches(q, joints=True)
    pose = ur5e.receive.getActualTCPPose()
    pose[0] -= 0.05
    pose[2] -= 0.05
    assert ur5e.control.moveL(pose, 0.25, 1.0)
    ur5e.reaches(pose)
    assert ur5e.control.moveJ_IK(ur.pose_of(ur.forward(q)), 2.0, 8.0)
    ur5e.reaches(q, joints=True)
    assert ur5e.control.moveL_FK(list(ur.HOME), 1.0, 4.0)
    ur5e.reaches((0.4919, -0.1333, 0.4879))


def test_an_asynchronous_move_can_be_stopped(ur5e: Clients):
    q = list(ur.HOME)
    q[0] = 1.5
    assert ur5e.control.moveJ(q, 0.5, 2.0, True)
    assert ur5e.control.getAsyncOperationProgress() >= 0
    ur5e.until(lambda: ur5e.speed() > 0.1)
    ur5e.control.stopJ(4.0)
    ur5e.until(lambda: ur5e.speed() == 0.0)
    assert 0.0 < ur5e.receive.getActualQ()[0] < 1.4
    ur5e.until(lambda: ur5e.control.getAsyncOperationProgress() < 0)


def test_a_path_goes_through_its_waypoints(ur5e: Clients):
    a, b = list(ur.HOME), list(ur.HOME)
    a[0], b[0] = 0.2, -0.1
    assert ur5e.control.moveJ([[*a, 1.0, 4.0, 0.0], [*b, 1.0, 4.0, 0.0]])
    ur5e.reaches(b, joints=True, within=1e-4)


def test_servoing_follows(ur5e: Clients):
    q = list(ur.HOME)
    for _ in range(250):
        q[0] += 0.0005
        assert ur5e.control.servoJ(q, 0, 0, 0.002, 0.05, 600)
        time.sleep(0.002)
    ur5e.until(lambda: abs(ur5e.receive.getActualQ()[0] - q[0]) < 1e-3)
    assert ur5e.control.servoStop()
    pose = ur5e.receive.getActualTCPPose()
    pose[2] += 0.02
    assert ur5e.control.servoL(pose, 0, 0, 0.002, 0.05, 600)
    ur5e.until(lambda: abs(ur5e.receive.getActualTCPPose()[2] - pose[2]) < 1e-3)
    ur5e.control.servoStop()


def test_questions_and_settings(ur5e: Clients):
    tool = [0.0, 0.0, 0.15, 0.0, 0.0, 0.0]
    assert ur5e.control.setTcp(tool)
    assert ur5e.control.setPayload(0.9, [0.0, 0.0, 0.05])
    assert ur5e.control.getTCPOffset() == pytest.approx(tool)
    pose = ur5e.control.getForwardKinematics()
    assert pose == pytest.approx(ur.pose_of(ur.forward(ur.HOME, tool)))
    assert ur5e.control.getInverseKinematics(pose) == pytest.approx(ur.HOME)
    ur5e.until(lambda: ur5e.receive.getPayload() == 0.9)
    assert ur5e.control.isPoseWithinSafetyLimits(pose)
    assert not ur5e.control.isPoseWithinSafetyLimits([1.5, 0, 0, 0, 0, 0])
    a, b = [0.1, 0.2, 0.3, 0.0, 0.0, math.pi / 2], [0.1, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert ur5e.control.poseTrans(a, b) == pytest.approx([0.1, 0.3, 0.3, 0.0, 0.0, math.pi / 2])
    assert ur5e.control.zeroFtSensor()


def test_custom_scripts_and_the_script_stopped(ur5e: Clients):
    assert ur5e.control.sendCustomScriptFunction("greet", 'textmsg("hello")\n')
    ur5e.control.stopScript()
    ur5e.until(lambda: ur5e.receive.getRuntimeState() == 1)
    assert ur5e.control.reuploadScript()
    ur5e.until(ur5e.control.isProgramRunning)


def test_protective_stop_waits_five_seconds_and_does_not_resume(ur5e: Clients, box: RunningBox):
    dashboard = dashboard_client.DashboardClient(box.host)
    dashboard.connect()
    ur5e.control.speedL([0.05, 0, 0, 0, 0, 0], 2.0, 0.0)
    box.wait_for(moving=True)
    assert ur5e.control.triggerProtectiveStop() in (True, False)  # the stop may overtake the answer
    box.wait_for(moving=False, safety="PROTECTIVE_STOP", runtime="PAUSED")
    stopped = time.monotonic()
    assert ur5e.receive.isProtectiveStopped()
    assert not ur5e.control.speedL([0.05, 0, 0, 0, 0, 0], 2.0, 0.0)
    with pytest.raises(RuntimeError):
        dashboard.unlockProtectiveStop()
    while time.monotonic() - stopped < 6.0:
        try:
            dashboard.unlockProtectiveStop()
            break
        except RuntimeError:
            time.sleep(0.1)
    assert time.monotonic() - stopped > 4.5
    now = box.wait_for(safety="NORMAL")
    assert (now["moving"], now["runtime"]) == (False, "PAUSED")
    assert ur5e.control.reuploadScript()
    ur5e.until(ur5e.control.isProgramRunning)
    assert not box.status()["moving"]
    dashboard.disconnect()


def test_emergency_stop_needs_release_power_and_brakes(ur5e: Clients, box: RunningBox):
    dashboard = dashboard_client.DashboardClient(box.host)
    dashboard.connect()
    ur5e.control.speedL([0.05, 0, 0, 0, 0, 0], 2.0, 0.0)
    box.wait_for(moving=True)
    box.fault("estop")
    box.wait_for(moving=False, robot_mode="POWER_OFF", runtime="STOPPED")
    ur5e.until(ur5e.receive.isEmergencyStopped)
    dashboard.powerOn()
    time.sleep(0.05)
    assert box.status()["robot_mode"] == "POWER_OFF"
    box.fault("release")
    dashboard.powerOn()
    dashboard.brakeRelease()
    box.wait_for(robot_mode="RUNNING")
    assert ur5e.control.reuploadScript()
    ur5e.until(ur5e.control.isProgramRunning)
    dashboard.disconnect()


def test_a_safeguard_resumes_the_old_speed_by_itself(ur5e: Clients, box: RunningBox):
    """What a client must guard against."""
    ur5e.control.speedL([0.03, 0, 0, 0, 0, 0], 2.0, 0.0)
    box.wait_for(moving=True)
    box.fault("safeguard open")
    box.wait_for(moving=False, runtime="PAUSED")
    box.fault("safeguard closed")
    box.wait_for(moving=True, runtime="PLAYING")


def test_the_slider_slows_the_tool(ur5e: Clients, box: RunningBox):
    io = rtde_io.RTDEIOInterface(box.host)
    assert io.setSpeedSlider(0.5)
    box.wait_for(slider=0.5)
    ur5e.control.speedL([0.06, 0, 0, 0, 0, 0], 2.0, 0.0)
    ur5e.until(lambda: ur5e.speed() == pytest.approx(0.03, abs=1e-4))
    assert ur5e.receive.getTargetSpeedFraction() == 0.5
    ur5e.control.speedStop()
    assert io.setStandardDigitalOut(2, True)
    assert io.setToolDigitalOut(1, True)
    assert io.setAnalogOutputVoltage(1, 0.25)
    ur5e.until(lambda: ur5e.receive.getDigitalOutState(2))
    assert box.status()["digital_out"] == 1 << 2 | 1 << 17
    io.disconnect()


def test_a_second_control_client_is_refused(ur5e: Clients, box: RunningBox):
    with pytest.raises(RuntimeError):
        rtde_control.RTDEControlInterface(box.host)
    upper = rtde_control.RTDEControlInterface.FLAG_UPPER_RANGE_REGISTERS | rtde_control.RTDEControlInterface.FLAG_NO_EXT_FT
    other = rtde_control.RTDEControlInterface(box.host, 500.0, upper | rtde_control.RTDEControlInterface.FLAG_UPLOAD_SCRIPT)
    assert other.getForwardKinematics()[:3] == pytest.approx((0.4919, -0.1333, 0.4879))
    other.disconnect()


def test_a_pose_out_of_reach_is_a_protective_stop(ur5e: Clients, box: RunningBox):
    assert not ur5e.control.moveL([1.4, 0.0, 0.3, math.pi, 0, 0], 0.25, 1.0)
    assert "cannot reach" in str(box.wait_for(safety="PROTECTIVE_STOP")["said"])


def test_a_joint_at_its_limit_is_a_protective_stop(ur5e: Clients, box: RunningBox):
    ur5e.control.speedJ([0, 0, 0, 0, 0, 3.0], 20.0, 0.0)
    now = box.wait_for(safety="PROTECTIVE_STOP", moving=False)
    assert "wrist_3 at its limit" in str(now["said"])
    assert abs(ur5e.receive.getActualQ()[5]) <= 2 * math.pi + 3.0**2 / (2 * STOP_DECELERATION) + 0.1


def test_a_tool_speed_into_a_singularity_is_a_protective_stop(ur5e: Clients, box: RunningBox):
    """Straight out until the elbow is stretched, with nothing in front of the box that would slow down."""
    until = time.monotonic() + 20
    while box.status()["safety"] == "NORMAL" and time.monotonic() < until:
        ur5e.control.speedL([0.25, 0, 0.1, 0, 0, 0], 2.0, 0.0)
        time.sleep(0.01)
    now = box.wait_for(safety="PROTECTIVE_STOP", moving=False)
    assert "near a singularity" in str(now["said"])


def test_a_stop_takes_the_joints_their_time(ur5e: Clients, box: RunningBox):
    """Told to stop at 25 m/s², the box does what the joints can."""
    until = time.monotonic() + 10
    while box.status()["tool_speed"] < 0.24 and time.monotonic() < until:
        ur5e.control.speedL([0, 0, -0.25, 0, 0, 0], 2.0, 0.0)
        time.sleep(0.01)
    before = box.status()["tcp"][2]
    ur5e.control.speedL([0, 0, 0, 0, 0, 0], 25.0, 0.0)
    way = before - box.wait_for(moving=False)["tcp"][2]
    assert way > 0.0025, "25 m/s² would take 1.25 mm"


def test_not_a_number_stops_the_program(ur5e: Clients, box: RunningBox):
    ur5e.control.speedL([math.nan, 0, 0, 0, 0, 0], 0.5, 0.0)
    assert "nan" in str(box.wait_for(runtime="STOPPED", moving=False)["said"])


def test_local_control_starts_nothing(box: RunningBox):
    box.fault("remote off")
    with pytest.raises(RuntimeError, match="remote"):
        rtde_control.RTDEControlInterface(box.host)
    box.fault("remote on")


def test_a_refused_script_and_a_wrong_version_are_told(box: RunningBox):
    box.fault("version wrong")
    assert not rtde_receive.RTDEReceiveInterface(box.host).isConnected()
    box.fault("version right")
    box.fault("script refuse")
    with pytest.raises(RuntimeError):
        rtde_control.RTDEControlInterface(box.host)
    box.fault("script accept")


def test_a_dropped_link_and_a_restart(box: RunningBox):
    receive = rtde_receive.RTDEReceiveInterface(box.host)
    box.fault("restart 300")
    receive.disconnect()
    now = box.wait_for(robot_mode="POWER_OFF", said="controller started; power is off")
    assert not now["moving"]
    receive = rtde_receive.RTDEReceiveInterface(box.host)
    assert receive.getRobotMode() == 3
    receive.disconnect()


def test_robotiq_socket(box: RunningBox):
    with socket.create_connection((box.host, 63352), timeout=5) as gripper:
        file = gripper.makefile("rwb", buffering=0)

        def ask(text: str) -> str:
            file.write(text.encode() + b"\n")
            return file.readline().decode().strip()

        assert ask("GET STA") == "STA 3"
        assert ask("GET POS") == "POS 0"
        assert ask("SET POS 255 SPE 255 FOR 100 GTO 1") == "ack"
        end = time.monotonic() + 5
        while ask("GET OBJ") != "OBJ 3":
            assert time.monotonic() < end
        assert int(ask("GET POS").split()[1]) >= 253
        assert ask("SET POS 900") == "?"
        assert ask("GET NOTHING") == "?"
        file.close()


def test_an_rtde_client_of_another_hand_gets_the_rate_it_asks_for(box: RunningBox):
    """Plain sockets, the protocol's first version and its second."""
    with socket.create_connection((box.host, 30004), timeout=5) as client:
        client.sendall(struct.pack(">HBH", 5, ord("V"), 2))
        assert client.recv(64) == struct.pack(">HBB", 4, ord("V"), 1)
        names = b"timestamp,actual_q"
        client.sendall(struct.pack(">HBd", 11 + len(names), ord("O"), 125.0) + names)
        assert client.recv(64) == struct.pack(">HBB", 19, ord("O"), 1) + b"DOUBLE,VECTOR6D"
        client.sendall(struct.pack(">HB", 3, ord("S")))
        assert client.recv(4) == struct.pack(">HBB", 4, ord("S"), 1)
        size = 3 + 1 + 7 * 8
        data = b""
        while len(data) < 6 * size:
            data += client.recv(4096)
        stamps = [struct.unpack_from(">d", data, i * size + 4)[0] for i in range(6)]
        assert np.diff(stamps) == pytest.approx(0.008)


def test_a_frozen_network_is_silent_and_comes_back(box: RunningBox):
    receive = rtde_receive.RTDEReceiveInterface(box.host)
    box.fault("freeze 300")
    stamp = receive.getTimestamp()
    time.sleep(0.1)
    frozen = receive.getTimestamp()
    assert frozen - stamp < 0.05
    time.sleep(0.5)
    assert receive.getTimestamp() > frozen + 0.2
    assert receive.isConnected()
    receive.disconnect()


def test_unknown_faults_are_answered_in_one_line(box: RunningBox):
    command = [sys.executable, "-m", "cail_core.cli", "ursim", "--host", box.host, "--fault"]
    done = subprocess.run([*command, "explode"], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "half-open" in done.stderr
    assert subprocess.run([*command, "slider 0.5"], capture_output=True).returncode == 0
    assert box.status()["slider"] == 0.5


def test_a_taken_address_is_one_line(box: RunningBox):
    done = subprocess.run([sys.executable, "-m", "cail_core.cli", "ursim", "--host", box.host], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "127.0.0.2" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ends_cleanly(number: int):
    with running_box() as box:
        receive = rtde_receive.RTDEReceiveInterface(box.host)
        box.process.send_signal(number)
        assert box.process.wait(10) == 0
        assert box.process.stderr is not None
        assert box.process.stderr.read() == b""
        receive.disconnect()
