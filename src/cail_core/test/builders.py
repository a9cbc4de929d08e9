"""Builds small datasets for the tests and compares them bit for bit."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from cail_core.demos.dataset import DemoDataset
from cail_core.demos.episode import Episode, end_flags
from cail_core.demos.features import ACTION, REQUESTED, REWARD, STATE, SUCCESS, Features, frame_features
from cail_core.demos.writer import DemoWriter

PEOPLE = ("anna", "ben", "céline")


def fast_folder() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder in memory where there is one: many small durable writes wait long on a disk."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**28
    return tempfile.TemporaryDirectory(dir=memory if roomy else None)


def features(dtype: str = "float32", **options: bool) -> Features:
    return frame_features(("x", "y", "z"), ("vx", "vy"), dtype=dtype, **options)


def episode(length: int, seed: int, like: Features, *, truncated: bool = False, rank: int | None = None) -> Episode:
    rng = np.random.default_rng(seed)
    dtype = like[STATE].dtype
    frames = {
        STATE: rng.normal(size=(length, 3)).astype(dtype),
        ACTION: rng.uniform(-1, 1, (length, 2)).astype(dtype),
        **end_flags(length, truncated=truncated),
    }
    if REQUESTED in like:
        frames[REQUESTED] = rng.uniform(-1, 1, (length, 2)).astype(dtype)
    if REWARD in like:
        frames[REWARD] = rng.normal(size=length).astype(dtype)
    if SUCCESS in like:
        frames[SUCCESS] = rng.uniform(size=length) < 0.3
    return Episode(frames, rng.normal(size=3).astype(dtype), PEOPLE[seed % 3], "timeout" if truncated else "success", rank)


def write(root: Path, episodes: list[Episode], like: Features) -> DemoDataset:
    with DemoWriter.create(root, task="pointmass", text="Reach the goal.", robot_type="arm", fps=50, features=like) as writer:
        for one in episodes:
            writer.save_episode(one)
    return DemoDataset(root)


def same_episode(a: Episode, b: Episode) -> None:
    assert set(a.frames) == set(b.frames)
    for name, values in a.frames.items():
        assert values.dtype == b.frames[name].dtype, name
        assert values.tobytes() == b.frames[name].tobytes(), name
    assert a.final_state.tobytes() == b.final_state.tobytes()
    assert (a.demonstrator, a.outcome, a.rank) == (b.demonstrator, b.outcome, b.rank)


def same_dataset(a: DemoDataset, b: DemoDataset) -> None:
    assert a.episodes == b.episodes
    assert (a.task, a.text, a.info["robot_type"], a.info["fps"]) == (b.task, b.text, b.info["robot_type"], b.info["fps"])
    assert a.features == b.features
    for one, other in zip(a.iterate(), b.iterate(), strict=True):
        same_episode(one, other)
