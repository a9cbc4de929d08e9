"""Pictures that a person would rather look at than read a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cail_core.demos.dataset import DemoDataset
from cail_core.demos.features import STATE
from cail_core.durable import write_bytes


def demo_figure(
    file: Path,
    dataset: DemoDataset,
    confidence: NDArray[np.float32],
    trust: Mapping[str, float],
    returns: Mapping[str, float],
) -> Path:
    """Point-mass demonstrations as given and as trusted, confidence by demonstrator, and what came of it."""
    import io

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.collections import LineCollection

    figure, (given, trusted, people, outcome) = pyplot.subplots(1, 4, figsize=(15, 3.9), layout="constrained")
    paths = [-np.concatenate([e.frames[STATE][:, :2], e.final_state[None, :2]]) for e in dataset.iterate()]
    quality = np.array([row.undiscounted_return for row in dataset.rows])
    order = np.argsort(quality)
    lines = LineCollection([paths[i] for i in order], array=quality[order], cmap="RdYlGn", linewidths=0.7, alpha=0.8)
    given.add_collection(lines)
    figure.colorbar(lines, ax=given, label="return (not shown to the learner)", location="bottom", shrink=0.8)

    pieces = np.concatenate([np.stack([path[:-1], path[1:]], axis=1) for path in paths])
    by_trust = np.argsort(confidence)
    lines = LineCollection(list(pieces[by_trust]), array=confidence[by_trust], cmap="viridis", linewidths=0.8)
    lines.set_clim(0, float(np.quantile(confidence, 0.98)))
    trusted.add_collection(lines)
    figure.colorbar(lines, ax=trusted, label="learned confidence of each step", location="bottom", shrink=0.8)
    for axes, title in ((given, f"{dataset.episodes} demonstrations, goal at +"), (trusted, "what was trusted")):
        axes.plot(0, 0, "k+", markersize=12)
        axes.set(title=title, aspect="equal", xlim=(-2.2, 2.2), ylim=(-2.2, 2.2), xlabel="m")

    _bars(people, trust, "mean confidence by demonstrator", "#3d6fb4")
    _bars(outcome, returns, "return of the policies", "#2a9d6f")
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=90)
    pyplot.close(figure)
    write_bytes(file, image.getvalue())
    return file


def _bars(axes: Any, values: Mapping[str, float], title: str, colour: str) -> None:
    places = np.arange(len(values))[::-1]
    axes.barh(places, list(values.values()), color=colour)
    axes.set_yticks(places, [name.replace(", ", ",\n") for name in values])
    axes.margins(x=0.15)
    axes.set_title(title)
    for place, value in zip(places, values.values(), strict=True):
        axes.annotate(
            f"{value:.2f}",
            (value, place),
            ha="left" if value >= 0 else "right",
            va="center",
            xytext=(3 if value >= 0 else -3, 0),
            textcoords="offset points",
            fontsize=8,
        )
