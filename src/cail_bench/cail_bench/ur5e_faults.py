"""`cail bench ur5e-faults`: how the UR5e stops when something goes wrong, over real processes, DDS and sockets.

Four processes: the control box, the UR5e's node with its RTDE loop, a commander that drives to and fro on `twist_cmd` at 100 Hz,
and this one, which operates, injects the fault at a random moment and asks the box when its arm last moved. Afterwards motion is
still commanded for a while: nothing may resume. Then the arm is recovered and driven again.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cail_bench.result import save
from cail_core.errors import CailError
from cail_core.over_topics import own_domain
from cail_core.progress import bar, console, table
from cail_robot.control.realtime import realtime
from cail_sim.ursim.process import BoxProcess

INJECTIONS = {"smoke": 1, "short": 5, "full": 20}
SPEED = 0.25
MODULE = "cail_bench.ur5e_faults"
WATCH_S = 0.6
"""How long the arm is watched for motion that resumes by itself, while it is commanded."""
PERMITTED = "ENABLED: motion is permitted"


def commander() -> None:
    """Publishes at 100 Hz what its standard input last asked for: zero, go (up and down), quiet."""
    from geometry_msgs.msg import TwistStamped

    from cail_robot.ros.runtime import COMMAND_QOS, join

    context, node, _ = join("commander", "/arm")
    publisher = node.create_publisher(TwistStamped, "twist_cmd", COMMAND_QOS)
    os.set_blocking(0, False)
    wish, began, due = "quiet", 0.0, time.monotonic()
    while wish != "end" and os.getppid() != 1:
        with contextlib.suppress(BlockingIOError):
            if asked := os.read(0, 4096).decode().split():
                wish, began = asked[-1], time.monotonic()
        if wish != "quiet":
            message = TwistStamped()
            message.header.frame_id = "base"
            message.header.stamp = node.get_clock().now().to_msg()
            if wish == "go":
                message.twist.linear.z = -SPEED if int(2.0 * (time.monotonic() - began)) % 2 == 0 else SPEED
            publisher.publish(message)
        due = max(due + 0.01, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
    node.destroy_node()
    context.try_shutdown()


class Lab:
    """The node, the commander and the person. Use as a context."""

    def __init__(self, box: BoxProcess) -> None:
        from diagnostic_msgs.msg import DiagnosticStatus
        from geometry_msgs.msg import TwistStamped
        from std_srvs.srv import SetBool, Trigger

        from cail_robot.ros.runtime import COMMAND_QOS, STATUS_QOS, join

        self.box = box
        self._said = ""
        self.context, self.node, self.executor = join("person", "/arm")
        self.node.create_subscription(DiagnosticStatus, "status", self._hear, STATUS_QOS)
        self._twist = self.node.create_publisher(TwistStamped, "twist_cmd", COMMAND_QOS)
        self._message, self._requests = TwistStamped, {"enable": SetBool.Request, "unlock": Trigger.Request}
        self._services = {
            "enable": self.node.create_client(SetBool, "enable"),
            "unlock": self.node.create_client(Trigger, "unlock"),
        }
        self.arm: subprocess.Popen[bytes] | None = None
        self.commander: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *args: object) -> None:
        for child in (self.commander, self.arm):
            if child is not None and child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.terminate()
                try:
                    child.wait(5)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
        self.executor.shutdown(timeout_sec=0)
        self.node.destroy_node()
        self.context.try_shutdown()

    def _hear(self, message: Any) -> None:
        self._said = message.message

    def state(self) -> str:
        self.executor.spin_once(timeout_sec=0)
        return self._said

    def until(self, condition: Callable[[], Any], what: str, timeout_s: float = 30.0) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            self.executor.spin_once(timeout_sec=0.01)
            time.sleep(0.005)
            if time.monotonic() > end:
                raise CailError(f"waited {timeout_s:g} s for {what}; the node says '{self._said}', the box {self.box.status()}")

    def call(self, service: str, **fields: Any) -> tuple[bool, str]:
        client = self._services[service]
        self.until(client.service_is_ready, f"service {service}")
        future = client.call_async(self._requests[service](**fields))
        self.until(future.done, f"the answer of {service}")
        answer = future.result()
        return answer.success, answer.message

    def publish(self, twist: Sequence[float]) -> float:
        """Once, from this process; gives the moment."""
        message = self._message()
        message.header.frame_id = "base"
        v, w = message.twist.linear, message.twist.angular
        v.x, v.y, v.z, w.x, w.y, w.z = twist
        message.header.stamp = self.node.get_clock().now().to_msg()
        moment = time.monotonic()
        self._twist.publish(message)
        return moment

    def ask(self, word: str) -> None:
        """Of the commander."""
        if self.commander is None or self.commander.poll() is not None:
            self.commander = subprocess.Popen([sys.executable, "-m", MODULE], stdin=subprocess.PIPE)
        assert self.commander.stdin is not None
        self.commander.stdin.write(word.encode() + b"\n")
        self.commander.stdin.flush()

    def start_node(self) -> None:
        self._said = ""
        command = [sys.executable, "-m", "cail_core.cli", "up", "ur5e", "--robot-ip", self.box.host]
        self.arm = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.until(lambda: self._said.startswith(("IDLE", "FAULT")), "the arm's node")

    def in_motion(self, *, go: bool = True) -> None:
        """Whatever was before: recover, enable, command rest, then motion."""
        if self.arm is None or self.arm.poll() is not None:
            self.start_node()
        if go:
            self.ask("quiet")
            time.sleep(0.55)  # a silence after which a new publisher is no second one
        end = time.monotonic() + 90.0
        heard_by = time.monotonic() + 0.1  # what the node has said since this process last listened
        self.until(lambda: time.monotonic() > heard_by, "")
        while time.monotonic() < end:
            if go:
                self.ask("zero")
            if self._said.startswith("FAULT"):
                self.call("unlock")
            elif self._said.startswith("IDLE"):
                self.call("enable", data=True)
            with contextlib.suppress(CailError):
                self.until(lambda: (go or self.publish((0.0,) * 6)) and self._said == PERMITTED, "", 0.3)
                if not go:
                    return
                self.ask("go")
                self.until(lambda: self.box.status()["tool_speed"] > 0.9 * SPEED, "", 0.6)
                return
        raise CailError(f"the arm does not recover: '{self._said}', the box {self.box.status()}")

    def loop_pid(self) -> int:
        """The RTDE loop: the node's child."""
        assert self.arm is not None
        children = Path(f"/proc/{self.arm.pid}/task").glob("*/children")
        pids = [int(pid) for file in children for pid in file.read_text().split()]
        found = [pid for pid in pids if b"cail_robot.robots.ur5e.loop" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return found[0]


def _kill(lab: Lab, which: str, number: signal.Signals) -> float:
    process = lab.commander if which == "commander" else lab.arm
    assert process is not None
    pid = lab.loop_pid() if which == "loop" else process.pid
    moment = time.monotonic()
    os.kill(pid, number)
    return moment


def _box(line: str) -> Callable[[Lab], float]:
    def inject(lab: Lab) -> float:
        moment = time.monotonic()
        lab.box.fault(line)
        return moment

    return inject


FAULTS: dict[str, tuple[Callable[[Lab], float], str]] = {
    "stale command (publisher stopped)": (lambda lab: _kill(lab, "commander", signal.SIGSTOP), ""),
    "policy SIGKILLed": (lambda lab: _kill(lab, "commander", signal.SIGKILL), ""),
    "node SIGKILLed": (lambda lab: _kill(lab, "node", signal.SIGKILL), ""),
    "RTDE loop SIGKILLed": (lambda lab: _kill(lab, "loop", signal.SIGKILL), ""),
    "link dropped": (_box("drop 300"), ""),
    "network frozen for 1 s": (_box("freeze 1000"), ""),
    "half-open sockets": (_box("half-open 1000"), ""),
    "protective stop": (_box("pstop"), ""),
    "emergency stop": (_box("estop"), "release"),
    "program stopped at the pendant": (_box("pendant-stop"), ""),
    "controller restarted": (_box("restart 500"), ""),
}
"""Name -> how it is injected (gives the moment), and what a person then does at the robot."""


def injected(lab: Lab, name: str, rng: random.Random) -> dict[str, Any]:
    inject, repair = FAULTS[name]
    lab.in_motion()
    time.sleep(rng.uniform(0.0, 0.4))
    while not lab.box.status()["moving"]:  # on a busy machine it may have stopped already
        lab.in_motion()
    moment = inject(lab)
    lab.until(lambda: not lab.box.status()["moving"], f"the stop after {name}", 5.0)
    stopped = lab.box.status()["moving_at"]
    if name == "stale command (publisher stopped)":
        time.sleep(0.2)
        _kill(lab, "commander", signal.SIGCONT)
    lab.until(lambda: time.monotonic() > moment + WATCH_S, "")
    after = lab.box.status()
    resumed = after["moving"] or after["moving_at"] > stopped + 0.02
    said = lab.state() if name != "node SIGKILLed" else "(the node is gone)"
    if repair:
        lab.box.fault(repair)
    return {"stop_ms": 1000.0 * max(0.0, stopped - moment), "resumed": resumed, "status": said}


def run(budget: str, out: Path, seed: int = 0) -> Path:
    return measure(list(FAULTS), INJECTIONS[budget], out, seed, budget)


def measure(names: Sequence[str], times: int, out: Path, seed: int, budget: str) -> Path:
    os.environ["ROS_DOMAIN_ID"] = own_domain()
    prompt = realtime(10)
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    with BoxProcess() as box, Lab(box) as lab, bar("faults", len(names) * times) as advance:
        for k, name in enumerate(names):
            found = []
            for i in range(times):
                found.append(injected(lab, name, rng))
                advance(k * times + i + 1)
            lab.in_motion()  # the last one is recovered from, too
            stops = sorted(each["stop_ms"] for each in found)
            rows.append(
                {
                    "fault": name,
                    "injected": times,
                    "stop_p50_ms": round(stops[len(stops) // 2], 1),
                    "stop_max_ms": round(stops[-1], 1),
                    "resumed": sum(each["resumed"] for each in found),
                    "recovered": times,
                    "status": " | ".join(sorted({each["status"] for each in found})),
                }
            )
            kept = save(out, "ur5e-faults", rows, budget=budget, seed=seed, speed=SPEED, realtime_scheduling=prompt)
    shown = table("fault", "injected", "stop p50 (ms)", "max", "resumed", "recovered")
    for row in rows:
        shown.add_row(*(str(row[key]) for key in ("fault", "injected", "stop_p50_ms", "stop_max_ms", "resumed", "recovered")))
    console().print(shown)
    return kept


if __name__ == "__main__":
    commander()
