"""`cail bench panda-speed`: how fast the simulated arm steps, with everything around it, against the bare engine in the same run.

The bare engine replays the same motor commands in the same world and does nothing else. The worker processes ask a NumPy policy,
pass the safety filter, control, read the scene, judge and reset. The two take turns, so that whatever else the machine does slows
both alike.
"""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cail_core.benchmarks.result import save
from cail_core.policy import ACTION_BOUND, Network
from cail_core.progress import bar, console, table
from cail_core.tasks.base import Array
from cail_sim.tasks import Panda
from cail_sim.vector import WorkerEnv
from cail_sim.world import Start, spread

ROUNDS = {"smoke": 1, "short": 4, "full": 12}
ENVS_PER_WORKER = 4
DECISIONS = 120
BARE = 0
"""In place of a number of workers: the bare engine."""

Episode = tuple[Start, list[list[float]]]
"""Where an episode starts and the motor speeds of its decisions."""


def run(budget: str, out: Path, seed: int) -> Path:
    task = Panda()
    counts = (1, 2)
    actions, episodes = record(task, ENVS_PER_WORKER * max(counts), seed)
    ticks = task.config.task.ticks_per_decision
    seconds, done = dict.fromkeys((BARE, *counts), 0.0), dict.fromkeys((BARE, *counts), 0)
    envs = {workers: WorkerEnv(task, ENVS_PER_WORKER * workers, workers) for workers in counts}
    world = task.one().world
    try:
        policy = network(task.spec.observation_dim, task.spec.action_dim)
        noise = np.arctanh(actions.clip(-ACTION_BOUND, ACTION_BOUND))
        with bar("panda-speed", ROUNDS[budget]) as advance:
            for k in range(ROUNDS[budget]):
                for start, commands in episodes:
                    world.begin(start)
                    since = time.perf_counter()
                    for speeds in commands:
                        world.replay(speeds)
                    seconds[BARE] += time.perf_counter() - since
                    done[BARE] += ticks * len(commands)
                for workers, env in envs.items():
                    env.reset(seed)
                    since = time.perf_counter()
                    env.play(policy, len(actions), noise[:, : env.num_envs])
                    seconds[workers] += time.perf_counter() - since
                    done[workers] += ticks * env.num_envs * len(actions)
                advance(k + 1)
        memory = {workers: max(map(peak_mb, env.pids)) for workers, env in envs.items()}
    finally:
        world.close()
        for env in envs.values():
            env.close()

    rate = {name: done[name] / seconds[name] for name in seconds}
    rows: list[dict[str, Any]] = [
        {
            "task": task.spec.name,
            "what": "bare stepSimulation" if name == BARE else f"{name} worker{'s' if name != 1 else ''}",
            "ticks_per_s": round(rate[name]),
            "ratio_to_bare": round(rate[name] / rate[BARE], 2),
            "peak_mb_per_worker": round(memory[name]) if name != BARE else "",
        }
        for name in rate
    ]
    shown = table("panda", "ticks/s", "ratio to the bare engine", "peak memory of a worker, MB")
    for row in rows:
        shown.add_row(row["what"], f"{row['ticks_per_s']:,}", str(row["ratio_to_bare"]), str(row["peak_mb_per_worker"]))
    console().print(shown)
    return save(out, "panda-speed", rows, budget=budget, seed=seed, envs_per_worker=ENVS_PER_WORKER,
                cores=len(os.sched_getaffinity(0)), load_before=round(os.getloadavg()[0], 1))


def record(task: Panda, num_envs: int, seed: int) -> tuple[Array, list[Episode]]:
    """The best script's actions in each environment, [decision, environment, action], and the first episodes as motor speeds."""
    best = task.demonstrators()["best"]
    env = task.one()
    actions, episodes = np.zeros((DECISIONS, num_envs, task.spec.action_dim), np.float32), []
    try:
        for row in range(num_envs):
            rng = np.random.default_rng((seed, row))
            start = spread(task.config.world, np.random.default_rng((seed, row)).random(7).tolist(), grasped=task.grasped)
            env.start(rng)
            person, commands, ended = best.start(np.random.default_rng(row)), [], False
            for k in range(DECISIONS):
                actions[k, row] = person(np.array(env.observe(), dtype=np.float32))
                outcome = env.decide(actions[k, row].tolist())[1]
                if not ended:
                    commands.append(env.world.arm.commanded)
                if outcome is not None:
                    env.start(rng)
                    person, ended = best.start(np.random.default_rng(row)), True
            episodes.append((start, commands))
    finally:
        env.close()
    return actions, episodes


def network(inputs: int, outputs: int) -> Network:
    """A policy of the usual size whose output is 0: with the script's actions as its noise it does what the script did."""
    rng, sizes = np.random.default_rng(0), (inputs, 128, 128, outputs)
    weights = {"observation_mean": np.zeros(inputs, np.float32), "observation_scale": np.ones(inputs, np.float32)}
    for i, (before, after) in enumerate(pairwise(sizes)):
        last = i == len(sizes) - 2
        weights[f"layer{i}.weight"] = rng.normal(0, 0.0 if last else 0.1, (after, before)).astype(np.float32)
        weights[f"layer{i}.bias"] = np.zeros(after, np.float32)
    return Network(weights, "tanh")


def peak_mb(pid: int) -> float:
    """The most memory that a process has held, from /proc."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024
