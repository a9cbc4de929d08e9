"""How fast demonstrations are written durably, opened and read, and how much memory that takes.

Each figure has a ratio beside it: to plain `np.save` + fsync of the same episodes (writing) and `np.load` of the same
arrays (reading), in the same run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from cail_bench.result import save
from cail_core.demos.episode import Episode, end_flags
from cail_core.demos.features import ACTION, REWARD, STATE, SUCCESS, frame_features
from cail_core.demos.writer import DemoWriter
from cail_core.progress import bar, console, table

EPISODES = {"smoke": 20, "short": 1000, "full": 1000}
FRAMES, STATES, ACTIONS = 1000, 27, 8

_READ = """
import json, resource, sys, time
from cail_core.demos.dataset import DemoDataset
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
t0 = time.perf_counter(); dataset = DemoDataset(sys.argv[1]); t1 = time.perf_counter()
demonstrations = dataset.demonstrations(); t2 = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"open_s": t1 - t0, "read_s": t2 - t1, "peak_mib": peak / 1024, "imports_mib": base / 1024,
                  "pairs": len(demonstrations.states)}))
"""


def run(budget: str, out: Path, seed: int = 0) -> Path:
    n = EPISODES[budget]
    with tempfile.TemporaryDirectory(prefix="cail-bench-") as scratch:
        rng = np.random.default_rng(seed)
        written, plain = _write(Path(scratch), n, rng)
        read = json.loads(
            subprocess.run([sys.executable, "-c", _READ, f"{scratch}/dataset"], check=True, capture_output=True, text=True).stdout
        )
        start = time.perf_counter()
        for i in range(n):
            np.load(f"{scratch}/plain/{i}.npy")
        plain_read = time.perf_counter() - start
    row = {
        "episodes": n,
        "frames": n * FRAMES,
        "state": STATES,
        "action": ACTIONS,
        "seed": seed,
        "write_s": round(written, 2),
        "write_ratio_to_npy": round(written / plain, 2),
        "open_s": round(read["open_s"], 3),
        "read_s": round(read["read_s"], 2),
        "read_ratio_to_npy": round(read["read_s"] / plain_read, 2),
        "peak_mib": round(read["peak_mib"]),
        "imports_mib": round(read["imports_mib"]),
    }
    shown = table("what", "value", "ratio to npy files")
    shown.add_row(
        f"write {n} episodes × {FRAMES} frames × {STATES} numbers, each durable",
        f"{row['write_s']} s",
        str(row["write_ratio_to_npy"]),
    )
    shown.add_row("open", f"{row['open_s']} s", "")
    shown.add_row(f"read {row['frames']} transitions", f"{row['read_s']} s", str(row["read_ratio_to_npy"]))
    shown.add_row("peak memory of reading (of it imports)", f"{row['peak_mib']} MiB ({row['imports_mib']})", "")
    console().print(shown)
    return save(out, "dataset", [row], budget=budget, seed=seed)


def _write(scratch: Path, n: int, rng: np.random.Generator) -> tuple[float, float]:
    """Seconds to save the episodes as a dataset, and as plain npy files with fsync, taken in turns."""
    features = frame_features(tuple(f"s{i}" for i in range(STATES)), tuple(f"a{i}" for i in range(ACTIONS)))
    (scratch / "plain").mkdir()
    ours = plain = 0.0
    with (
        bar("writing", n) as advance,
        DemoWriter.create(
            scratch / "dataset", task="bench", text="bench", robot_type="bench", fps=50, features=features
        ) as writer,
    ):
        for i in range(n):
            frames: dict[str, Any] = {
                STATE: rng.standard_normal((FRAMES, STATES), dtype=np.float32),
                ACTION: rng.standard_normal((FRAMES, ACTIONS), dtype=np.float32),
                REWARD: rng.standard_normal(FRAMES, dtype=np.float32),
                SUCCESS: np.zeros(FRAMES, dtype=bool),
                **end_flags(FRAMES, truncated=True),
            }
            episode = Episode(frames, rng.standard_normal(STATES, dtype=np.float32))
            start = time.perf_counter()
            writer.save_episode(episode)
            between = time.perf_counter()
            with open(scratch / "plain" / f"{i}.npy", "wb") as handle:
                np.save(handle, np.concatenate([frames[STATE], frames[ACTION], frames[REWARD][:, None]], axis=1))
                handle.flush()
                os.fsync(handle.fileno())
            ours, plain = ours + between - start, plain + time.perf_counter() - between
            advance(i + 1)
    return ours, plain
