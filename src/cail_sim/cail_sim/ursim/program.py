"""What ur_rtde's uploaded program does: commands arrive in input registers, results leave in output registers.

Integer input 0 is the command. Real-time commands (speed, servo, a few getters) run in every cycle in which they stand there and
leave "ready" (1) in integer output 0. Any other runs once, to its end, then says "done" (2) until the client puts 0 back. Results
stand in integer output 1 and double outputs 0 to 5; integer output 2 tells how asynchronous moves go on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cail_robot.robots.ur5e import kinematics as ur
from cail_robot.robots.ur5e.kinematics import Vector
from cail_sim.ursim.motion import TOOL_SPEED_LIMIT, MoveJ, MoveL, Servo, Speed, Stop
from cail_sim.ursim.script import Script, Waypoint

if TYPE_CHECKING:
    from cail_sim.ursim.controller import Controller

READY, DONE = 1, 2
REALTIME = frozenset({6, 9, 10, 11, 24, 25, 26, 27, 38, 58, *range(66, 72)})
STOP_SCRIPT = 255
CUSTOM_CYCLES = 10

Steps = Iterator[None]
"""A command that takes several cycles: one step per cycle."""


class CustomProgram:
    """Any other program: its body is not run. It says that it started and that it is done, and ends."""

    def __init__(self, box: Controller, script: Script) -> None:
        self._box, self._offset, self.name = box, script.register_offset, script.name
        self._cycles = 0

    def start(self) -> None:
        self._box.out_int[self._offset] = READY

    def cycle(self) -> None:
        self._cycles += 1
        if self._cycles == CUSTOM_CYCLES:
            self._box.out_int[self._offset] = DONE
            self._box.end_program(f"program {self.name} ended")


class ControlProgram:
    """ur_rtde's `rtde_control`."""

    def __init__(self, box: Controller, script: Script) -> None:
        self._box, self._path, self.name = box, script.path, script.name
        self._base = script.register_offset
        self._ints = [f"input_int_register_{self._base + i}" for i in range(8)]
        self._doubles = [f"input_double_register_{self._base + i}" for i in range(18)]
        self._executing = False
        self._steps: Steps | None = None
        self._background: Steps | None = None
        self._speed_was_linear = True
        self._writes = self._operation = 0
        self._commands: dict[int, Callable[[], Steps]] = {
            1: lambda: self._move(linear=False, given_pose=False),
            2: lambda: self._move(linear=False, given_pose=True),
            3: lambda: self._move(linear=True, given_pose=True),
            4: lambda: self._move(linear=True, given_pose=False),
            15: self._speed_stop,
            16: lambda: self._halt(self._double(0), linear=True),
            17: self._set_payload,
            29: self._set_tcp,
            30: self._inverse_near,
            31: self._protective_stop,
            33: lambda: self._stop_move(linear=True),
            34: lambda: self._stop_move(linear=False),
            35: self._set_watchdog,
            36: self._pose_is_safe,
            37: self._joints_are_safe,
            39: self._pose_trans,
            40: self._tcp_offset,
            41: self._jog,
            42: lambda: self._halt(1.2, linear=True),
            43: self._forward_now,
            44: self._forward,
            45: self._move_path,
            46: self._inverse,
            47: self._is_steady,
            60: self._inverse_exists,
            61: self._inverse_exists,
            65: self._set_payload,
        }

    def start(self) -> None:
        self._report_progress(-1)
        self._box.out_int[self._base] = READY

    def cycle(self) -> None:
        if self._background is not None and _ended(self._background):
            self._background = None
            self._report_progress(-1)
        if self._steps is not None:
            self._go_on()
            return
        command = self._int(0)
        if command in REALTIME:
            self._realtime(command)
            self._box.out_int[self._base] = READY
        elif command == 0:
            self._executing = False
            self._box.out_int[self._base] = READY
        elif command == STOP_SCRIPT:
            self._box.end_program("stopped by its client")
        elif not self._executing:
            make = self._commands.get(command)
            self._steps = make() if make else iter(())
            self._go_on()  # the first step in the cycle that read the command

    def _go_on(self) -> None:
        """One step of the command under way."""
        if self._steps is not None and _ended(self._steps):
            self._steps = None
            self._box.out_int[self._base] = DONE
            self._executing = True

    def _int(self, i: int) -> int:
        return int(self._box.inputs[self._ints[i]])

    def _double(self, i: int) -> float:
        value = float(self._box.inputs[self._doubles[i]])
        if not math.isfinite(value):
            raise ScriptError(f"a parameter is {value}")
        return value

    def _six(self, first: int) -> Vector:
        return tuple(self._double(first + i) for i in range(6))

    def _give(self, values: Vector) -> None:
        self._box.out_double[self._base : self._base + 6] = values

    def _give_int(self, value: int) -> None:
        self._box.out_int[self._base + 1] = value

    def _report_progress(self, value: int) -> None:
        """Bits 0-14 progress, 15 running, 16-22 count of writes, 24-30 number of the operation."""
        self._writes = (self._writes + 1) % 128
        if value == 0:
            self._operation = (self._operation + 1) % 128
        running = 32768 + min(value, 32767) if value >= 0 else 0
        self._box.out_int[self._base + 2] = self._operation * 16777216 + self._writes * 65536 + running

    # Real-time commands

    def _realtime(self, command: int) -> None:
        box = self._box
        if command in (9, 10, 11, 24):
            self._end_background()
        if command in (9, 10):
            linear = command == 10
            self._speed_was_linear = linear
            if not isinstance(box.motion, Speed) or box.motion.linear != linear:
                box.motion = Speed(box.q, box.qd, box.tcp, linear=linear)
            target = self._six(0)
            box.motion.aim(_slowed(target) if linear else target, max(self._double(6), 0.0), self._double(7))
        elif command in (11, 24):
            target = self._six(0)
            if command == 24:
                found = ur.inverse(target, box.q, box.tcp)
                if found is None:
                    raise ScriptError("servoL to a pose that the arm cannot reach")
                target = found
            if not isinstance(box.motion, Servo):
                box.motion = Servo(box.qd)
            box.motion.aim(target, self._double(9), self._double(10))
        elif command == 26:
            self._box.out_double[self._base] = 0.002
        elif command == 27:
            self._give(box.plant.q)
        elif command == 38:
            self._give((0.0,) * 6)
        elif command == 58:
            self._give(ur.pose_of(ur.forward(box.plant.q)))

    # Motion

    def _halt(self, deceleration: float, *, linear: bool) -> Steps:
        self._end_background()
        return self._brake(deceleration, linear=linear)

    def _end_background(self) -> None:
        if self._background is not None:
            self._background = None
            self._report_progress(-1)

    def _brake(self, deceleration: float, *, linear: bool) -> Steps:
        box = self._box
        stop = Stop(box.q, box.qd, deceleration, box.tcp, linear=linear)
        box.motion = stop
        while not stop.done:
            yield

    def _speed_stop(self) -> Steps:
        return self._halt(self._double(0), linear=self._speed_was_linear)

    def _stop_move(self, *, linear: bool) -> Steps:
        braking = self._halt(self._double(0), linear=linear)
        return self._in_background(braking) if self._int(1) else braking

    def _in_background(self, steps: Steps) -> Steps:
        self._background = steps
        self._report_progress(0)
        yield from ()

    def _move(self, *, linear: bool, given_pose: bool) -> Steps:
        self._end_background()
        waypoint = Waypoint(linear, given_pose, self._six(0), self._double(7), self._double(6))
        moving = self._go([waypoint])
        return self._in_background(moving) if self._int(1) else moving

    def _move_path(self) -> Steps:
        self._end_background()
        moving = self._go(self._path)
        return self._in_background(moving) if self._int(1) else moving

    def _go(self, path: list[Waypoint]) -> Steps:
        """Through the waypoints, resting at each; from rest: a motion that still runs is braked first."""
        box = self._box
        if max(map(abs, box.qd)) > 0.0:
            yield from self._brake(5.0, linear=False)
        for i, point in enumerate(path):
            if self._background is not None:
                self._report_progress(i)
            if point.linear:
                pose = point.target if point.is_pose else ur.pose_of(ur.forward(point.target, box.tcp))
                motion: MoveJ | MoveL = MoveL(box.q, pose, point.speed, point.acceleration, box.tcp)
            else:
                q = ur.inverse(point.target, box.q, box.tcp) if point.is_pose else point.target
                if q is None:
                    raise ScriptError("moveJ to a pose that the arm cannot reach")
                motion = MoveJ(box.q, q, point.speed, point.acceleration)
            box.motion = motion
            while not motion.done:
                yield

    def _jog(self) -> Steps:
        """As speedl in the base frame; jogging in the tool's or a custom frame is not simulated."""
        box = self._box
        speed = Speed(box.q, box.qd, box.tcp, linear=True)
        speed.aim(_slowed(self._six(0)), self._double(7), 0.0)
        box.motion = speed
        yield from ()

    # Settings and questions

    def _set_payload(self) -> Steps:
        self._box.payload = self._double(0)
        self._box.payload_cog = (self._double(1), self._double(2), self._double(3))
        yield from ()

    def _set_tcp(self) -> Steps:
        self._box.tcp = self._six(0)
        yield from ()

    def _protective_stop(self) -> Steps:
        self._box.protective_stop("asked for by the program")
        yield from ()

    def _set_watchdog(self) -> Steps:
        self._box.set_watchdog(self._ints[0], self._double(0))
        yield from ()

    def _tcp_offset(self) -> Steps:
        self._give(self._box.tcp)
        yield from ()

    def _forward_now(self) -> Steps:
        self._give(ur.pose_of(ur.forward(self._box.q, self._box.tcp)))
        yield from ()

    def _forward(self) -> Steps:
        self._give(ur.pose_of(ur.forward(self._six(0), self._six(6))))
        yield from ()

    def _inverse(self) -> Steps:
        self._give(ur.inverse(self._six(0), self._box.q, self._box.tcp) or (0.0,) * 6)
        yield from ()

    def _inverse_near(self) -> Steps:
        self._give(ur.inverse(self._six(0), self._six(6), self._box.tcp) or (0.0,) * 6)
        yield from ()

    def _inverse_exists(self) -> Steps:
        self._give_int(ur.inverse(self._six(0), self._box.q, self._box.tcp) is not None)
        yield from ()

    def _pose_is_safe(self) -> Steps:
        return self._inverse_exists()

    def _joints_are_safe(self) -> Steps:
        self._give_int(all(abs(angle) <= ur.JOINT_LIMIT for angle in self._six(0)))
        yield from ()

    def _pose_trans(self) -> Steps:
        self._give(ur.pose_of(ur.compose(ur.frame_of(self._six(0)), ur.frame_of(self._six(6)))))
        yield from ()

    def _is_steady(self) -> Steps:
        self._give_int(max(map(abs, self._box.plant.qd)) < 1e-3)
        yield from ()


class ScriptError(Exception):
    """The program stops with a runtime error, as a real one does for such arguments."""


def _ended(steps: Steps) -> bool:
    try:
        next(steps)
    except StopIteration:
        return True
    return False


def _slowed(twist: Vector) -> Vector:
    """Within the tool speed limit, in the same direction."""
    fastest = math.hypot(*twist[:3])
    return twist if fastest <= TOOL_SPEED_LIMIT else tuple(v * TOOL_SPEED_LIMIT / fastest for v in twist)
