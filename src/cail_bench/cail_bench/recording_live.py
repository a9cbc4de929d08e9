"""`cail bench recording-live`: an hour by the clock, as a lab records it.

The simulated arm at 100 Hz is one process, `cail record` with a script for hands is another, all messages go over DDS. One row
for each episode of a minute.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cail_bench.result import save
from cail_core.demos import layout
from cail_core.demos.dataset import DemoDataset
from cail_core.errors import CailError
from cail_core.over_topics import own_domain
from cail_core.progress import bar

EPISODES = {"smoke": 1, "short": 5, "full": 60}
SECONDS = {"smoke": 4, "short": 60, "full": 60}
HZ = 100
START_S = 60.0
TURNS = ("left", "page-up", "right", "page-down")
"""What the script holds, two seconds each; it ends where it began."""


def run(budget: str, out: Path, seed: int) -> Path:
    episodes, seconds = EPISODES[budget], SECONDS[budget]
    with tempfile.TemporaryDirectory() as folder:
        root, script, said = Path(folder, "demos"), Path(folder, "script.txt"), Path(folder, "said.txt")
        script.write_text(script_of(episodes, seconds))
        environment = {**os.environ, "ROS_DOMAIN_ID": own_domain(), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "cail_core.cli"]
        with said.open("w") as log:
            arm = subprocess.Popen([*command, "up", "sim", "--seed", str(seed)], env=environment, stdout=log, stderr=log)
            desk = subprocess.Popen(
                [*command, "record", "--robot", "running", "--robot-type", "panda_sim", "--rate", str(HZ), "--demonstrator",
                 "bench", "--input", "scripted", "--script", str(script), "--dataset", str(root)],
                env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                memory = _watch(root, desk, episodes, seconds)
                ended = desk.wait(START_S)
            except (CailError, subprocess.TimeoutExpired) as fault:
                raise CailError(f"the recording did not end well ({fault}); its last words: {said.read_text()[-400:]}") from None
            finally:
                for process in (desk, arm):
                    process.send_signal(signal.SIGINT)
                    try:
                        process.wait(10)
                    except subprocess.TimeoutExpired:
                        process.kill()
                        process.wait()
        if ended:
            raise CailError(f"the recording ended with exit code {ended}: {said.read_text()[-400:]}")
        rows = [_row(root, number, at) for number, at in enumerate(memory)]
    return save(out, "recording-live", rows, budget=budget, seed=seed, hz=HZ, seconds_per_episode=seconds)


def script_of(episodes: int, seconds: int) -> str:
    """Motion is permitted, then each episode goes to and fro for its time and is saved as a failure."""
    turns = [f"hold {TURNS[k % len(TURNS)]} 2" for k in range(seconds // 2)]
    lines = ["wait 2", "press c", "wait 2", *["press enter", *turns, "press f", "wait 1"] * episodes]
    return "\n".join(lines) + "\n"


def _watch(root: Path, desk: subprocess.Popen[bytes], episodes: int, seconds: int) -> list[float]:
    """Resident memory of the recording process, in MB, when each episode was saved."""
    memory: list[float] = []
    until = time.monotonic() + START_S + seconds
    with bar("recording, by the clock", episodes) as advance:
        while len(memory) < episodes:
            time.sleep(0.2)
            saved = layout.read_info(root)["total_episodes"] if (root / layout.INFO).exists() else 0
            if saved > len(memory):
                memory.append(_resident_mb(desk.pid))
                until = time.monotonic() + START_S + seconds
                advance(len(memory))
            elif desk.poll() is not None:
                raise CailError(f"it ended after {saved} of {episodes} episodes")
            elif time.monotonic() > until:
                raise CailError(f"no episode came after {saved}")
    return memory


def _row(root: Path, number: int, memory: float) -> dict[str, Any]:
    row = DemoDataset(root).rows[number]
    assert row.recording is not None
    bag = root / "bags" / f"{row.recording['bag']}.mcap"
    return {
        "episode": number + 1,
        "frames": row.length,
        "lost": row.recording["lost"],
        "resident_mb": round(memory, 1),
        "bag_kb": round(bag.stat().st_size / 1000, 1),
        "data_kb": round(row.data_path(root).stat().st_size / 1000, 1),
    }


def _resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
