"""`cail bench ur5e-rate`: how steadily `UR5eArm` drives the control box, against a bare ur_rtde loop in the same run.

The box itself notes when commands arrive. Latency is from the call with a new target to the first state that shows the tool
moving that way. Last, commands on the topic: from `publish` to the first changed speedL at the box.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cail_bench.result import save
from cail_bench.ur5e_faults import Lab
from cail_core.errors import CailError
from cail_core.progress import console, table
from cail_robot.arm import ArmError, ArmMode
from cail_robot.control.loop_timer import Pace
from cail_robot.control.realtime import realtime
from cail_robot.robots.ur5e.arm import UR5eArm
from cail_robot.robots.ur5e.config import GripperConfig, UR5eConfig
from cail_sim.ursim.process import BoxProcess

SECONDS = {"smoke": (5.0, 5.0), "short": (30.0, 60.0), "full": (120.0, 600.0)}
"""Of the bare loop and of `UR5eArm`."""
TOPIC_STEPS = {"smoke": 20, "short": 100, "full": 300}
SPEED = 0.03
LOOK_EVERY = 50
"""Periods between two looks at whether the arm is still under control."""
MODULE = "cail_bench.ur5e_rate"


def flips(seconds: float, send: Callable[[float], None], see: Callable[[], float], seed: int) -> list[float]:
    """Drive to and fro at 500 Hz; seconds from each new target to the first state that moves that way."""
    rng, found, pace = random.Random(seed), [], Pace(0.002)
    end = time.monotonic() + seconds
    target, flipped, turn_at = SPEED, None, time.monotonic() + 0.2
    while (now := time.monotonic()) < end:
        if now >= turn_at:
            target, flipped, turn_at = -target, time.monotonic(), now + rng.uniform(0.1, 0.3)
        send(target)
        if flipped is not None:
            until = now + 0.0016
            while flipped is not None and time.monotonic() < until:
                if see() * target > 0.0:
                    found.append(time.monotonic() - flipped)
                    flipped = None
                else:
                    time.sleep(0.0001)
        pace.wait()
    return found


def bare(host: str, seconds: float, seed: int) -> dict[str, Any]:
    """ur_rtde and nothing else, in this process."""
    import rtde_control
    import rtde_receive

    realtime(30)
    receive = rtde_receive.RTDEReceiveInterface(host)
    control = rtde_control.RTDEControlInterface(host)
    control.setTcp([0.0, 0.0, 0.16, 0.0, 0.0, 0.0])
    control.setWatchdog(20.0)
    stamps, calls = set(), 0
    interruptions: list[str] = []

    def send(speed: float) -> None:
        nonlocal calls
        calls += 1
        if calls % LOOK_EVERY == 0 and not control.isProgramRunning():  # a stall of the machine, and the watchdog has acted
            interruptions.append("the program does not run")
            control.reuploadScript()
            control.setTcp([0.0, 0.0, 0.16, 0.0, 0.0, 0.0])
            control.setWatchdog(20.0)
        control.speedL([0.0, 0.0, speed, 0.0, 0.0, 0.0], 25.0, 0.002)
        stamps.add(receive.getTimestamp())

    latencies = flips(seconds, send, lambda: receive.getActualTCPSpeed()[2], seed)
    memory = _memory_mib(os.getpid())
    print(json.dumps({"latencies": latencies, "states": len(stamps), "memory": [memory, memory],
                      "interruptions": interruptions}), flush=True)
    os._exit(0)


def ours(host: str, seconds: float, seed: int) -> dict[str, Any]:
    """`UR5eArm` with its RTDE loop in a process of its own; this process plays the node."""
    realtime(20)
    arm = UR5eArm(UR5eConfig(robot_ip=host, gripper=GripperConfig(kind="none")))
    states, calls, first, memory = 0, 0, 0, []
    interruptions: list[str] = []

    def begin() -> None:
        nonlocal first
        arm.connect()
        if (state := arm.read()).mode is not ArmMode.READY:
            raise CailError(f"the arm is not ready: {state.faults}")
        arm.send_twist((0.0,) * 6)
        first = arm.link_state().seen
        memory.append(_memory_mib(arm.loop_pid() or 0))

    def send(speed: float) -> None:
        nonlocal states, calls
        calls += 1
        arm.send_twist((0.0, 0.0, speed, 0.0, 0.0, 0.0))
        if calls % LOOK_EVERY == 0 and (why := unready(arm)):  # a stall of the machine, and the arm was stopped
            interruptions.append(why)
            states += arm.link_state().seen - first
            time.sleep(1.0)
            begin()

    begin()
    latencies = flips(seconds, send, lambda: arm.link_state().twist[2], seed)
    states += arm.link_state().seen - first
    memory.append(_memory_mib(arm.loop_pid() or 0))
    arm.close()
    return {"latencies": latencies, "states": states, "memory": memory[-2:], "interruptions": interruptions}


def unready(arm: UR5eArm) -> str:
    """Why the arm does not take commands; empty if it does."""
    try:
        state = arm.read()
    except ArmError as fault:
        return str(fault)
    return "" if state.mode is ArmMode.READY else "; ".join(state.faults) or state.mode.name


def _memory_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def quantile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else float("nan")


def gap_quantile(gaps: list[int], part: float) -> float:
    """Milliseconds, from a histogram of 0.1 ms."""
    wanted, seen = part * sum(gaps), 0
    for i, count in enumerate(gaps):
        seen += count
        if seen >= wanted and count:
            return (i + 1) / 10.0
    return len(gaps) / 10.0


def run(budget: str, out: Path, seed: int = 0) -> Path:
    """Three parts; what is done is kept and shown before the next."""
    rows: list[dict[str, Any]] = []
    why: dict[str, list[str]] = {}
    with BoxProcess() as box:
        for name, kind, seconds in zip(("bare ur_rtde", "UR5eArm"), ("bare", "ours"), SECONDS[budget], strict=True):
            console().print(f"{name} for {seconds:.0f} s")
            box.fault("reset")
            box.fault("trace")
            command = [sys.executable, "-m", MODULE, kind, box.host, str(seconds), str(seed)]
            found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            if found.returncode:
                raise CailError(f"the loop of {name} did not finish")
            measured = json.loads(found.stdout.splitlines()[-1])
            why[name] = measured["interruptions"]
            rows.append(_row(name, seconds, measured, box.fault("trace")["command_gaps"]))
        rows.append(
            {"loop": "ratio UR5eArm to bare", "seconds": ""}
            | {k: _ratio(rows[1][k], rows[0][k]) for k in rows[0] if k not in ("loop", "seconds")}
        )
        save(out, "ur5e-rate", rows, budget=budget, seed=seed, interrupted_by=why)
        _show(rows)
        console().print(f"{TOPIC_STEPS[budget]} commands on the topic")
        box.fault("reset")
        topic, interrupted = topic_latencies(box, TOPIC_STEPS[budget], seed)
    rows.append(
        dict.fromkeys(rows[0], "")
        | {
            "loop": "twist_cmd to speedL on the wire",
            "latency_p50_ms": round(1000 * quantile(topic, 0.5), 2),
            "latency_p99_ms": round(1000 * quantile(topic, 0.99), 2),
            "interruptions": interrupted,
        }
    )
    _show(rows[-1:])
    return save(out, "ur5e-rate", rows, budget=budget, seed=seed, interrupted_by=why, topic_steps=len(topic))


def _show(rows: list[dict[str, Any]]) -> None:
    shown = table(*rows[0])
    for row in rows:
        shown.add_row(*(str(value) for value in row.values()))
    console().print(shown)


def _row(name: str, seconds: float, found: dict[str, Any], gaps: list[int]) -> dict[str, Any]:
    return {
        "loop": name,
        "seconds": seconds,
        "states_per_s": round(found["states"] / seconds, 1),
        "period_p50_ms": gap_quantile(gaps, 0.5),
        "period_p99_ms": gap_quantile(gaps, 0.99),
        "period_max_ms": gap_quantile(gaps, 1.0),
        "latency_p50_ms": round(1000 * quantile(found["latencies"], 0.5), 2),
        "latency_p99_ms": round(1000 * quantile(found["latencies"], 0.99), 2),
        "interruptions": len(found["interruptions"]),
        "memory_first_mib": round(found["memory"][0], 1),
        "memory_last_mib": round(found["memory"][1], 1),
    }


def _ratio(a: Any, b: Any) -> Any:
    return round(a / b, 2) if b else ""


def topic_latencies(box: BoxProcess, steps: int, seed: int) -> tuple[list[float], int]:
    """From publishing a first nonzero twist to the first nonzero speedL at the box; and how often a fault came between."""
    rng = random.Random(seed)
    found: list[float] = []
    with Lab(box) as lab:
        lab.in_motion(go=False)
        i = interrupted = 0
        while len(found) < steps:
            i += 1
            time.sleep(rng.uniform(0.15, 0.25))
            box.fault("trace")
            sent = lab.publish((0.0, 0.0, SPEED if i % 2 else -SPEED, 0.0, 0.0, 0.0))
            time.sleep(0.03)
            arrived = [row[0] for row in box.fault("trace")["speed_commands"] if row[3] != 0.0 and row[0] >= sent]
            lab.publish((0.0,) * 6)
            if arrived:
                found.append(arrived[0] - sent)
            else:  # a fault in between, as on a machine that does not keep up
                interrupted += 1
                if interrupted > steps:
                    raise CailError(f"commands are not executed; the node says: {lab.state()}")
                lab.in_motion(go=False)
    return found, interrupted


if __name__ == "__main__":
    kind, host, seconds, seed = sys.argv[1:]
    result = (bare if kind == "bare" else ours)(host, float(seconds), int(seed))
    print(json.dumps(result))
