"""`UR5eArm`: a UR5e, real or `cail ursim`, behind the arm contract."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import cail_robot
from cail_core.errors import MissingDependency, how_to_add
from cail_robot.arm import STILL, ArmError, ArmMode, ArmState, Twist
from cail_robot.robots.ur5e import kinematics
from cail_robot.robots.ur5e.config import UR5eConfig
from cail_robot.robots.ur5e.link import NO_COMMAND, SAFETY_STOPS, Command, Link, Mode, State
from cail_robot.safety.limits import Limits

MODES = {
    Mode.CONNECTING: ArmMode.RECOVERING,
    Mode.RECOVERING: ArmMode.RECOVERING,
    Mode.READY: ArmMode.READY,
    Mode.BLOCKED: ArmMode.BLOCKED,
    Mode.FAULT: ArmMode.FAULT,
}
LOCKED = ("protective stop", "emergency stop", "the robot is not running")
"""Faults whose end unlocks, powers on or releases brakes."""
SILENT_S = 0.2
"""The RTDE loop publishes at least every 10 ms, but while it waits for ur_rtde."""
RECOVERY_S = 90.0
"""Longest that a recovery may take without a word."""
CLOSE_S = 0.3


def need_rtde() -> None:
    if importlib.util.find_spec("rtde_control") is None:
        raise MissingDependency(f"the UR5e needs ur_rtde; {how_to_add('ur')}")


def urdf() -> str:
    return Path(cail_robot.__file__).with_name("data").joinpath("ur5e.urdf").read_text(encoding="utf-8")


class UR5eArm:
    """Starts the RTDE loop's process, hands it commands and reads its states through shared memory."""

    base_frame = "base"
    finger_joints = ("finger_left_joint", "finger_right_joint")
    finger_travel_m = 0.04
    joint_names = tuple(f"{name}_joint" for name in kinematics.JOINTS)
    period = 0.002

    def __init__(self, config: UR5eConfig, *, simulated: bool = False, source: str = "") -> None:
        """`simulated`: the box is one of this machine, which whoever started it knows; `source`: where the settings are from."""
        need_rtde()
        self.config, self.simulated = config, simulated
        self.settings_text = config.text(source)
        self.name = f"UR5e at {config.robot_ip}"
        self._link: Link | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._command: Command = NO_COMMAND

    @property
    def description(self) -> str:
        """The URDF: a UR5e with a two-finger gripper in simple shapes."""
        return urdf()

    def limit_faults(self, limits: Limits) -> list[str]:
        """Where limits of the filter contradict what the box is told."""
        return self.config.limit_faults(limits)

    def connect(self) -> None:
        self.close()
        self._link = Link()
        self._send(NO_COMMAND._replace(time=time.monotonic()))
        settings = json.dumps(dataclasses.asdict(self.config))
        command = [sys.executable, "-m", "cail_robot.robots.ur5e.loop", json.dumps(self._link.fds), settings, "", "0", "0",
                   str(os.getpid())]  # fmt: skip
        # A session of its own: Ctrl-C in the terminal is for the node, which ends the loop in order.
        self._process = subprocess.Popen(
            command, pass_fds=self._link.fds, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        until = time.monotonic() + self.config.connect_timeout_s
        while time.monotonic() < until:
            state = self._link.state()
            if self._process.poll() is not None:
                raise ArmError(self._ended())
            if state.mode is not Mode.CONNECTING:
                scheduling = "" if state.realtime else ", without real-time scheduling"
                self.name = f"UR5e at {self.config.robot_ip}{scheduling}"
                return
            time.sleep(0.005)
        self.close()
        raise ArmError(f"{self.config.robot_ip} gave no state within {self.config.connect_timeout_s:g} s")

    def read(self) -> ArmState:
        if self._link is None or self._process is None:
            raise ArmError("not connected")
        if self._process.poll() is not None:
            raise ArmError(self._ended())
        state = self._link.state()
        now = time.monotonic()
        mode = MODES[state.mode]
        if self._command.recover_count > state.recovered:
            mode = ArmMode.RECOVERING  # asked for, and the loop has not taken note yet
        silent_s = now - state.time
        if silent_s > (SILENT_S if mode is ArmMode.READY else RECOVERY_S):
            raise ArmError(f"the RTDE loop is silent for {1000 * silent_s:.0f} ms")
        pose = state.pose
        return ArmState(
            # While the loop unlocks, connects or begins anew it has no state of the box; that it lives is known.
            time=state.robot_time if mode is ArmMode.READY else now,
            position=(pose[0], pose[1], pose[2]),
            orientation=_quaternion(pose[3], pose[4], pose[5]),
            twist=state.twist,  # type: ignore[arg-type]
            q=state.q,
            qdot=state.qd,
            gripper=state.gripper,
            mode=mode,
            faults=(state.text,) if state.text else (),
            locked=mode is ArmMode.FAULT and state.text.startswith(LOCKED),
            notes=(state.note,) if state.note else (),
            safety_stop=state.text in SAFETY_STOPS,
            jacobian=kinematics.jacobian(state.q, self.config.tool_offset),
        )

    def send_twist(self, twist: Twist) -> None:
        self._send(self._command._replace(time=time.monotonic(), twist=twist))

    def send_gripper(self, opening: float) -> None:
        self._send(self._command._replace(gripper=opening, gripper_count=self._command.gripper_count + 1))

    def stop(self) -> None:
        """The loop's acceleration is above every deceleration of the filter: a zero twist is the fastest stop."""
        self.send_twist(STILL)

    def recover(self) -> None:
        self._send(self._command._replace(recover_count=self._command.recover_count + 1))

    def close(self) -> None:
        if self._process is not None:
            self._send(self._command._replace(quit=True))
            try:
                self._process.wait(CLOSE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()  # the box's watchdog stops the arm
                self._process.wait()
            self._process = None
        if self._link is not None:
            self._link.close()
            self._link = None

    def loop_pid(self) -> int | None:
        """The RTDE loop's process."""
        return self._process.pid if self._process is not None else None

    def link_state(self) -> State:
        """What the RTDE loop last wrote, its counters included."""
        if self._link is None:
            raise ArmError("not connected")
        return self._link.state()

    def _send(self, command: Command) -> None:
        if self._link is None:
            raise ArmError("not connected")
        self._command = command
        self._link.send(command)

    def _ended(self) -> str:
        assert self._process is not None
        assert self._link is not None
        code = self._process.returncode
        if code is not None and code < 0:
            return f"the RTDE loop was killed by signal {-code}; the box's watchdog has stopped the arm"
        return self._link.state().text or f"the RTDE loop ended with code {code}"


def _quaternion(rx: float, ry: float, rz: float) -> tuple[float, float, float, float]:
    angle = math.sqrt(rx * rx + ry * ry + rz * rz)
    if angle < 1e-9:
        return (0.5 * rx, 0.5 * ry, 0.5 * rz, 1.0)
    scale = math.sin(0.5 * angle) / angle
    return (rx * scale, ry * scale, rz * scale, math.cos(0.5 * angle))
