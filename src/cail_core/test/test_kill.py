"""Nothing that was saved is lost, whenever the process is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import fast_folder, same_dataset

from cail_core.demos.check import check
from cail_core.demos.dataset import DemoDataset


@pytest.mark.parametrize("job", ["save", "create", "delete", "rank"])
def test_sigkill_at_every_step_on_disk(job: str) -> None:
    folder = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, folder / "killer.py", job],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_collecting_goes_on_after_sigkill_at_random_moments() -> None:
    with fast_folder() as scratch:
        out, whole = Path(scratch, "killed"), Path(scratch, "whole")
        command = [
            sys.executable,
            "-m",
            "cail_core.cli",
            "demos",
            "collect",
            "--task",
            "pointmass",
            "--episodes",
            "60",
            "--seed",
            "7",
        ]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        rng, kills = random.Random(1), 0
        for _ in range(40):
            before = _saved(out)
            process = subprocess.Popen(
                [*command, "--out", str(out)], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            while process.poll() is None and _saved(out) < min(before + rng.randint(1, 9), 60):
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.01))
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
            assert _saved(out) >= before
            if _saved(out) == 60:
                break
        assert kills >= 5
        for folder in (out, whole):
            subprocess.run([*command, "--out", str(folder)], env=env, check=True, capture_output=True)
        same_dataset(DemoDataset(out), DemoDataset(whole))
        assert check(out) == []


def _saved(root: Path) -> int:
    return DemoDataset(root).episodes if (root / "meta/info.json").exists() else 0
