"""A policy played through the real node: `cail deploy` in a process of its own, in real time, in a ROS domain of its own.

The robot packages build on this one and not the other way round, so they are met here as a person meets them: by their command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from cail_core.errors import CailError, MissingDependency, how_to_add
from cail_core.evaluation import EVALUATION_STREAM, Evaluation, evaluate
from cail_core.policy import PolicyRunner
from cail_core.tasks.base import Task

DOMAINS = range(40, 100)
"""ROS domains that nobody's arm is likely to be in; the highest whose ports Linux does not hand out otherwise is 101."""
LAST_WORDS = 12


@dataclass(frozen=True)
class Episode:
    """How one ended; `outcome` is a name of `demos.episode.OUTCOMES`."""

    outcome: str
    total: float
    seconds: float


@cache
def own_domain() -> str:
    """A ROS domain for what this process starts; never the user's, where a real arm may be."""
    users = os.environ.get("ROS_DOMAIN_ID", "0")
    free = [domain for domain in DOMAINS if str(domain) != users]
    return str(free[os.getpid() % len(free)])


def available() -> str:
    """Why nothing can be played over topics here; nothing where it can."""
    if find_spec("cail_robot") is None:
        return "the package cail_robot is not installed"
    return "" if find_spec("rclpy") is not None else f"rclpy is missing; {how_to_add('ros')}"


def play_over_topics(folder: Path, robot: str, episodes: int, seed: int, *words: str) -> list[Episode]:
    """Let the policy in `folder` play on a simulated arm behind its node; `words` are further options of `cail deploy`."""
    if why := available():
        raise MissingDependency(f"playing over the topics: {why}")
    with tempfile.TemporaryDirectory() as there:
        results, log = Path(there) / "results.json", Path(there) / "log"
        command = [sys.executable, "-m", "cail_core.cli", "deploy", "--policy", str(folder), "--robot", robot, "--input", "none",
                   "--episodes", str(episodes), "--seed", str(seed), "--results", str(results), *words]
        with log.open("wb") as said:
            ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                   env={**os.environ, "ROS_DOMAIN_ID": own_domain(), "OMP_NUM_THREADS": "1"}).returncode
        played = [Episode(**one) for one in json.loads(results.read_text())] if results.exists() else []
        if len(played) < episodes:
            last = "\n".join(log.read_text(errors="replace").splitlines()[-LAST_WORDS:])
            raise CailError(f"{len(played)} of {episodes} episodes were played over the topics, exit code {ended}; the last "
                            f"words were:\n{last}")
    return played


def node_seed(seed: int) -> int:
    """What the simulator's node is told so that its episodes begin as those of `evaluate` with this seed in one environment."""
    return int(np.random.SeedSequence((seed, EVALUATION_STREAM)).generate_state(1)[0])


def in_process(task: Task, policy: PolicyRunner, episodes: int, seed: int) -> Evaluation:
    """The episodes that the node of a simulator that puts everything back begins with `node_seed(seed)`, in this process."""
    return evaluate(task, policy, episodes, seed, num_envs=1)
