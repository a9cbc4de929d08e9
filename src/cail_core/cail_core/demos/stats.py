"""Statistics of features in LeRobot's form: per episode, and merged over episodes without reading the frames again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
NAMES = ("min", "max", "mean", "std", "count", *QUANTILES)

FeatureStats = dict[str, NDArray[np.float64]]


def episode_stats(values: NDArray[Any]) -> FeatureStats:
    """min, max, mean, std, count and quantiles of one feature over an episode's frames, one number per dimension."""
    x = values.astype(np.float64).reshape(len(values), -1)
    ordered = np.sort(x, axis=0)
    made: FeatureStats = {
        "min": ordered[0].copy(),  # a view would keep all frames in memory
        "max": ordered[-1].copy(),
        "mean": x.mean(axis=0),
        "std": x.std(axis=0),
        "count": np.array([len(x)], dtype=np.float64),
    }
    for name, q in QUANTILES.items():  # linear interpolation between the sorted values, as np.quantile does
        place = q * (len(x) - 1)
        below, above = int(np.floor(place)), int(np.ceil(place))
        made[name] = ordered[below] + (place - below) * (ordered[above] - ordered[below])
    return made


def merge_stats(parts: Sequence[FeatureStats]) -> FeatureStats:
    """The statistics over several episodes: exact, but for the quantiles, which are means weighted by length."""
    count = np.array([part["count"][0] for part in parts])
    share = (count / count.sum())[:, None]
    mean = np.stack([part["mean"] for part in parts])
    total = (mean * share).sum(axis=0)
    variance = ((np.stack([part["std"] for part in parts]) ** 2 + (mean - total) ** 2) * share).sum(axis=0)
    merged: FeatureStats = {
        "min": np.min([part["min"] for part in parts], axis=0),
        "max": np.max([part["max"] for part in parts], axis=0),
        "mean": total,
        "std": np.sqrt(variance),
        "count": np.array([count.sum()]),
    }
    for name in QUANTILES:
        merged[name] = (np.stack([part[name] for part in parts]) * share).sum(axis=0)
    return merged


def stats_to_json(stats: Mapping[str, FeatureStats]) -> dict[str, dict[str, list[float]]]:
    return {
        feature: {
            name: [int(v) for v in values] if name == "count" else [float(v) for v in values] for name, values in table.items()
        }
        for feature, table in stats.items()
    }


def stats_from_json(described: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, FeatureStats]:
    return {feature: {name: np.asarray(table[name], dtype=np.float64) for name in NAMES} for feature, table in described.items()}
