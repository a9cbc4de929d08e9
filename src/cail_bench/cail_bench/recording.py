"""`cail bench recording`: an hour of an arm's messages at 100 Hz through the recorder, an episode a minute.

The messages come as fast as the recorder takes them: memory, bytes and lost frames do not depend on the pace, and the time that a
message takes says how much of a core recording needs. One row a minute.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cail_bench.result import save
from cail_core.demos.dataset import DemoDataset
from cail_core.progress import bar
from cail_core.recording import cdr
from cail_core.recording.bag import Message
from cail_core.recording.episode_builder import recordable
from cail_robot.recording.recorder import Recorder

MINUTES = {"smoke": 1, "short": 10, "full": 60}
HZ = 100
JOINTS = [f"panda_joint{i}" for i in range(1, 8)]


def run(budget: str, out: Path, seed: int) -> Path:
    rows = []
    with tempfile.TemporaryDirectory() as folder, bar("recording", MINUTES[budget]) as advance:
        root = Path(folder, "demos")
        recorder = Recorder(root, recordable("panda"), robot="panda_sim", demonstrator="bench", rate=HZ, silence_s=math.inf)
        recorder.period_ns = 10**9 // HZ
        stream = messages(seed)
        for message in (next(stream) for _ in range(20 * 9)):
            recorder.hear(message)
        for minute in range(1, MINUTES[budget] + 1):
            recorder.start()
            count, since = 0, time.process_time()
            while recorder.frames < 60 * HZ:
                recorder.hear(next(stream))
                count += 1
            heard = time.process_time() - since
            since = time.perf_counter()
            saved = recorder.save("failure")
            seconds = time.perf_counter() - since
            stored = DemoDataset(root)
            row = stored.rows[-1]
            assert row.recording is not None
            rows.append({
                "minute": minute,
                "frames": saved.frames,
                "lost": row.recording["lost"],
                "messages": count,
                "cpu_us_per_message": round(1e6 * heard / count, 1),
                "save_s": round(seconds, 3),
                "resident_mb": round(_resident_mb(), 1),
                "bag_kb": round(saved.bag.stat().st_size / 1000, 1),
                "data_kb": round(row.data_path(root).stat().st_size / 1000, 1),
            })  # fmt: skip
            advance(minute)
        recorder.close()
    return save(out, "recording", rows, budget=budget, seed=seed, hz=HZ)


def messages(seed: int) -> Iterator[Message]:
    """An arm that moves about as a person drives it, with noise as sensors have; nine topics, each with the arm's count."""
    rng = np.random.default_rng(seed)
    start, count = 1_800_000_000 * 10**9, 0
    while True:
        count += 1
        stamp, t = start + count * 10**9 // HZ, count / HZ
        tool = np.array([0.5 + 0.1 * math.sin(0.3 * t), 0.1 * math.sin(0.2 * t), 0.2]) + rng.normal(0, 1e-5, 3)
        twist = [0.03 * math.cos(0.3 * t), 0.02 * math.cos(0.2 * t), 0.0, 0.0, 0.0, 0.0]
        joints = (0.3 * np.sin(0.2 * t + np.arange(7)) + rng.normal(0, 1e-5, 7)).tolist()
        made = {
            "twist_cmd": cdr.twist_stamped(stamp - 2_000_000, "panda_link0", twist),
            "gripper_state": cdr.float64(1.0),
            "joint_states": cdr.joint_state(stamp, JOINTS, joints, rng.normal(0, 1e-3, 7).tolist()),
            "object_pose": cdr.pose_stamped(stamp, "panda_link0", [0.7, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]),
            "obstacle_pose": cdr.pose_stamped(stamp, "panda_link0", [0.5, -0.165, 0.085, 0.0, 0.0, 0.0, 1.0]),
            "target_pose": cdr.pose_stamped(stamp, "panda_link0", [0.3, -0.3, 0.04, 0.0, 0.0, 0.0, 1.0]),
            "twist_executed": cdr.twist_stamped(stamp, "panda_link0", twist),
            "ee_twist": cdr.twist_stamped(stamp, "panda_link0", (np.array(twist) + rng.normal(0, 1e-4, 6)).tolist()),
            "ee_pose": cdr.pose_stamped(stamp, "panda_link0", [*tool.tolist(), 1.0, 0.0, 0.0, 0.0]),
        }
        for topic, data in made.items():
            yield Message(topic, data, stamp, count)


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6
