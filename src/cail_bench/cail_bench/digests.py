"""`cail bench digests`: fingerprints of short runs, to show that a change of the code is not a change of what is learned.

Every method on the point mass, and `cail-bc` and `cail-hybrid` on the Panda, through the commands that a person types. The same
fingerprint means the same weights to the last bit. They hold for one machine and one set of versions: compare two commits there.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from cail_bench.result import save
from cail_core.algorithms import method_names
from cail_core.algorithms.registry import get_method
from cail_core.errors import CailError
from cail_core.progress import bar

STEPS = {"smoke": (50, 2_000), "short": (300, 12_000), "full": (1_000, 50_000)}
"""Gradient steps of the offline methods, environment steps of the others."""
PANDA = {"cail-bc": 300, "cail-hybrid": 9_600}


def run(budget: str, out: Path, seed: int) -> Path:
    folder = out / "digests"
    tasks = {"pointmass": 40} | ({} if budget == "smoke" else {"panda": 60})
    jobs = [("pointmass", method, STEPS[budget][not get_method(method).offline])
            for method in method_names()]
    jobs += [("panda", method, steps) for method, steps in PANDA.items() if "panda" in tasks]
    for task, episodes in tasks.items():
        if not (folder / task).exists():
            _cail("demos", "collect", "--task", task, "--episodes", episodes, "--seed", seed, "--out", folder / task)
            _cail("demos", "rank", folder / task, "--by", "return", "--fraction", "0.2", "--seed", seed)
    rows = []
    with bar("digests", len(jobs)) as advance:
        for k, (task, method, steps) in enumerate(jobs):
            trained = folder / f"{task}-{method}"
            _cail("train", "--task", task, "--demos", folder / task, "--method", method, "--seed", seed, "--steps", steps,
                  "--no-stress", "--report-episodes", 0, "--out", trained)
            weights = (trained / "policy" / "policy.safetensors").read_bytes()
            rows.append({"task": task, "method": method, "steps": steps, "sha256": hashlib.sha256(weights).hexdigest()[:16]})
            advance(k + 1)
    return save(out, "digests", rows, budget=budget, seed=seed)


def _cail(*words: object) -> None:
    done = subprocess.run([sys.executable, "-m", "cail_core.cli", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise CailError(f"cail {' '.join(map(str, words))} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
