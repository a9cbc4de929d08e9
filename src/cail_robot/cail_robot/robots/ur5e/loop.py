"""The RTDE loop: a process of its own that owns ur_rtde's objects and speaks speedL at 500 Hz.

Why a process: after a lost link ur_rtde reconnects by itself, many times a second, and restarts the program each time; only
ending the process ends that. And whoever kills the node or this process, the box's watchdog, fed by speedL alone, stops the arm.

The loop first only watches (the receive link). It takes control when asked to: it uploads the program, arms the watchdog and
sends speedL in every period, zeros included. At a fault it stops the program, so that nothing can resume, and replaces itself
by a new process image that watches again, with the fault's text. A lost link ends it: the node's process starts a new one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from cail_core.config import build
from cail_robot.control.realtime import realtime
from cail_robot.robots.ur5e.config import UR5eConfig
from cail_robot.robots.ur5e.dashboard import Dashboard, DashboardError
from cail_robot.robots.ur5e.gripper import GripperThread
from cail_robot.robots.ur5e.link import SAFETY_TEXTS, Command, Link, Mode, State

PERIOD_S = 0.002
LONGEST_PERIOD_S = 0.0025
"""The node's commands, one in each period, are passed on as they come; without one the last is sent again after this."""
LOOK_S = 0.0002
"""How often a new state is looked for: ur_rtde does not tell."""
WATCH_PERIOD_S = 0.01
PLAYING, PAUSED = 2, (3, 4)
POWER_OFF, IDLE, RUNNING = 3, 5, 7
STILL = (0.0,) * 6
UNLOCK_AFTER_S = 5.2
"""The box refuses earlier than 5 s after a protective stop."""
POWER_UP_S = 30.0
FOREIGN_S = 0.5
"""A program that still runs after this is somebody else's."""
REMOTE_SILENT_S = 2.0
REMOTE_EVERY_S = 0.25
GRIPPER_S = 1.0
"""The first state waits this long for a gripper to tell its opening."""
FOLLOW_S = 0.3
"""A commanded tool that does not move for this long is a fault: speedL may succeed while nothing happens."""
FOLLOW_SPEEDS = (0.005, 0.02)
"""m/s and rad/s; slower commands are not looked after."""

REMOTE_OFF = "remote control is off: switch the pendant to remote control, then clear_fault"

EXIT_LINK, EXIT_SETUP = 4, 5


class Fault(Exception):
    """Control is lost: the program is stopped and the loop watches again."""


class Loop:
    def __init__(self, link: Link, config: UR5eConfig, fault: str, fault_at: float, recovered: int, parent: int) -> None:
        self.link, self.config = link, config
        self.fault, self.fault_at, self.recovered = fault, fault_at, recovered
        self.parent = parent  # told: if the node was killed meanwhile, getppid() is somebody else
        self.realtime = realtime(config.realtime_priority)
        self.receive: Any = None
        self.control: Any = None
        self.touched = False
        """Whether there may be a control object of ur_rtde in this process."""
        self.remote: RemoteWatch | None = None
        self.gripper: GripperThread | None = None
        self.mode = Mode.CONNECTING if not fault else Mode.FAULT
        self.text = fault
        self.sent = self.seen = self.late = 0
        self.longest_s = 0.0
        self.last = link.state()
        self.stamp, self.stamp_at = -1.0, time.monotonic()
        self.moved_at = 0.0

    # The receive link

    def connect(self) -> None:
        import rtde_receive

        self.receive = rtde_receive.RTDEReceiveInterface(self.config.robot_ip)
        self.stamp_at = time.monotonic()
        until = self.stamp_at + 1.0
        while self.receive.getTimestamp() <= 0.0 and time.monotonic() < until:
            time.sleep(0.002)
        if self.config.gripper.kind != "none":
            known = self.last.gripper if self.fault else 1.0  # a process image that begins anew knows what the one before read
            self.gripper = GripperThread(self.config.robot_ip, self.config.gripper, self._asked_of_gripper, known)
            self.gripper.start()
            self.gripper.heard.wait(GRIPPER_S)

    def _asked_of_gripper(self) -> tuple[float, int]:
        command = self.link.command()
        return command.gripper, command.gripper_count

    def look(self) -> State:
        """Read the state and publish it; ends the process if the link is dead, whatever `isConnected` says."""
        now, receive = time.monotonic(), self.receive
        stamp = receive.getTimestamp()
        if stamp != self.stamp:
            self.stamp, self.stamp_at = stamp, now
            self.seen += 1
        elif now - self.stamp_at > self.config.link_timeout_s:
            self.leave(f"no state from {self.config.robot_ip} for {self.config.link_timeout_s:g} s: the link is dead")
        gripper, note = (self.gripper.opening, self.gripper.text) if self.gripper is not None else (1.0, "")
        self.last = State(
            now, stamp, receive.getActualQ(), receive.getActualQd(), receive.getActualTCPPose(), receive.getActualTCPSpeed(),
            gripper, self.mode, self.recovered, self.sent, self.seen, self.late, self.longest_s, self.realtime, self.text,
            note,
        )  # fmt: skip
        self.link.publish(self.last)
        return self.last

    def leave(self, text: str, code: int = EXIT_LINK) -> NoReturn:
        """End at once: closing ur_rtde's objects in order takes half a second, and they may be reconnecting."""
        # Not a fault of the arm's: the node is told by this process's end, connects anew and waits for a new enable.
        self.link.publish(self.last._replace(time=time.monotonic(), mode=Mode.CONNECTING, text=text))
        os._exit(code)

    # What the robot says

    def obstacle(self) -> str:
        """Why the arm cannot move now; empty if it can."""
        bits = self.receive.getSafetyStatusBits()
        for mask, text in SAFETY_TEXTS:
            if bits & mask:
                return text
        mode = self.receive.getRobotMode()
        if mode != RUNNING:
            return f"the robot is not running (mode {mode}): unlock powers it on and releases the brakes"
        return ""

    def slowed(self) -> str:
        fraction = self.receive.getTargetSpeedFraction()
        if fraction < self.config.min_speed_fraction - 1e-6:
            return (
                f"the speed slider is at {fraction:.0%}: set it to {self.config.min_speed_fraction:.0%} or more, then clear_fault"
            )
        return ""

    # Watching

    def watch(self) -> None:
        """Publish states until there is a reason to take control."""
        while True:
            self.look()
            command = self.link.command()
            self._end_if_asked(command)
            if self.mode is Mode.CONNECTING or command.recover_count > self.recovered:
                first = self.mode is Mode.CONNECTING
                self.recovered = command.recover_count
                try:
                    if not first:
                        self._recover()
                    elif self._occupied():
                        raise Fault("a program runs on the box, not this one's: end it at the pendant; clear_fault ends it")
                    self.take_control()
                    self.drive()
                except Fault as fault:
                    self._give_up(str(fault))
            time.sleep(WATCH_PERIOD_S)

    def _occupied(self) -> bool:
        """Whether somebody's program runs; one that a killed loop left is stopped by its watchdog in this time."""
        until = time.monotonic() + FOREIGN_S
        while self.receive.getRuntimeState() == PLAYING:
            if time.monotonic() > until:
                return True
            self.look()
            self._end_if_asked(self.link.command())
            time.sleep(WATCH_PERIOD_S)
        return False

    def _recover(self) -> None:
        """What a person asked for by clear_fault: unlock, power, brakes."""
        self.mode, self.text = Mode.RECOVERING, "recovering"
        bits = self.receive.getSafetyStatusBits()
        for mask, text in SAFETY_TEXTS:
            if bits & mask and mask != 1 << 2 and not (mask == 1 << 10 and bits & 1 << 2):  # set beside a protective stop too
                raise Fault(text)
        dashboard = self._dashboard()
        try:
            if dashboard.ask("is in remote control") != "true":
                raise Fault(REMOTE_OFF)
            if bits & 1 << 2:
                self._wait(lambda: time.monotonic() >= self.fault_at + UNLOCK_AFTER_S, "waiting to unlock", UNLOCK_AFTER_S + 1.0)
                dashboard.ask("close safety popup")
                reply = dashboard.ask("unlock protective stop")
                if "releasing" not in reply:
                    raise Fault(f"the protective stop was not unlocked: {reply}")
                self._wait(lambda: not self.receive.getSafetyStatusBits() & 1 << 2, "unlocking", 5.0)
            if self.receive.getRobotMode() != RUNNING:
                dashboard.ask("power on")
                self._wait(lambda: self.receive.getRobotMode() >= IDLE, "powering on", POWER_UP_S)
                dashboard.ask("brake release")
                self._wait(lambda: self.receive.getRobotMode() == RUNNING, "releasing the brakes", POWER_UP_S)
        except DashboardError as fault:
            raise Fault(str(fault)) from None
        finally:
            dashboard.close()

    def _dashboard(self) -> Dashboard:
        try:
            return Dashboard(self.config.robot_ip)
        except DashboardError as fault:
            raise Fault(str(fault)) from None

    def _wait(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        self.text = what
        while not condition():
            self.look()
            self._end_if_asked(self.link.command())
            if time.monotonic() > until:
                raise Fault(f"{what} took more than {timeout_s:.0f} s")
            time.sleep(WATCH_PERIOD_S)

    def _end_if_asked(self, command: Command) -> None:
        if command.quit or os.getppid() != self.parent:
            os._exit(0)

    # Control

    def take_control(self) -> None:
        """Upload the program, set tool, payload and watchdog. The arm rests."""
        import rtde_control

        if (text := self.obstacle() or self.slowed()) != "":
            raise Fault(text)
        self.remote = RemoteWatch(self.config.robot_ip)
        self.touched = True
        try:
            self.control = rtde_control.RTDEControlInterface(self.config.robot_ip)
        except RuntimeError as fault:
            raise Fault(f"the program does not start: {fault}") from None
        _send_at_once()
        config = self.config
        done = self.control.setTcp(list(config.tool_offset))
        done = done and self.control.setPayload(config.payload_kg, list(config.payload_cog_m))
        # From here on the box stops the program if no speedL comes; kickWatchdog would overwrite commands, so it is not used.
        if not (done and self.control.setWatchdog(config.watchdog_hz)):
            raise Fault("the program does not take tool, payload and watchdog")
        self.mode, self.text = Mode.READY, ""

    def drive(self) -> NoReturn:
        """Pass the node's commands on, at least every LONGEST_PERIOD_S, until a fault or until the node ends."""
        config, control, receive, link = self.config, self.control, self.receive, self.link
        due = begun = time.monotonic()
        asked_remote = 0.0
        acceleration, refused = config.acceleration, 0
        playing_until = due + 0.5  # the receive link learns of the program a little after the control link
        remote = self.remote
        assert remote is not None
        while True:
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - begun)
            self.late += now - due > 0.5 * PERIOD_S
            begun = now
            command = link.command()
            if command.quit or os.getppid() != self.parent:
                self._finish()
            twist = command.twist
            if self.mode is Mode.READY:
                self.recovered = command.recover_count  # asked for once more than needed
            if self.mode is not Mode.READY:
                twist = STILL
                if command.recover_count > self.recovered and not any(command.twist):
                    self.recovered = command.recover_count
                    self.text = self.slowed() or remote.text
                    self.mode = self.mode if self.text else Mode.READY
            elif now - command.time > config.command_timeout_s:
                # A node that is silent at rest is let be: it may be shutting down or waiting.
                if any(twist):
                    self._hold(
                        Mode.FAULT, f"the node was silent for {1000 * (now - command.time):.0f} ms; clear_fault permits motion"
                    )
                twist = STILL
            if control.speedL(twist, acceleration, PERIOD_S):
                refused = 0
                self.sent += 1
            else:
                refused += 1
            if now - self.last.time > PERIOD_S:
                self.look()
            runtime = receive.getRuntimeState()
            if (text := self.obstacle()) != "":
                raise Fault(text)
            if runtime != PLAYING and now > playing_until:
                paused = "paused at the pendant" if runtime in PAUSED else "stopped at the pendant, or by its watchdog"
                raise Fault(f"the program was {paused}; clear_fault starts it again")
            if runtime == PLAYING:
                playing_until = now + 0.006
            if refused > 10:
                raise Fault("speedL is refused; clear_fault starts the program again")
            if now - asked_remote > REMOTE_EVERY_S:
                asked_remote = now
                if not remote.ask(now):
                    raise Fault("the Dashboard server is silent: is remote control on? clear_fault asks again")
            if self.mode is Mode.READY:
                if (text := self.slowed() or remote.text) != "":
                    self._hold(Mode.BLOCKED, text)
                self._check_follows(twist, now)
            due = now + LONGEST_PERIOD_S
            self._wait_for_command(due)

    def _wait_for_command(self, due: float) -> None:
        """Until the node sends the next command, or it is time to send the last one again; new states are passed on at once."""
        while not self.link.wait(min(LOOK_S, due - time.monotonic())) and time.monotonic() < due:
            if self.receive.getTimestamp() != self.stamp:
                self.look()

    def _hold(self, mode: Mode, text: str) -> None:
        """Rest, with the program running; clear_fault leaves it."""
        self.mode, self.text = mode, text

    def _check_follows(self, twist: tuple[float, ...], now: float) -> None:
        fraction = self.receive.getTargetSpeedFraction()
        lags = False
        for part, least in zip((slice(0, 3), slice(3, 6)), FOLLOW_SPEEDS, strict=True):
            asked, moved = math.hypot(*twist[part]) * fraction, math.hypot(*self.last.twist[part])
            lags = lags or (asked >= least and moved <= 0.2 * asked)
        if not lags:
            self.moved_at = now
        elif now - self.moved_at > FOLLOW_S:
            raise Fault("the arm does not follow its commands; clear_fault starts the program again")

    def _finish(self) -> NoReturn:
        """The node ends or is gone: come to rest, stop the program, end."""
        until = time.monotonic() + 0.15
        with contextlib.suppress(Exception):
            while time.monotonic() < until and max(map(abs, self.receive.getActualTCPSpeed())) > 1e-4:
                self.control.speedL(STILL, self.config.acceleration, PERIOD_S)
                time.sleep(PERIOD_S)
            self._stop_program()
        os._exit(0)

    def _stop_program(self) -> None:
        """Through a connection of its own: ur_rtde's may be dead, and a paused program would resume by itself."""
        with contextlib.suppress(DashboardError):
            dashboard = Dashboard(self.config.robot_ip, timeout_s=0.3)
            dashboard.ask("stop")
            dashboard.close()

    def _give_up(self, text: str) -> None:
        """Show the fault; if ur_rtde's control object may exist, begin anew without it."""
        self.mode, self.text = Mode.FAULT, text
        self.fault_at = time.monotonic()
        self.look()
        if not self.touched:
            return
        self._stop_program()
        again = [
            json.dumps(self.link.fds),
            json.dumps(dataclasses.asdict(self.config)),
            text,
            str(self.fault_at),
            str(self.recovered),
            str(self.parent),
        ]
        for name in os.listdir("/proc/self/fd"):  # ur_rtde's sockets would stay open
            if int(name) > 2 and int(name) not in self.link.fds:
                with contextlib.suppress(OSError):
                    os.set_inheritable(int(name), False)
        os.execv(sys.executable, [sys.executable, "-m", __spec__.name, *again])


class RemoteWatch:
    """Asks now and then whether the box is in remote control, without waiting for the answer."""

    def __init__(self, host: str) -> None:
        self.text = ""
        self._dashboard: Dashboard | None = None
        self._answered = time.monotonic()
        with contextlib.suppress(DashboardError):
            self._dashboard = Dashboard(host)
            self._dashboard.set_waiting(False)

    def ask(self, now: float) -> bool:
        """Send the question again, and take the answer to the one before; False where none has come for long."""
        if self._dashboard is None:
            return False
        if answer := self._dashboard.poll("is in remote control"):
            self._answered = now
        self.text = REMOTE_OFF if answer == "false" else "" if answer == "true" else self.text
        return now - self._answered < REMOTE_SILENT_S


def _send_at_once() -> None:
    """Switch Nagle's algorithm off in ur_rtde's sockets: with it a command may wait 2 ms for an acknowledgement."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as shared:
                    shared.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def main(argv: list[str]) -> None:
    fds, settings, fault, fault_at, recovered, parent = argv
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the node, which ends this process in order
    link = Link(tuple(json.loads(fds)))
    config = build(UR5eConfig, json.loads(settings), "the UR5e's settings")
    loop = Loop(link, config, fault, float(fault_at), int(recovered), int(parent))
    if os.getppid() != loop.parent:
        os._exit(0)
    try:
        loop.connect()
    except ImportError:
        loop.leave("ur_rtde is missing", EXIT_SETUP)
    except RuntimeError as broken:
        loop.leave(f"no control box answers at {config.robot_ip} ({broken})")
    try:
        loop.watch()
    except RuntimeError as broken:  # ur_rtde's, when the link goes in the middle of a call
        loop.leave(f"the link to {config.robot_ip} broke ({broken})")


if __name__ == "__main__":
    main(sys.argv[1:])
