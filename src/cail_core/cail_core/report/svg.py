"""The few shapes that the report's plots are made of. Colours and fonts come from the page's CSS and follow its theme."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
from numpy.typing import NDArray

WIDTH = 360.0
"""Plots are drawn for the width of a phone, and stand side by side on a larger screen."""


def number(value: float, digits: int = 3) -> str:
    """A number as a person writes it: 3 significant digits, a real minus, no exponent for everyday sizes."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if not -4 <= size < 7:
        return f"{value:.{digits - 1}e}".replace("-", "−")
    text = f"{value:,.{max(0, digits - 1 - size)}f}"
    return ("0" if not any(c in "123456789" for c in text) else text).replace("-", "−").replace(",", "\u202f")


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers in low … high."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    step = min((m * 10 ** math.floor(math.log10(raw)) for m in (1, 2, 2.5, 5, 10)), key=lambda s: abs(math.log(s / raw)))
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_texts(values: Sequence[float]) -> list[str]:
    """Tick labels that all have the decimals which their spacing needs."""
    step = values[1] - values[0] if len(values) > 1 else max(abs(values[0]), 1.0)
    if max(map(abs, values)) >= 1e5:
        return [f"{v / 1e6:g}M" if v else "0" for v in values] if max(map(abs, values)) >= 1e6 else [
            f"{v / 1e3:g}k" if v else "0" for v in values]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if decimals < 6 and abs(round(step, decimals) - step) > 1e-9 * step:
        decimals += 1
    return [f"{v + 0.0:.{decimals}f}".replace("-", "−") if v else "0" for v in values]


@dataclass
class Scale:
    """Maps low … high of the data onto a … b of the drawing."""

    low: float
    high: float
    a: float
    b: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low or 1.0
        return self.a + (value - self.low) / span * (self.b - self.a)

    def many(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        span = self.high - self.low or 1.0
        return self.a + (np.asarray(values, dtype=np.float64) - self.low) / span * (self.b - self.a)


@dataclass
class Drawing:
    """An inline SVG with a text for those who cannot see it."""

    height: float
    label: str
    width: float = WIDTH
    parts: list[str] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, cls: str) -> None:
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{cls}"/>')

    def text(self, x: float, y: float, text: str, cls: str = "", anchor: str = "start") -> None:
        where = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{where}{_cls(cls)}>{escape(text)}</text>')

    def circle(self, x: float, y: float, r: float, cls: str, tip: str = "") -> None:
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:g}"{_cls(cls)}{_tip(tip)}/>')

    def path(self, points: NDArray[np.floating], cls: str, tip: str = "") -> None:
        if len(points):
            self.parts.append(f'<path d="{d(points)}"{_cls(cls)}{_tip(tip)}/>')

    def svg(self) -> str:
        return (f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(self.label, quote=True)}">'
                + "".join(self.parts) + "</svg>")


def d(points: NDArray[np.floating]) -> str:
    """Path data, one decimal, relative after the first point: half the size of absolute coordinates."""
    rounded = np.round(np.asarray(points, dtype=np.float64) * 10).astype(int)
    steps = np.diff(rounded, axis=0)
    text = f"M{_tenth(rounded[0, 0])},{_tenth(rounded[0, 1])}"
    return text + ("l" + " ".join(f"{_tenth(x)},{_tenth(y)}" for x, y in steps) if len(steps) else "")


def _tenth(value: int) -> str:
    return f"{value / 10:g}"


def _cls(cls: str) -> str:
    return f' class="{cls}"' if cls else ""


def _tip(tip: str) -> str:
    return f' data-tip="{escape(tip, quote=True)}"' if tip else ""


def frame(drawing: Drawing, x: Scale, y: Scale, xlabel: str, ylabel: str) -> None:
    """Faint grid lines, tick labels, and the axes' names with their units."""
    for value, text in _labelled(y):
        drawing.line(x.a, y(value), x.b, y(value), "grid")
        drawing.text(x.a - 6, y(value) + 3.5, text, "tick", "end")
    for value, text in _labelled(x):
        drawing.text(x(value), y.a + 15, text, "tick", "middle")
    drawing.line(x.a, y.a, x.b, y.a, "axis")
    drawing.text((x.a + x.b) / 2, y.a + 31, xlabel, "name", "middle")
    drawing.text(4, y.b - 9, ylabel, "name")


def _labelled(scale: Scale) -> list[tuple[float, str]]:
    values = ticks(min(scale.low, scale.high), max(scale.low, scale.high))
    return list(zip(values, tick_texts(values), strict=True))
