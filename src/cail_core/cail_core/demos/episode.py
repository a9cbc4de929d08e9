"""One demonstration on its way to or from disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cail_core.demos.features import DONE, REWARD, STATE, TRUNCATED, Features

INTERRUPTED = "interrupted"
"""The arm's link or an input failed, which is nobody's doing who commanded."""
OUTCOMES = ("success", "failure", "dropped", "collided", "timeout", INTERRUPTED, "unknown")

LARGEST = float(np.finfo(np.float32).max)
"""Learners work in single precision."""


@dataclass
class Episode:
    """The frames of one demonstration by feature name, the state after its last action, and what is known of it.

    `next.done` is true on the last frame; `next.truncated` tells that a time limit, not the task, ended it.
    """

    frames: dict[str, NDArray[Any]]
    final_state: NDArray[Any]
    demonstrator: str = "unknown"
    outcome: str = "unknown"
    rank: int | None = None
    recording: dict[str, Any] | None = None
    """Where it was recorded: the bag's name, what was trimmed."""
    bad: NDArray[np.bool_] | None = None
    """Frames that a scripted demonstrator showed badly on purpose (`demos/truth.py`); never part of a dataset."""

    @property
    def length(self) -> int:
        return len(self.frames[STATE])

    @property
    def undiscounted_return(self) -> float | None:
        """The sum of the rewards, in double precision; None where none were recorded."""
        if REWARD not in self.frames:
            return None
        return float(np.sum(self.frames[REWARD], dtype=np.float64))

    @property
    def terminated(self) -> bool:
        """Whether the task itself ended the episode, so that nothing is to be expected after its last frame."""
        return bool(self.frames[DONE][-1]) and not bool(self.frames[TRUNCATED][-1])


def end_flags(length: int, *, truncated: bool) -> dict[str, NDArray[np.bool_]]:
    """`next.done` and `next.truncated` of an episode of `length` frames."""
    done = np.zeros(length, dtype=bool)
    done[-1] = True
    return {DONE: done, TRUNCATED: done & truncated}


def outcome_of(success: bool | None, truncated: bool) -> str:
    """The outcome where nobody wrote one down."""
    if success:
        return "success"
    if success is None:
        return "unknown"
    return "timeout" if truncated else "failure"


def faults_of(episode: Episode, features: Features) -> list[str]:
    """Everything that keeps an episode from being stored under `features`."""
    faults = []
    missing = [name for name in features if name not in episode.frames]
    unknown = [name for name in episode.frames if name not in features]
    if missing:
        faults.append(f"misses {', '.join(missing)}")
    if unknown:
        faults.append(f"has {', '.join(unknown)}, which the dataset does not hold")
    lengths = {name: len(values) for name, values in episode.frames.items()}
    if len(set(lengths.values())) > 1:
        faults.append(f"columns differ in length: {', '.join(f'{name} {n}' for name, n in lengths.items())}")
    if STATE in lengths and lengths[STATE] == 0:
        faults.append("has no frames")
    for name, feature in features.items():
        if name not in episode.frames:
            continue
        values = episode.frames[name]
        expected = () if feature.is_scalar else feature.shape
        if values.shape[1:] != expected and not (feature.is_scalar and values.shape[1:] == (1,)):
            faults.append(f"{name}: expected {feature.shape[0]} number(s) a frame, given the shape {values.shape[1:]}")
        elif values.dtype != np.dtype(feature.dtype):
            faults.append(f"{name}: expected {feature.dtype}, given {values.dtype}")
        elif values.dtype.kind == "f" and not np.isfinite(values).all():
            bad = np.unique(np.nonzero(~np.isfinite(values))[0])
            faults.append(f"{name}: {len(bad)} frame(s) are not finite, the first is frame {bad[0]}")
        elif values.dtype.kind == "f" and np.abs(values).max(initial=0) > LARGEST:
            faults.append(f"{name}: numbers beyond ±{LARGEST:.2g} do not fit single precision")
    state = features.get(STATE)
    if state is not None:
        if episode.final_state.shape != state.shape or episode.final_state.dtype != np.dtype(state.dtype):
            faults.append(
                f"final state: expected {state.shape[0]} × {state.dtype}, "
                f"given {episode.final_state.shape} × {episode.final_state.dtype}"
            )
        elif not np.isfinite(episode.final_state).all():
            faults.append("the final state is not finite")
    if not faults:
        done = episode.frames.get(DONE)
        if done is not None and (not done[-1] or done[:-1].any()):
            faults.append(f"{DONE}: expected true on the last frame and nowhere else")
        truncated = episode.frames.get(TRUNCATED)
        if truncated is not None and truncated[:-1].any():
            faults.append(f"{TRUNCATED}: expected false before the last frame")
    if episode.outcome not in OUTCOMES:
        faults.append(f"outcome: expected one of {', '.join(OUTCOMES)}, given '{episode.outcome}'")
    return faults
