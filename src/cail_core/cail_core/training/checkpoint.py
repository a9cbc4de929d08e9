"""A nested state as one safetensors file: tensors as tensors, all else as JSON in its header. No pickle, atomic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from cail_core import durable
from cail_core.errors import BadInput

HEADER = "cail"


def write_checkpoint(path: Path, state: dict[str, Any], about: dict[str, Any]) -> None:
    """Replace `path` by `state`; `about` are JSON values that say whose state it is."""
    tensors: dict[str, Tensor] = {}
    tree = _flatten(state, "", tensors)
    header = {HEADER: json.dumps({"about": about, "tree": tree})}  # one entry: safetensors writes several in random order
    durable.write_bytes(path, save({name: value.contiguous() for name, value in tensors.items()}, header))


def read_about(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself; cheap."""
    with _opened(path) as file:
        about: dict[str, Any] = json.loads(file.metadata()[HEADER])["about"]
        return about


def read_checkpoint(path: Path) -> dict[str, Any]:
    with _opened(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        state: dict[str, Any] = _unflatten(json.loads(file.metadata()[HEADER])["tree"], tensors)
        return state


def _opened(path: Path) -> Any:
    try:
        file: Any = safe_open(path, framework="pt")
        if HEADER not in (file.metadata() or {}):
            raise BadInput(f"{path}: expected a checkpoint of `cail train`, found another safetensors file; choose another --out")
        return file
    except SafetensorError as fault:
        raise BadInput(f"{path}: not a readable checkpoint ({fault}); remove the run folder or choose another --out") from None


def _flatten(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        # Two entries may share memory (a frozen β, say), which safetensors refuses.
        tensors[name] = value.detach().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"items": [[key, _flatten(item, f"{name}/{key}", tensors)] for key, item in value.items()]}  # keys may be int
    if isinstance(value, (list, tuple)):
        return {"list": [_flatten(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]}
    return {"value": value}


def _unflatten(node: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    if "tensor" in node:
        return tensors[node["tensor"]]
    if "items" in node:
        return {key: _unflatten(item, tensors) for key, item in node["items"]}
    if "list" in node:
        return [_unflatten(item, tensors) for item in node["list"]]
    return node["value"]


def is_finite(state: Any) -> bool:
    """Whether no tensor in a nested state holds NaN or infinity."""
    if isinstance(state, Tensor):
        return not state.is_floating_point() or bool(torch.isfinite(state).all())
    if isinstance(state, dict):
        return all(is_finite(value) for value in state.values())
    if isinstance(state, (list, tuple)):
        return all(is_finite(value) for value in state)
    return True
