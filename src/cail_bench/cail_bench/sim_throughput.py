"""`cail bench panda-speed`: how fast the simulated arm steps, with everything around it, against the bare engine in the same run.

The bare engine replays the same motor commands in the same world and does nothing else. The worker processes ask a NumPy policy,
pass the safety filter, control, read the scene, judge and reset. They take turns, so that whatever else the machine does slows
all alike, and a ratio is the median over the rounds. Two bare engines at once show what the machine has to give to two processes.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from cail_bench.result import save
from cail_core.policy import ACTION_BOUND, Network
from cail_core.progress import bar, console, table
from cail_core.tasks.base import Array
from cail_sim.bullet.vector import WorkerEnv
from cail_sim.bullet.world import Start, World, spread
from cail_sim.tasks.env import CONTROL_TICKS
from cail_sim.tasks.panda import Panda

ROUNDS = {"smoke": 1, "short": 4, "full": 12}
ENVS_PER_WORKER = 4
DECISIONS = 120
BARE, TWO_BARE = "bare stepSimulation", "bare stepSimulation, 2 processes at once"

Episode = tuple[Start, list[list[float]]]
"""Where an episode starts and the motor speeds of its decisions."""


def run(budget: str, out: Path, seed: int) -> Path:
    task = Panda()
    workers = {"1 worker": 1, "2 workers": 2}
    actions, episodes = record(task, ENVS_PER_WORKER * max(workers.values()), seed)
    ticks = task.config.task.ticks_per_decision
    envs = {name: WorkerEnv(task, ENVS_PER_WORKER * n, n) for name, n in workers.items()}
    bare = [BareEngine(episodes) for _ in range(2)]
    replayed = ticks * sum(len(commands) for _, commands in episodes)
    rates: dict[str, list[float]] = {BARE: [], TWO_BARE: [], **{name: [] for name in workers}}
    try:
        policy = network(task.spec.observation_dim, task.spec.action_dim)
        noise = np.arctanh(actions.clip(-ACTION_BOUND, ACTION_BOUND))
        with bar("panda-speed", ROUNDS[budget]) as advance:
            for k in range(ROUNDS[budget]):
                rates[BARE].append(replayed / bare[0].replay())
                for engine in bare:
                    engine.go()
                rates[TWO_BARE].append(sum(replayed / engine.seconds() for engine in bare))
                for name, env in envs.items():
                    env.reset(seed)
                    since = time.perf_counter()
                    env.play(policy, len(actions), noise[:, : env.num_envs])
                    rates[name].append(ticks * env.num_envs * len(actions) / (time.perf_counter() - since))
                advance(k + 1)
        memory = {name: max(map(peak_mb, env.pids)) for name, env in envs.items()}
    finally:
        for engine in bare:
            engine.close()
        for env in envs.values():
            env.close()

    rows: list[dict[str, Any]] = [
        {
            "task": task.spec.name,
            "what": name,
            "ticks_per_s": round(float(np.median(rate))),
            "ratio_to_bare": round(float(np.median(np.divide(rate, rates[BARE]))), 2),
            "least": round(float(np.min(np.divide(rate, rates[BARE]))), 2),
            "most": round(float(np.max(np.divide(rate, rates[BARE]))), 2),
            "peak_mb_per_worker": round(memory[name]) if name in memory else "",
        }
        for name, rate in rates.items()
    ]
    shown = table("panda", "ticks/s", "ratio to the bare engine", "in the rounds", "peak memory of a worker, MB")
    for row in rows:
        shown.add_row(row["what"], f"{row['ticks_per_s']:,}", str(row["ratio_to_bare"]), f"{row['least']} … {row['most']}",
                      str(row["peak_mb_per_worker"]))
    console().print(shown)
    return save(out, "panda-speed", rows, budget=budget, seed=seed, envs_per_worker=ENVS_PER_WORKER,
                cores=len(os.sched_getaffinity(0)), load_before=round(os.getloadavg()[0], 1))


class BareEngine:
    """A process with one world that replays the recorded episodes."""

    def __init__(self, episodes: list[Episode]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_replaying, args=(theirs, episodes), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe.recv()

    def go(self) -> None:
        self._pipe.send(True)

    def seconds(self) -> float:
        """How long the engine took for all episodes, what lies between them left out."""
        taken: float = self._pipe.recv()
        return taken

    def replay(self) -> float:
        self.go()
        return self.seconds()

    def close(self) -> None:
        self._pipe.close()
        self._process.join(timeout=10)


def _replaying(pipe: Connection, episodes: list[Episode]) -> None:
    world = Panda().one().world
    pipe.send(True)
    try:
        while pipe.recv():
            pipe.send(sum(_replayed(world, *episode) for episode in episodes))
    except EOFError:
        world.close()


def _replayed(world: World, start: Start, commands: list[list[float]]) -> float:
    world.begin(start)
    since = time.perf_counter()
    for speeds in commands:
        world.replay(speeds, CONTROL_TICKS)
    return time.perf_counter() - since


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
                    commands += env.commanded
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
