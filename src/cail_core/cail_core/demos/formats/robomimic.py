"""robomimic HDF5: `data/demo_N/{obs,next_obs}/<key>, actions, rewards, dones`, named subsets under `mask/`.

The low-dimensional observations stand side by side in the order of their keys. robomimic's multi-human files name the
operators in their masks (`better_operator_1`, `worse`, …): the smallest such mask becomes the episode's demonstrator.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cail_core.demos.dataset import DemoDataset
from cail_core.demos.episode import Episode
from cail_core.demos.features import REWARD, STATE
from cail_core.demos.formats import hdf5
from cail_core.demos.formats.source import STANDARD, Source, from_passport, passport, plain_features
from cail_core.errors import BadInput

_GYM = 2  # robomimic's EnvType for Gym environments


def read(path: Path) -> Source:
    with hdf5.opened(path) as file:
        if "data" not in file:
            raise BadInput(f"{path}: expected a robomimic file with the group 'data', given {', '.join(file) or 'an empty file'}")
        demos = hdf5.numbered(file["data"])
        if not demos:
            raise BadInput(f"{path}: holds no demonstrations")
        operators = _operators(file)
        ours = file["data"].attrs.get("cail")
        environment = json.loads(file["data"].attrs.get("env_args", "{}"))
        first, names = _episode(file["data"][demos[0]], demos[0])
        without_successor = "next_obs" not in file["data"][demos[0]]

    def episodes() -> Iterator[Episode]:
        with hdf5.opened(path) as file:
            for demo in demos:
                episode, _ = _episode(file["data"][demo], demo)
                if episode.demonstrator == "unknown":
                    episode.demonstrator = operators.get(demo, "unknown")
                yield episode

    if ours is not None:
        return from_passport(ours, episodes)
    notes = (
        ["no next_obs in the file: the last observation of each demonstration serves as its final state"]
        if without_successor
        else []
    )
    return Source(
        plain_features(first.frames[STATE], first.frames["action"], first.frames.get(REWARD), names),
        episodes,
        text=environment.get("lang") or environment.get("env_name"),
        robot_type=environment.get("env_name"),
        notes=notes,
    )


def write(dataset: DemoDataset, path: Path) -> None:
    others = [name for name in dataset.features if name not in STANDARD]
    with hdf5.created(path) as file:
        data = file.create_group("data")
        data.attrs["total"] = dataset.frames
        data.attrs["env_args"] = json.dumps({"env_name": dataset.task, "type": _GYM, "env_kwargs": {}})
        data.attrs["cail"] = passport(dataset)
        members: dict[str, list[str]] = {}
        for i, episode in enumerate(dataset.iterate()):
            group = data.create_group(f"demo_{i}")
            states = episode.frames[STATE]
            group["obs/state"] = states
            group["next_obs/state"] = np.concatenate([states[1:], episode.final_state[None]])
            done = np.zeros(episode.length, dtype=np.int64)
            done[-1] = episode.terminated
            group["dones"] = done
            group.attrs["num_samples"] = episode.length
            hdf5.put_episode(group, episode, others)
            members.setdefault(episode.demonstrator, []).append(f"demo_{i}")
        for demonstrator, demos in members.items():
            file[f"mask/{demonstrator.replace('/', '_')}"] = np.array(demos, dtype="S")


def _episode(group: Any, name: str) -> tuple[Episode, list[str] | None]:
    missing = [key for key in ("obs", "actions") if key not in group]
    if missing:
        raise BadInput(f"{name}: expected obs and actions, misses {', '.join(missing)}")
    states, names = hdf5.observation(group["obs"], f"{name}/obs")
    rows = len(states)
    if "next_obs" in group:
        successors, _ = hdf5.observation(group["next_obs"], f"{name}/next_obs")
        if successors.shape != states.shape:
            raise BadInput(f"{name}/next_obs: expected the shape of obs {states.shape}, given {successors.shape}")
        final = np.array(successors[-1:]).reshape(-1)
    else:
        states, final = hdf5.states_with_final(states)
    if len(states) == 0:
        raise BadInput(f"{name}: expected at least one transition")
    done = "dones" in group and hdf5.ended(group, "dones", name, rows) and "next_obs" in group
    return hdf5.episode(group, name, states, final, truncated=not done, rows=rows), names


def _operators(file: Any) -> dict[str, str]:
    """demo -> the smallest mask that names a group of people, not a training split."""
    found: dict[str, str] = {}
    masks = {
        name: [m.decode() for m in file["mask"][name][()]]
        for name in file.get("mask", {})
        if not any(word in name for word in ("train", "valid", "percent"))
    }
    for name, members in sorted(masks.items(), key=lambda item: -len(item[1])):
        found.update(dict.fromkeys(members, name))
    return found
