"""`cail bench arm-faults`: how the simulated arm stops when something goes wrong, over real DDS between real processes.

Three processes: the arm's node in real time at the limits of a real arm, a commander that drives circles at 0.25 m/s and 100 Hz,
and this one, which operates, injects the fault at a random moment and reads what the arm itself was told, from a trace that
the arm writes. All of them run in a network of their own where the system permits that, so that the network can be cut.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import math
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from cail_bench.result import save
from cail_core.cli import say
from cail_core.errors import CailError
from cail_core.over_topics import own_domain
from cail_core.progress import console, table
from cail_robot.arm import Twist
from cail_robot.control.loop_timer import summarise
from cail_robot.control.realtime import ask_for_realtime
from cail_robot.control.state_machine import REST_SPEED, StatusCode
from cail_robot.ros.operator import Operator, wait_for
from cail_robot.safety.limits import Limits

INJECTIONS = {"smoke": 1, "short": 20, "full": 40}
MODULE = "cail_bench.arm_faults"
SPEED = 0.25
BAD_COMMANDS = 3
"""In a row: only the newest command waits for the node, so a single one may be overtaken by the next."""
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where the processes write what they did: a slow disk must not hold up the loop that is measured."""
START_S = 120.0
"""A process may take this long to start on a busy machine."""
WATCH_S = 0.7
"""After a fault: how long the arm is watched for motion that resumes by itself."""


class Trace:
    """What the arm was told, one line a period: seconds (monotonic, the same for all processes), commanded and measured m/s."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def since(self, start: float) -> list[tuple[float, float, float]]:
        lines = self.path.read_text().splitlines()[-2000:]
        rows = [tuple(map(float, line.split())) for line in lines if len(line.split()) == 3]
        return [(t, told, measured) for t, told, measured in rows if t >= start]

    def moving(self) -> bool:
        last = self.since(time.monotonic() - 0.2)
        return bool(last) and last[-1][1] > 0.9 * SPEED


def node_process(trace: str) -> int:
    """The node, with an arm that also writes its trace."""
    from cail_core.tasks import get_task
    from cail_robot.ros.runtime import run
    from cail_sim.robots.node import SimNode
    from cail_sim.robots.panda_arm import PandaArm
    from cail_sim.tasks.panda import Panda

    class TracedArm(PandaArm):
        file = open(trace, "w", buffering=1)  # noqa: SIM115  until the process ends

        def send_twist(self, twist: Twist) -> None:
            now = time.monotonic()
            super().send_twist(twist)
            self.file.write(f"{now:.6f} {math.hypot(*twist[:3]):.6f} {math.hypot(*self._twist[:3]):.6f}\n")

    def nodes() -> list[SimNode]:
        task = get_task("panda")
        assert isinstance(task, Panda)
        return [SimNode(TracedArm(task), Limits())]

    return run(nodes, realtime=True)


def commander_process() -> int:
    """Publishes at 100 Hz what its standard input last asked for, and writes each moment that something was sent."""
    from geometry_msgs.msg import TwistStamped

    from cail_robot.ros.runtime import COMMAND_QOS, join

    context, node, _ = join("commander", "/arm")
    publisher = node.create_publisher(TwistStamped, "twist_cmd", COMMAND_QOS)
    os.set_blocking(0, False)
    while not publisher.get_subscription_count():
        time.sleep(0.01)
    print("ready 0", flush=True)
    wish, began, due, bad = "quiet", 0.0, time.monotonic(), 0
    while True:
        with contextlib.suppress(BlockingIOError):
            if asked := os.read(0, 4096).decode().split():
                wish, began = asked[-1], time.monotonic()
        if wish == "end":
            break
        if wish != "quiet":
            message = TwistStamped()
            message.header.frame_id = "tool" if wish == "frame" else "panda_link0"
            if wish != "zero":
                angle = math.pi * (time.monotonic() - began) * (-1 if wish == "other" else 1)
                message.twist.linear.x, message.twist.linear.y = -SPEED * math.sin(angle), -SPEED * math.cos(angle)
            if wish == "nan":
                message.twist.linear.z = math.nan
            message.header.stamp = node.get_clock().now().to_msg()
            publisher.publish(message)
            print(f"{wish} {time.monotonic():.6f}", flush=True)
            bad = bad + 1 if wish in ("nan", "frame") else 0
            if bad == BAD_COMMANDS:
                wish = "go"  # and on with good commands, which must not move the arm again
        due = max(due + 0.01, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
    node.destroy_node()
    context.try_shutdown()
    return 0


class Child:
    """A process of a benchmark; what it prints goes to a file."""

    def __init__(self, folder: Path, role: str, *arguments: str, module: str = MODULE) -> None:
        self.out = folder / f"{role}-{time.monotonic_ns()}.log"
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, role, *arguments],
            stdin=subprocess.PIPE, stdout=open(self.out, "w"), stderr=subprocess.STDOUT, text=True,  # noqa: SIM115
        )  # fmt: skip

    def ask(self, word: str) -> None:
        stdin: IO[str] = self.process.stdin  # type: ignore[assignment]
        stdin.write(word + "\n")
        stdin.flush()

    def sent(self, word: str) -> list[float]:
        """When it sent commands of this kind."""
        lines = [line.split() for line in self.out.read_text().splitlines()]
        return [float(line[1]) for line in lines if len(line) == 2 and line[0] == word]

    def kill(self, number: signal.Signals = signal.SIGKILL) -> float:
        moment = time.monotonic()
        self.process.send_signal(number)
        return moment

    def gone(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Stage:
    """The processes, brought to where a fault can be injected: the arm in motion."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trace = Trace(folder / "trace")
        self.node: Child | None = None
        self.commander: Child | None = None
        self.operator = Operator()

    def in_motion(self) -> None:
        if self.node is None or self.node.process.poll() is not None:
            self.operator.heard["status"].clear()
            self.operator.heard["ee_pose"].clear()
            self.node = Child(self.folder, "node", str(self.trace.path))
            wait_for(lambda: self.operator.heard["ee_pose"] and self.operator.state(), "the arm's node", START_S)
        if self.commander is None or self.commander.process.poll() is not None:
            self.commander = Child(self.folder, "commander")
            wait_for(lambda: self.commander and self.commander.sent("ready"), "the commander", START_S)
        self.commander.ask("quiet")
        time.sleep(0.6)  # a silence after which a new publisher is no second one
        self.operator.call("clear_fault")
        self.operator.call("reset")
        answer = self.operator.call("enable", data=True)
        if not answer.success:
            raise CailError(answer.message)
        commander = self.commander
        while not self.trace.moving():  # on a busy machine the arm may hold in between
            commander.ask("zero")
            wait_for(lambda: self.operator.code() is StatusCode.ENABLED, "motion to be permitted")
            commander.ask("go")
            until = time.monotonic() + 1.0
            while time.monotonic() < until and not self.trace.moving():
                time.sleep(0.01)

    def close(self) -> None:
        for child in (self.node, self.commander):
            if child is not None:
                child.gone()


def quiet(stage: Stage) -> float:
    assert stage.commander
    stage.commander.ask("quiet")
    time.sleep(0.05)
    return stage.commander.sent("go")[-1]


def once(word: str) -> Callable[[Stage], float]:
    def inject(stage: Stage) -> float:
        assert stage.commander
        before = len(stage.commander.sent(word))
        stage.commander.ask(word)
        wait_for(lambda: len(stage.commander.sent(word)) > before, word)  # type: ignore[union-attr]
        return stage.commander.sent(word)[before]

    return inject


def publisher_killed(stage: Stage) -> float:
    assert stage.commander
    stage.commander.kill()
    stage.commander.process.wait()
    return stage.commander.sent("go")[-1]


def publisher_frozen(stage: Stage) -> float:
    assert stage.commander
    stage.commander.kill(signal.SIGSTOP)
    time.sleep(0.05)
    return stage.commander.sent("go")[-1]


def node_killed(stage: Stage) -> float:
    assert stage.node
    return stage.node.kill()


def two_publishers(stage: Stage) -> float:
    other = Child(stage.folder, "commander")
    try:
        wait_for(lambda: other.sent("ready"), "the other publisher", START_S)
        time.sleep(1.0)  # until the node knows it too: before, what it sends is not heard
        if not stage.trace.moving():
            stage.in_motion()
        other.ask("other")
        wait_for(lambda: other.sent("other"), "the other publisher")
        time.sleep(WATCH_S)
        return other.sent("other")[0]
    finally:
        other.gone()


def network_cut(stage: Stage) -> float:
    moment = time.monotonic()
    loopback(up=False)
    return moment


def stop_called(stage: Stage) -> float:
    moment = time.monotonic()
    stage.operator.call("stop")
    return moment


FAULTS: dict[str, tuple[Callable[[Stage], float], str]] = {
    "commands end": (quiet, "HOLDING"),
    "publisher SIGKILLed": (publisher_killed, "HOLDING"),
    "publisher frozen (SIGSTOP)": (publisher_frozen, "HOLDING"),
    "DDS gone (network cut)": (network_cut, "HOLDING"),
    "command not finite": (once("nan"), "HOLDING"),
    "command in a wrong frame": (once("frame"), "HOLDING"),
    "two publishers": (two_publishers, "HOLDING"),
    "stop service": (stop_called, "FAULT"),
    "node SIGKILLed": (node_killed, ""),
}
"""Name -> how it is injected (and when it happened), and the state that must follow; none where the node itself is gone."""
SMOKE = ("commands end", "command not finite", "two publishers", "SIGTERM")
SIGNALS = {"SIGINT": [signal.SIGINT], "SIGINT twice": [signal.SIGINT] * 2, "SIGTERM": [signal.SIGTERM]}


def after_last(rows: list[tuple[float, float, float]], start: float, moving: Callable[[float, float], bool]) -> float:
    """When the period after the last one in motion began; where there is none, the last one's own beginning."""
    times = [start, *(t for t, _, _ in rows)]
    last = max((i for i, (_, told, measured) in enumerate(rows, start=1) if moving(told, measured)), default=-1)
    return times[min(last + 1, len(times) - 1)]


def injected(stage: Stage, fault: str, rng: random.Random) -> dict[str, Any]:
    """One injection: when the arm stopped, whether it stayed so, and what the status said."""
    inject, expected = FAULTS[fault]
    stage.in_motion()
    time.sleep(rng.uniform(0.0, 0.5))
    while not stage.trace.moving():  # the machine was too busy for the commander
        stage.in_motion()
    moment = inject(stage)
    time.sleep(WATCH_S)
    rows = stage.trace.since(moment)
    stopped = after_last(rows, moment, lambda told, measured: told > 0.0)
    at_rest = after_last(rows, moment, lambda told, measured: measured > REST_SPEED)
    if fault == "DDS gone (network cut)":
        loopback(up=True)
    if expected:
        wait_for(lambda: stage.operator.state().startswith(expected), f"{expected} after {fault}")
    if fault == "publisher frozen (SIGSTOP)" and stage.commander:
        stage.commander.kill(signal.SIGCONT)
        time.sleep(0.3)
        resumed = any(told > 0.0 for _, told, _ in stage.trace.since(moment + WATCH_S))
    else:
        resumed = bool(expected) and (not rows or rows[-1][1] > 0.0)
    return {
        "stop_ms": (stopped - moment) * 1e3,
        "rest_ms": (at_rest - moment) * 1e3,
        "resumed": resumed,
        "status": stage.operator.state() if expected else "(the node is gone)",
    }


def shut_down(stage: Stage, signals: list[signal.Signals]) -> dict[str, Any]:
    """The node is asked to end while the arm moves."""
    stage.in_motion()
    assert stage.node
    moment = time.monotonic()
    for number in signals:
        stage.node.kill(number)
        time.sleep(0.005)
    code = stage.node.process.wait(20)
    told = stage.trace.since(moment - 1.0)[-1][1]
    return {"stop_ms": (time.monotonic() - moment) * 1e3, "rest_ms": (time.monotonic() - moment) * 1e3,
            "resumed": told > 0.0, "status": f"exit code {code}"}  # fmt: skip


def run(budget: str, out: Path, seed: int = 0) -> Path:
    """In a process of its own, which may leave this one's network."""
    command = [sys.executable, "-m", MODULE, "bench", budget, str(out.resolve()), str(seed)]
    if subprocess.run(command).returncode:
        raise CailError("the benchmark did not finish; its messages are above")
    return out / "arm-faults.csv"


def bench(budget: str, out: Path, seed: int) -> None:
    alone = own_network()
    os.environ["ROS_DOMAIN_ID"] = "0" if alone else own_domain()
    ask_for_realtime()  # the moment of a fault must not be blurred by other work; the node and the commander inherit it
    rng, times = random.Random(seed), INJECTIONS[budget]
    chosen = [name for name in (*FAULTS, *SIGNALS) if budget != "smoke" or name in SMOKE]
    rows: list[dict[str, Any]] = []
    samples: dict[str, list[float]] = {}
    shown = table("fault", "injected", "commanded rest after (ms) p50", "max", "measured rest max", "resumed", "the status says")
    with tempfile.TemporaryDirectory(prefix="cail-arm-faults-", dir=IN_MEMORY) as folder:
        stage = Stage(Path(folder))
        with stage.operator:
            try:
                for name in chosen:
                    if name == "DDS gone (network cut)" and not alone:
                        console().print(f"{name}: not measured, a network of its own is not permitted here")
                        continue
                    found = [
                        injected(stage, name, rng) if name in FAULTS else shut_down(stage, SIGNALS[name]) for _ in range(times)
                    ]
                    samples[name] = [round(each["stop_ms"], 1) for each in found]
                    stops, rests = (summarise([each[key] for each in found]) for key in ("stop_ms", "rest_ms"))
                    rows.append({
                        "fault": name, "injected": times, "stop_p50_ms": round(stops.p50, 1), "stop_max_ms": round(stops.max, 1),
                        "rest_p50_ms": round(rests.p50, 1), "rest_max_ms": round(rests.max, 1),
                        "resumed": sum(each["resumed"] for each in found),
                        "status": " | ".join(sorted({each["status"] for each in found})),
                    })  # fmt: skip
                    row = rows[-1]
                    shown.add_row(name, *(str(row[key]) for key in ("injected", "stop_p50_ms", "stop_max_ms", "rest_max_ms",
                                                                    "resumed", "status")))
                    say(f"{name}: commanded rest after {row['stop_max_ms']} ms at most")
            finally:
                stage.close()
    console().print(shown)
    command = f"cail bench arm-faults --budget {budget} --seed {seed}"
    save(out, "arm-faults", rows, command=command, budget=budget, seed=seed, speed=SPEED, own_network=alone, stop_ms=samples)


def own_network() -> bool:
    """Leave this process's network for a new one with nothing but loopback; whether that is permitted."""
    new_user, new_net = 0x10000000, 0x40000000
    libc, user, group = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()
    if libc.unshare(new_net):
        if libc.unshare(new_user | new_net):
            return False
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    loopback(up=True)
    return True


def loopback(*, up: bool) -> None:
    """Switch the interface `lo` of this network on or off: SIOCSIFFLAGS with the flags UP, RUNNING and LOOPBACK, or the last."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40 | 0x8 if up else 0x8))


if __name__ == "__main__":
    role, *given = sys.argv[1:]
    if role == "node":
        sys.exit(node_process(given[0]))
    if role == "commander":
        sys.exit(commander_process())
    bench(given[0], Path(given[1]), int(given[2]))
