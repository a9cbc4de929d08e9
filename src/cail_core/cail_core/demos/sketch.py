"""A path as a few lines of text: 2 × 4 dots a character in braille, or plain ASCII where the terminal has no Unicode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.float64]

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of a dot in a braille character, by row and column."""


@dataclass(frozen=True)
class View:
    """Which part of the plane a sketch shows, with the same scale on both axes: x to the right, y up."""

    centre: tuple[float, float]
    metres_per_dot: float

    @classmethod
    def of(cls, paths: Sequence[Positions], width: int, height: int) -> View:
        """The view of `width` × `height` characters in which all of `paths` fit."""
        every = np.concatenate(paths)
        low, high = every.min(axis=0), every.max(axis=0)
        dots = np.maximum([2 * width - 3, 4 * height - 5], 1)
        scale = float(np.max((high - low) / dots))
        middle = (low + high) / 2
        return cls((float(middle[0]), float(middle[1])), scale if scale > 0 else 1.0)


def sketch(
    path: Positions, view: View, width: int, height: int, marks: Mapping[str, tuple[float, float]], *, unicode: bool = True
) -> list[str]:
    """`height` lines of `width` characters: the path, and over it each mark at its place."""

    def dot(points: Positions) -> NDArray[np.int64]:
        """Columns and rows of dots, from the upper left corner."""
        offset = (points - np.asarray(view.centre)) / view.metres_per_dot
        places = np.stack([width - 0.5 + offset[:, 0], 2 * height - 0.5 - offset[:, 1]], axis=1)
        return np.asarray(np.rint(places), dtype=np.int64)

    bits = np.zeros((height, width), dtype=np.int64)
    for one, other in zip(dot(path[:-1]), dot(path[1:]), strict=True):
        steps = int(np.abs(other - one).max()) + 1
        for x, y in np.rint(np.linspace(one, other, steps + 1)).astype(np.int64):
            if 0 <= x < 2 * width and 0 <= y < 4 * height:
                bits[y // 4, x // 2] |= _DOTS[y % 4][x % 2]
    cells = [[(chr(0x2800 + int(b)) if unicode else ".") if b else " " for b in row] for row in bits]
    for mark, place in marks.items():
        x, y = dot(np.asarray([place], dtype=np.float64))[0]
        if 0 <= x < 2 * width and 0 <= y < 4 * height:
            cells[y // 4][x // 2] = mark
    return ["".join(row) for row in cells]
