"""What a frame of a dataset holds: named vectors and scalars, as LeRobot's `features` and as an Arrow schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cail_core.errors import DatasetError

STATE, ACTION, REQUESTED = "observation.state", "action", "action.requested"
REWARD, DONE, TRUNCATED, SUCCESS, CONFIDENCE = "next.reward", "next.done", "next.truncated", "next.success", "confidence"

_ARROW = {"float32": pa.float32(), "float64": pa.float64(), "int64": pa.int64(), "int32": pa.int32(), "bool": pa.bool_()}


@dataclass(frozen=True)
class Feature:
    """One column: `shape` (1,) is a scalar per frame, (n,) a vector of n numbers."""

    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.dtype not in _ARROW:
            raise DatasetError(f"expected a feature of type {', '.join(_ARROW)}, given {self.dtype}")
        if len(self.shape) != 1 or self.shape[0] < 1:
            raise DatasetError(f"expected a feature that is a scalar or a vector, given the shape {self.shape}")

    @property
    def is_scalar(self) -> bool:
        return self.shape == (1,)

    def arrow_type(self) -> pa.DataType:
        value = _ARROW[self.dtype]
        return value if self.is_scalar else pa.list_(value, self.shape[0])

    def to_json(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": list(self.shape), "names": None if self.names is None else list(self.names)}

    def to_arrow(self, values: NDArray[Any]) -> pa.Array:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1), type=_ARROW[self.dtype])
        return flat if self.is_scalar else pa.FixedSizeListArray.from_arrays(flat, self.shape[0])

    def to_numpy(self, column: pa.ChunkedArray | pa.Array) -> NDArray[Any]:
        """The column as an array of shape (frames,) for a scalar and (frames, n) for a vector."""
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        if not chunks:
            return np.empty((0,) if self.is_scalar else (0, *self.shape), dtype=self.dtype)
        flat = [(c.flatten() if pa.types.is_nested(c.type) else c).to_numpy(zero_copy_only=False) for c in chunks]
        joined = flat[0] if len(flat) == 1 else np.concatenate(flat)
        return np.asarray(joined if self.is_scalar else joined.reshape(-1, self.shape[0]))


Features = Mapping[str, Feature]

INDEX_FEATURES: dict[str, Feature] = {
    "timestamp": Feature("float32", (1,)),
    "frame_index": Feature("int64", (1,)),
    "episode_index": Feature("int64", (1,)),
    "index": Feature("int64", (1,)),
    "task_index": Feature("int64", (1,)),
}
"""The columns that LeRobot v3 expects beside the recorded ones."""


def frame_features(
    observation_names: tuple[str, ...],
    action_names: tuple[str, ...],
    *,
    dtype: str = "float32",
    reward: bool = True,
    success: bool = True,
    requested: bool = False,
) -> dict[str, Feature]:
    """The features of a dataset of demonstrations, in the order in which they are stored."""
    made = {
        STATE: Feature(dtype, (len(observation_names),), observation_names),
        ACTION: Feature(dtype, (len(action_names),), action_names),
    }
    if requested:
        made[REQUESTED] = Feature(dtype, (len(action_names),), action_names)
    if reward:
        made[REWARD] = Feature(dtype, (1,))
    made[DONE] = Feature("bool", (1,))
    made[TRUNCATED] = Feature("bool", (1,))
    if success:
        made[SUCCESS] = Feature("bool", (1,))
    return made


def features_from_json(described: Any) -> dict[str, Feature]:
    """The recorded features of an `info.json`, without the index columns."""
    if not isinstance(described, dict):
        raise DatasetError(f"expected 'features' to be a mapping, given {described!r}")
    made = {}
    for name, entry in described.items():
        if name in INDEX_FEATURES:
            continue
        try:
            names = entry.get("names")
            if isinstance(names, dict):  # older datasets group the names: {"motors": [...]}
                names = [n for group in names.values() for n in group]
            made[name] = Feature(entry["dtype"], tuple(entry["shape"]), None if names is None else tuple(map(str, names)))
        except (KeyError, TypeError, AttributeError):
            raise DatasetError(f"feature '{name}': expected dtype, shape and names, given {entry!r}") from None
    return made


def features_to_json(features: Features) -> dict[str, Any]:
    return {name: feature.to_json() for name, feature in {**features, **INDEX_FEATURES}.items()}


def data_schema(features: Features) -> pa.Schema:
    """The Arrow schema of a data file, with the `huggingface` metadata that the datasets library reads."""
    every = {**features, **INDEX_FEATURES}

    def described(feature: Feature) -> dict[str, Any]:
        value = {"dtype": feature.dtype, "_type": "Value"}
        return value if feature.is_scalar else {"feature": value, "length": feature.shape[0], "_type": "List"}

    hub = {"info": {"features": {name: described(feature) for name, feature in every.items()}}}
    return pa.schema(
        [pa.field(name, feature.arrow_type()) for name, feature in every.items()], metadata={"huggingface": json.dumps(hub)}
    )


def differences(one: Features, other: Features) -> list[str]:
    """How two datasets' features differ, in words; empty where they agree."""
    a, b = features_to_json(one), features_to_json(other)
    found = [f"{name}: only in the first" for name in a if name not in b]
    found += [f"{name}: only in the second" for name in b if name not in a]
    return found + [f"{name}: {a[name]} against {b[name]}" for name in a if name in b and a[name] != b[name]]
