"""The controller: modes of robot, safety and program, registers, inputs and outputs, and the 2 ms cycle that moves the arm."""

from __future__ import annotations

import enum
import math
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from cail_robot.robots.ur5e import kinematics as ur
from cail_robot.robots.ur5e.kinematics import Vector
from cail_sim.ursim.motion import (
    CYCLE_S,
    STOP_DECELERATION,
    TOOL_SPEED_LIMIT,
    Motion,
    Stop,
    Violation,
)
from cail_sim.ursim.plant import Plant
from cail_sim.ursim.program import ControlProgram, CustomProgram, ScriptError
from cail_sim.ursim.rtde import INPUTS
from cail_sim.ursim.script import Script

VERSION = (5, 12, 2, 1101534)
ZERO: Vector = (0.0,) * 6
OUT_INTS = [f"output_int_register_{i}" for i in range(48)]
OUT_DOUBLES = [f"output_double_register_{i}" for i in range(48)]
UNLOCK_AFTER_S = 5.0
POWER_S = 0.5
"""How long powering on and releasing the brakes take each; a real arm needs some seconds."""


class Runtime(enum.IntEnum):
    STOPPING = 0
    STOPPED = 1
    PLAYING = 2
    PAUSING = 3
    PAUSED = 4
    RESUMING = 5


class RobotMode(enum.IntEnum):
    POWER_OFF = 3
    POWER_ON = 4
    IDLE = 5
    RUNNING = 7


class Safety(enum.IntEnum):
    NORMAL = 1
    PROTECTIVE_STOP = 3
    SAFEGUARD_STOP = 5
    ROBOT_EMERGENCY_STOP = 7


SAFETY_BITS = {
    Safety.NORMAL: 1 << 0,
    Safety.PROTECTIVE_STOP: 1 << 2 | 1 << 10,
    Safety.SAFEGUARD_STOP: 1 << 4 | 1 << 10,
    Safety.ROBOT_EMERGENCY_STOP: 1 << 6 | 1 << 7 | 1 << 10,
}


class Controller:
    """State and motion of the box. It knows no sockets; `cycle` is called every 2 ms."""

    def __init__(self, plant: Plant, version: tuple[int, int, int, int] = VERSION) -> None:
        self.plant = plant
        self.version = version
        self.accept_protocol = True
        self.accept_scripts = True
        self.remote = True
        self.serial = "20245500001"
        self.cycles = 0
        self.robot_mode = RobotMode.RUNNING
        self.safety = Safety.NORMAL
        self.runtime = Runtime.STOPPED
        self.program: ControlProgram | CustomProgram | None = None
        self.program_name = "<unnamed>"
        self.said = "ready"
        """The last thing that happened, for the status line."""
        self.inputs: dict[str, Any] = {
            name: (0.0,) * 6 if kind == "VECTOR6D" else 0.0 if kind == "DOUBLE" else 0 for name, kind in INPUTS.items()
        }
        self.out_int = [0] * 48
        self.out_double = [0.0] * 48
        self.digital_out = 0
        self.analog_out = [0.0, 0.0]
        self.slider = 1.0
        self.tcp: Vector = ur.NO_TOOL
        self.payload = 0.0
        self.payload_cog: Vector = (0.0, 0.0, 0.0)
        self.q: Vector = plant.q
        self.qd: Vector = ZERO
        self.qdd: Vector = ZERO
        self.motion: Motion | None = None
        self.scale = 1.0
        self._watchdog: tuple[str, int] | None = None
        self._kicked_at = 0
        self._stopped_at = 0
        self._power_steps: deque[tuple[int, RobotMode]] = deque()
        self.moving_at = 0.0
        """time.monotonic() of the last cycle in which the arm moved."""
        self.resting_since_cycle = 0
        self.speed_commands: deque[tuple[float, Vector]] = deque(maxlen=4096)
        """time.monotonic() and target of each changed speed command: what a benchmark compares its clock with."""
        self.command_gaps = [0] * 2000
        """How often two speedL of a client came so many 0.1 ms after each other; the last counts longer ones too."""
        self._command_at = 0.0

    @property
    def time_s(self) -> float:
        return self.cycles * CYCLE_S

    @property
    def can_move(self) -> bool:
        return self.robot_mode is RobotMode.RUNNING and self.safety is Safety.NORMAL

    # Programs

    def run_script(self, script: Script) -> None:
        """Start a program, in place of the running one."""
        if not self.remote:
            self.said = "a script was ignored: remote control is off"
        elif not self.accept_scripts:
            self.said = "a script was refused"
        elif not self.can_move:
            self.said = f"a script was ignored: {self.safety.name}, {self.robot_mode.name}"
        else:
            self._drop_program()
            self.program = ControlProgram(self, script) if script.is_control else CustomProgram(self, script)
            self.program_name = script.name
            self.runtime = Runtime.PLAYING
            self.program.start()
            self.said = f"program {script.name} runs"

    def end_program(self, why: str) -> None:
        """The program ends and the arm brakes."""
        if self.runtime is Runtime.STOPPED:
            return
        self._drop_program()
        self.runtime = Runtime.STOPPING
        self.said = why

    def _drop_program(self) -> None:
        self.program = None
        self._watchdog = None
        if self.motion is not None:
            self.motion = Stop(self.q, self.qd, STOP_DECELERATION, self.tcp, linear=False)

    def pause(self, why: str) -> None:
        if self.runtime in (Runtime.PLAYING, Runtime.RESUMING):
            self.runtime = Runtime.PAUSING
            self.said = why

    def resume(self) -> bool:
        """Go on where the program was paused: also with the speed it had."""
        if self.runtime not in (Runtime.PAUSED, Runtime.PAUSING) or not self.can_move:
            return False
        self.runtime = Runtime.RESUMING
        self.said = "program resumed"
        return True

    # Safety

    def protective_stop(self, why: str) -> None:
        if self.safety is Safety.NORMAL:
            self.safety = Safety.PROTECTIVE_STOP
            self._stopped_at = self.cycles
            self.pause(f"protective stop: {why}")
            self.said = f"protective stop: {why}"

    def unlock_protective_stop(self) -> bool:
        if self.safety is Safety.PROTECTIVE_STOP:
            if (self.cycles - self._stopped_at) * CYCLE_S < UNLOCK_AFTER_S:
                return False
            self.safety = Safety.NORMAL
            self.said = "protective stop released"
        return True

    def emergency_stop(self) -> None:
        self.safety = Safety.ROBOT_EMERGENCY_STOP
        self.end_program("emergency stop")
        self._power_steps.clear()
        self.said = "emergency stop"

    def release_emergency_stop(self) -> None:
        if self.safety is Safety.ROBOT_EMERGENCY_STOP:
            self.safety = Safety.NORMAL
            self.said = "emergency stop released; power is off"

    def safeguard(self, open_: bool) -> None:
        if open_ and self.safety is Safety.NORMAL:
            self.safety = Safety.SAFEGUARD_STOP
            self.pause("safeguard stop")
        elif not open_ and self.safety is Safety.SAFEGUARD_STOP:
            self.safety = Safety.NORMAL
            self.resume()  # without a reset input configured, a box goes on by itself

    # Power

    def power_on(self) -> bool:
        if self.safety is Safety.ROBOT_EMERGENCY_STOP:
            return False
        if self.robot_mode is RobotMode.POWER_OFF:
            self._power_steps = deque([(self.cycles + 1, RobotMode.POWER_ON), (self._in_s(POWER_S), RobotMode.IDLE)])
        return True

    def brake_release(self) -> bool:
        if self.safety is not Safety.NORMAL or (self.robot_mode is RobotMode.POWER_OFF and not self._power_steps):
            return False
        if self.robot_mode is not RobotMode.RUNNING:
            after = self._power_steps[-1][0] if self._power_steps else self.cycles
            self._power_steps.append((after + round(POWER_S / CYCLE_S), RobotMode.RUNNING))
        return True

    def power_off(self) -> None:
        self.end_program("power off")
        self.motion = None
        self.qd = ZERO
        self.robot_mode = RobotMode.POWER_OFF
        self._power_steps.clear()

    def _in_s(self, seconds: float) -> int:
        return self.cycles + round(seconds / CYCLE_S)

    # Inputs

    def write_inputs(self, values: Mapping[str, Any]) -> None:
        """A client's data package."""
        self.inputs.update(values)
        if self._watchdog is not None and self._watchdog[0] in values:
            self._kicked_at = self.cycles
            self._note_command(values)
        if values.get("speed_slider_mask"):
            self.set_slider(values.get("speed_slider_fraction", 1.0))
        for prefix, shift in (("standard", 0), ("configurable", 8), ("tool", 16)):
            if mask := values.get(f"{prefix}_digital_output_mask", 0):
                level = values.get(f"{prefix}_digital_output", 0)
                self.digital_out = self.digital_out & ~(mask << shift) | (level & mask) << shift
        if mask := values.get("standard_analog_output_mask", 0):
            for i in (0, 1):
                level = values.get(f"standard_analog_output_{i}", 0.0)
                if mask >> i & 1 and math.isfinite(level):
                    self.analog_out[i] = level

    def set_slider(self, fraction: float) -> None:
        if math.isfinite(fraction):
            self.slider = min(max(fraction, 0.0), 1.0)

    def set_watchdog(self, register: str, min_frequency: float) -> None:
        self._watchdog = (register, math.ceil(1.0 / max(min_frequency, 0.01) / CYCLE_S)) if min_frequency > 0 else None
        self._kicked_at = self.cycles
        self._command_at = 0.0

    def _note_command(self, values: Mapping[str, Any]) -> None:
        if values.get("input_int_register_0") != 10:
            self._command_at = 0.0  # what follows is another drive
        else:
            now = time.monotonic()
            if self._command_at > 0.0:
                self.command_gaps[min(int(1e4 * (now - self._command_at)), len(self.command_gaps) - 1)] += 1
            self._command_at = now
            target = tuple(self.inputs[f"input_double_register_{i}"] for i in range(6))
            if not self.speed_commands or self.speed_commands[-1][1] != target:
                self.speed_commands.append((now, target))

    # The cycle

    def cycle(self) -> None:
        self.cycles += 1
        while self._power_steps and self._power_steps[0][0] <= self.cycles:
            self.robot_mode = self._power_steps.popleft()[1]
        if self._watchdog is not None and self.cycles - self._kicked_at > self._watchdog[1]:
            self.end_program("watchdog: the client went silent")
        if self.runtime is Runtime.RESUMING:
            self.runtime = Runtime.PLAYING
        if self.runtime is Runtime.PLAYING and self.program is not None:
            try:
                self.program.cycle()
            except ScriptError as fault:
                self.end_program(f"program stopped: {fault}")
            except Violation as fault:
                self.protective_stop(str(fault))
        self._move()
        self.plant.drive(self.q, self.qd, CYCLE_S)
        if (hit := self.plant.collision()) is not None:
            self.protective_stop(hit)
        resting = self.qd == ZERO
        if not resting:
            self.moving_at = time.monotonic()
            self.resting_since_cycle = self.cycles + 1
        elif self.runtime is Runtime.STOPPING:
            self.runtime = Runtime.STOPPED
        elif self.runtime is Runtime.PAUSING:
            self.runtime = Runtime.PAUSED
        if self.safety is Safety.ROBOT_EMERGENCY_STOP and resting:
            self.robot_mode = RobotMode.POWER_OFF

    def _move(self) -> None:
        before = self.qd
        if self.motion is None or self.robot_mode is not RobotMode.RUNNING:
            self.motion = None
            self.qd, self.scale = ZERO, self.slider
        else:
            self._scale_time(self.motion)
            try:
                following = self.motion.step(self.q, CYCLE_S * self.scale if self.motion.scaled else CYCLE_S)
                qd = tuple((b - a) / CYCLE_S for a, b in zip(self.q, following, strict=True))
                self._check(following, qd)
            except Violation as fault:
                self.protective_stop(str(fault))
                self.motion = Stop(self.q, self.qd, STOP_DECELERATION, self.tcp, linear=False)
                following = self.motion.step(self.q, CYCLE_S)
                qd = tuple((b - a) / CYCLE_S for a, b in zip(self.q, following, strict=True))
            self.q, self.qd = following, qd
            if self.motion.done:
                self.motion = None
                self.qd = ZERO
        self.qdd = tuple((b - a) / CYCLE_S for a, b in zip(before, self.qd, strict=True))

    def _scale_time(self, motion: Motion) -> None:
        """Towards the slider while the program plays, towards 0 else; no faster than the fastest joint may brake."""
        wanted = self.slider if self.runtime is Runtime.PLAYING and self.safety is Safety.NORMAL else 0.0
        if not motion.scaled or self.scale == wanted:
            return
        fastest = max(map(abs, self.qd)) / self.scale if self.scale > 0.0 else 1.0
        step = STOP_DECELERATION / max(fastest, 0.1) * CYCLE_S
        self.scale = max(wanted, self.scale - step) if wanted < self.scale else min(wanted, self.scale + step)

    def _check(self, q: Vector, qd: Vector) -> None:
        for name, angle, before in zip(ur.JOINTS, q, self.q, strict=True):
            if abs(angle) > ur.JOINT_LIMIT and abs(angle) > abs(before):
                raise Violation(f"joint {name} at its limit")
        for name, speed in zip(ur.JOINTS, qd, strict=True):
            if abs(speed) > ur.JOINT_SPEED_LIMIT * 1.01:
                raise Violation(f"joint {name} too fast: {abs(speed):.1f} rad/s")
        if max(map(abs, qd)) > 0.5:
            speed = math.hypot(*ur.twist_of(ur.jacobian_columns(q, self.tcp)[1], qd)[:3])
            if speed > TOOL_SPEED_LIMIT * 1.05:
                raise Violation(f"tool too fast: {speed:.2f} m/s")

    # Outputs

    def outputs(self) -> dict[str, Any]:
        """Every RTDE output variable of this cycle."""
        q, qd = self.plant.q, self.plant.qd
        frame, columns = ur.jacobian_columns(q, self.tcp)
        pose, twist = ur.pose_of(frame), ur.twist_of(columns, qd)
        if q == self.q and qd == self.qd:
            target_pose, target_twist = pose, twist
        else:
            frame, columns = ur.jacobian_columns(self.q, self.tcp)
            target_pose, target_twist = ur.pose_of(frame), ur.twist_of(columns, self.qd)
        powered = self.robot_mode is not RobotMode.POWER_OFF
        playing = self.runtime in (Runtime.PLAYING, Runtime.RESUMING)
        return {
            **CONSTANT,
            **dict(zip(OUT_INTS, self.out_int, strict=True)),
            **dict(zip(OUT_DOUBLES, self.out_double, strict=True)),
            "timestamp": self.time_s,
            "target_q": self.q,
            "target_qd": self.qd,
            "target_qdd": self.qdd,
            "actual_q": q,
            "actual_qd": qd,
            "actual_TCP_pose": pose,
            "actual_TCP_speed": twist,
            "target_TCP_pose": target_pose,
            "target_TCP_speed": target_twist,
            "actual_digital_output_bits": self.digital_out,
            "robot_mode": int(self.robot_mode),
            "joint_mode": (255 if powered else 239,) * 6,
            "safety_mode": int(self.safety),
            "safety_status": int(self.safety),
            "speed_scaling": self.scale / self.slider if self.slider > 0.0 else 0.0,
            "target_speed_fraction": self.slider,
            "runtime_state": int(self.runtime),
            "standard_analog_output0": self.analog_out[0],
            "standard_analog_output1": self.analog_out[1],
            "robot_status_bits": powered | playing << 1,
            "safety_status_bits": SAFETY_BITS[self.safety],
            "payload": self.payload,
            "payload_cog": self.payload_cog,
            "tcp_offset": self.tcp,
        }

    def status(self) -> dict[str, Any]:
        """For people and tests: the truth beside what clients are told."""
        frame, columns = ur.jacobian_columns(self.plant.q, self.tcp)
        speed = math.hypot(*ur.twist_of(columns, self.plant.qd)[:3])
        return {
            "time_s": round(self.time_s, 3),
            "cycles": self.cycles,
            "robot_mode": self.robot_mode.name,
            "safety": self.safety.name,
            "runtime": self.runtime.name,
            "program": self.program_name,
            "said": self.said,
            "remote": self.remote,
            "slider": self.slider,
            "q": list(self.plant.q),
            "tcp": list(ur.pose_of(frame)),
            "tool_speed": speed,
            "moving": self.qd != ZERO,
            "moving_at": self.moving_at,
            "gripper": self.plant.opening,
            "digital_out": self.digital_out,
            "watchdog": self._watchdog is not None,
            "things": self.plant.things(),
        }


CONSTANT: dict[str, Any] = {
    **dict.fromkeys(
        ("target_current", "target_moment", "actual_current", "joint_control_output", "actual_TCP_force", "ft_raw_wrench"), ZERO
    ),
    **dict.fromkeys(("payload_inertia", "actual_current_as_torque"), ZERO),
    **dict.fromkeys(("actual_momentum", "actual_robot_current", "io_current", "tool_output_current"), 0.0),
    **dict.fromkeys(("standard_analog_input0", "standard_analog_input1"), 0.0),
    **dict.fromkeys(("output_bit_registers0_to_31", "output_bit_registers32_to_63", "tool_output_voltage"), 0),
    "actual_digital_input_bits": 0,
    "joint_temperatures": (30.0,) * 6,
    "actual_joint_voltage": (48.0,) * 6,
    "actual_execution_time": 0.3,
    "actual_main_voltage": 48.0,
    "actual_robot_voltage": 48.0,
    "tool_temperature": 30.0,
    "tool_mode": 253,
    "actual_tool_accelerometer": (0.0, 0.0, -9.81),
    "elbow_position": (0.0, 0.0, 0.0),
}
"""What the box does not simulate: currents, forces, temperatures, voltages."""
