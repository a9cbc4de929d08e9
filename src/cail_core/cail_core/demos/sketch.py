"""Paths in a terminal: dots of braille seen from above or from the side, and strips of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BLOCKS = "▁▂▃▄▅▆▇█"
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille cell, by row and column


def braille(path: Floats, marks: Mapping[str, Floats], columns: int = 48, rows: int = 12) -> list[str]:
    """A path [n, 2] to scale, y upwards; `marks` are characters put at places of the same plane."""
    every = np.concatenate([path, *(place[None] for place in marks.values())]) if marks else path
    low, span = every.min(axis=0), np.maximum(np.ptp(every, axis=0), 1e-9)
    scale = min((2 * columns - 1) / span[0], (4 * rows - 1) / span[1])
    height = max(1, int(np.ceil((span[1] * scale + 1) / 4)))
    width = max(1, int(np.ceil((span[0] * scale + 1) / 2)))
    cells = np.zeros((height, width), dtype=np.int64)

    def dot(place: Floats) -> tuple[int, int]:
        x, y = np.round((place - low) * scale).astype(int)
        return min(int(x), 2 * width - 1), max(0, 4 * height - 1 - int(y))

    for a, b in pairwise(path):
        steps = max(1, int(np.ceil(np.abs(b - a).max() * scale)))
        for share in np.linspace(0, 1, steps + 1):
            x, y = dot(a + share * (b - a))
            cells[y // 4, x // 2] |= _DOTS[y % 4][x % 2]
    lines = [[chr(0x2800 + cell) for cell in line] for line in cells]
    for mark, place in marks.items():
        x, y = dot(place)
        lines[y // 4][x // 2] = mark
    return ["".join(line) for line in lines]


def strip(values: NDArray[np.floating], low: float, high: float, width: int = 48) -> tuple[str, Floats]:
    """Numbers over time as blocks of height low … high, at most `width` of them, and the mean that each stands for."""
    means = np.array([part.mean() for part in np.array_split(values, min(width, len(values)))], dtype=np.float64)
    level = np.clip(np.round((means - low) / max(high - low, 1e-9) * (len(BLOCKS) - 1)), 0, len(BLOCKS) - 1).astype(int)
    return "".join(BLOCKS[i] for i in level), means
