"""NumPy archives: `states, actions, rewards, dones, next_states`, transitions in order, trajectories contiguous.

An episode ends where `dones` is 1, where `next_states[i]` is not `states[i + 1]`, or after `--episode-length` steps.
`timeouts` (optional, as in D4RL) marks the ends that a time limit made. `dones` are ends that the task made.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from cail_core import durable
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.episode import Episode, end_flags
from cail_core.demos.features import ACTION, DONE, REWARD, STATE, TRUNCATED
from cail_core.demos.formats.source import (
    STANDARD,
    Source,
    as_scalars,
    as_vectors,
    from_passport,
    passport,
    plain_features,
    record,
)
from cail_core.errors import BadInput, listed

_NEEDED = ("states", "actions", "dones", "next_states")


def read(path: Path, episode_length: int | None = None) -> Source:
    """The archive's transitions, cut into episodes."""
    arrays = _load(path)
    missing = [name for name in _NEEDED if name not in arrays]
    if "cail" in arrays and episode_length is not None:
        raise BadInput(f"{path} was exported by cail and marks its episodes itself; leave --episode-length out")
    if missing:
        raise BadInput(f"{path}: expected the arrays states, actions, rewards, dones, next_states; misses {', '.join(missing)}")
    faults: list[str] = []
    n = len(arrays["states"]) if arrays["states"].ndim else 0
    if n == 0:
        raise BadInput(f"{path}: holds no transitions")

    def checked(name: str, scalar: bool = False) -> NDArray[Any]:
        try:
            return as_scalars(name, arrays[name], n) if scalar else as_vectors(name, arrays[name], n)
        except BadInput as fault:
            faults.append(str(fault))
            return np.zeros((n,) if scalar else (n, 1), np.float32)

    states, actions, successors = checked("states"), checked("actions"), checked("next_states")
    rewards = checked("rewards", scalar=True) if "rewards" in arrays else None
    dones = checked("dones", scalar=True)
    marked = checked("timeouts", scalar=True) if "timeouts" in arrays else None
    timeouts = None if marked is None else marked > 0
    if not faults and states.shape != successors.shape:
        faults.append(f"next_states: expected the shape of states {states.shape}, given {successors.shape}")
    for name, values in (
        ("states", states),
        ("actions", actions),
        ("next_states", successors),
        ("rewards", rewards),
        ("dones", dones),
        ("timeouts", marked),
    ):
        if values is not None and not np.isfinite(values).all():
            rows = np.unique(np.nonzero(~np.isfinite(values))[0])
            faults.append(f"{name}: {len(rows)} row(s) are not finite, the first is row {rows[0]}")
    if not faults and not np.isin(dones, (0, 1)).all():
        faults.append("dones: expected 0 or 1")
    if faults:
        raise BadInput(listed(str(path), faults))

    states, successors = (x.astype(np.result_type(states, successors), copy=False) for x in (states, successors))
    ends = _ends(states, successors, dones > 0, timeouts, episode_length)
    starts = np.concatenate([[0], ends[:-1] + 1])
    notes = _notes(states, successors, starts, ends, episode_length)
    if rewards is None:
        notes.append("no rewards in the file: ranking by return is not possible")
    facts = json.loads(str(arrays["cail"])) if "cail" in arrays else None

    def episodes() -> Iterator[Episode]:
        for i, (first, last) in enumerate(zip(starts, ends, strict=True)):
            part = slice(first, last + 1)
            if timeouts is not None:
                truncated = bool(timeouts[last]) or not dones[last]
            else:
                truncated = not dones[last] or last + 1 - first == episode_length
            frames = {STATE: states[part], ACTION: actions[part], **end_flags(last + 1 - first, truncated=truncated)}
            if rewards is not None:
                frames[REWARD] = rewards[part]
            if facts is None:
                yield Episode(frames, successors[last])
                continue
            own = facts["episodes"][i]
            frames.update({name: arrays[name][part] for name in facts["others"]})
            yield Episode(frames, successors[last], own["demonstrator"], own["outcome"], own["rank"] or None)

    if facts is not None:
        return from_passport(facts["passport"], episodes)
    return Source(plain_features(states, actions, rewards), episodes, notes=notes)


def write(dataset: DemoDataset, path: Path) -> None:
    """All transitions as one archive, with what the five arrays cannot say in `timeouts` and `cail`."""
    others = [name for name in dataset.features if name not in STANDARD]
    names = [STATE, ACTION, DONE, TRUNCATED, *others, *([REWARD] if REWARD in dataset.features else [])]
    found = dataset.columns(names)
    successors = np.empty_like(found[STATE])
    successors[:-1] = found[STATE][1:]
    for row in dataset.rows:
        successors[row.to_index - 1] = row.final_state
    facts = {"passport": passport(dataset), "others": others, "episodes": [record(e) for e in dataset.rows]}
    arrays = {
        "states": found[STATE],
        "actions": found[ACTION],
        "dones": found[DONE] & ~found[TRUNCATED],
        "timeouts": found[TRUNCATED],
        "next_states": successors,
        "cail": np.array(json.dumps(facts)),
        **{name: found[name] for name in others},
    }
    if REWARD in found:
        arrays["rewards"] = found[REWARD]
    with durable.new_file(path) as temporary, open(temporary, "wb") as handle:
        np.savez(handle, **arrays)


def _load(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files} if isinstance(archive, NpzFile) else {}
            if not all(isinstance(values, np.ndarray) for values in arrays.values()):
                raise ValueError("not all of its members are arrays")
            if not isinstance(archive, NpzFile):
                raise ValueError("a single array")
            return arrays
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error, KeyError, MemoryError, TypeError) as fault:
        raise BadInput(f"{path}: empty, cut short or not a NumPy archive ({str(fault).splitlines()[0]})") from None


def _ends(
    states: NDArray[Any],
    successors: NDArray[Any],
    dones: NDArray[np.bool_],
    timeouts: NDArray[np.bool_] | None,
    episode_length: int | None,
) -> NDArray[np.int64]:
    """The row of each episode's last transition."""
    if episode_length is not None:
        if episode_length < 1:
            raise BadInput(f"expected --episode-length of at least 1, given {episode_length}")
        if len(states) % episode_length:
            raise BadInput(f"expected a multiple of --episode-length {episode_length} transitions, given {len(states)}")
        inside = np.flatnonzero(dones)
        inside = inside[(inside + 1) % episode_length != 0]
        if len(inside):
            raise BadInput(f"expected episodes of {episode_length} steps, but an episode is done at row {inside[0]}")
        return np.arange(episode_length - 1, len(states), episode_length)
    end = dones.copy()
    if timeouts is not None:
        end |= timeouts
    end[:-1] |= (successors[:-1] != states[1:]).any(axis=1)
    end[-1] = True
    return np.flatnonzero(end)


def _notes(
    states: NDArray[Any], successors: NDArray[Any], starts: NDArray[np.int64], ends: NDArray[np.int64], episode_length: int | None
) -> list[str]:
    notes = []
    carried = int((states[starts[1:]] == successors[ends[:-1]]).all(axis=1).sum())
    if carried:
        notes.append(
            f"{carried} of {len(starts)} episodes begin in the last state of the one before: "
            "the recorder kept the old state after a reset, so their first state is not the true one"
        )
    if episode_length is not None:
        inner = np.setdiff1d(np.arange(len(states) - 1), ends)
        broken = int((successors[inner] != states[inner + 1]).any(axis=1).sum())
        if broken:
            notes.append(
                f"{broken} transitions inside episodes do not lead to the next state in the file; the next state is kept"
            )
    return notes
