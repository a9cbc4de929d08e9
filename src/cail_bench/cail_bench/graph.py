"""The graph of deploy.launch.py for benchmarks: the arm's node and the desk as two processes, recorded episode by episode.

With `ros2` on the path the graph is started by `ros2 launch`, otherwise its two processes are. They run in a ROS domain of their
own, so that no other arm hears them.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TextIO

from cail_core.demos import layout
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.episode import INTERRUPTED
from cail_core.errors import CailError
from cail_core.evaluation import evaluate
from cail_core.over_topics import own_domain
from cail_core.policy import load_policy
from cail_core.tasks import get_task

CAIL = (sys.executable, "-m", "cail_core.cli")
ENDS_S = 15.0
IN_VAIN = 5
"""Launches in a row without an episode."""
LIBC, PR_SET_PDEATHSIG = ctypes.CDLL(None), 1
UP = {"panda_sim": "sim", "ur5e_sim": "ur5e-sim"}
"""What `cail up` calls them."""


def graph(dataset: Path, episodes: int, seed: int, robot: str = "ur5e_sim", **arguments: str) -> None:
    """Let the dataset hold `episodes` episodes of this robot's graph; those that it has already count.

    A fault of the arm, as on a machine that stalls, ends an unattended deployment: a person would start the graph again. An
    episode that was interrupted by it stays in the dataset, and another one is played in its place.
    """
    dataset.parent.mkdir(parents=True, exist_ok=True)
    log = dataset.with_suffix(".log")
    have, in_vain = _count(dataset), 0
    while have < episodes:
        with log.open("a") as said:
            asked = {"episodes": str(episodes - have), "record": "true", "dataset": str(dataset), "input": "none"}
            launch(robot, arguments | asked, str(seed + have + interrupted(dataset)), said)
        before, have = have, _count(dataset)
        in_vain = 0 if have > before else in_vain + 1
        if in_vain == IN_VAIN:
            raise CailError(f"the graph gave {have} of {episodes} episodes; {log} has what it said, the same command goes on")


def _count(dataset: Path) -> int:
    return len(deployed(dataset)) if (dataset / layout.INFO).exists() else 0


def launch(robot: str, arguments: dict[str, str], seed: str, said: TextIO) -> None:
    """The graph of deploy.launch.py, until it ends."""
    env = {**os.environ, "ROS_DOMAIN_ID": own_domain(), "OMP_NUM_THREADS": "1"}
    if ros2 := shutil.which("ros2"):
        words = [f"{name}:={value}" for name, value in arguments.items()]
        command = [ros2, "launch", "cail_robot", "deploy.launch.py", f"robot:={robot}", f"seed:={seed}", *words]
        subprocess.run(command, stdout=said, stderr=said, env=env, preexec_fn=end_with_parent)
        return
    words = [f"--{name.replace('_', '-')}={value}" for name, value in arguments.items()]
    arm = subprocess.Popen([*CAIL, "up", UP[robot], "--seed", seed], stdout=said, stderr=said, env=env,
                           preexec_fn=end_with_parent)
    try:
        desk = [*CAIL, "deploy", "--robot", "running", "--robot-type", robot, *words]
        subprocess.run(desk, stdout=said, stderr=said, env=env, preexec_fn=end_with_parent)
    finally:
        arm.send_signal(signal.SIGINT)
        try:
            arm.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            arm.kill()
            arm.wait()


def end_with_parent() -> None:
    """In a new process, before its program begins: it is interrupted when the process that started it ends, killed or not. An arm
    must not go on without its benchmark, nor be deaf to its end: what a shell starts in the background ignores interrupts, and so
    would all that it starts. Elsewhere than on Linux only that is done."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(LIBC, "prctl"):
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGINT)


Ended = tuple[str, float, float]
"""How an episode ended, its return, its seconds."""


def deployed(dataset: Path) -> list[Ended]:
    """All episodes but those that were interrupted. Of a failure that is what ended it, where that was written down."""
    demos = DemoDataset(dataset)
    return [(_why(row) or row.outcome, float(row.undiscounted_return or 0.0), row.length / demos.info["fps"])
            for row in demos.rows if row.outcome != INTERRUPTED]


def _why(row: layout.EpisodeRow) -> str:
    return str((row.recording or {}).get("why", "")).split(":")[0] if row.outcome == "failure" else ""


def interrupted(dataset: Path) -> int:
    """Episodes that were no one's doing."""
    if not (dataset / layout.INFO).exists():
        return 0
    return sum(row.outcome == INTERRUPTED for row in DemoDataset(dataset).rows)


def in_process(policy: Path, episodes: int, seed: int) -> list[Ended]:
    task = get_task("ur5e")
    found = evaluate(task, load_policy(policy), episodes, seed)
    return [("success" if good else "failure", float(value), steps / task.spec.fps)
            for good, value, steps in zip(found.success, found.returns, found.lengths, strict=True)]
