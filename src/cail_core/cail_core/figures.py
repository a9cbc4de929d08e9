"""Pictures that a person would rather look at than read a table."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cail_core.demos.dataset import DemoDataset
from cail_core.durable import write_bytes
from cail_core.errors import BadInput
from cail_core.report.motion import Motion
from cail_core.tasks import TaskSpec

GOOD_TO_BAD = ("#007a59", "#2a8f55", "#5d9b42", "#97a027", "#c79a16", "#dc882d", "#d56437", "#c53f36", "#b2182b")
PICTURES = (".png", ".svg", ".pdf")


def demonstrations_figure(
    file: Path,
    dataset: DemoDataset,
    spec: TaskSpec,
    motions: list[Motion],
    confidence: NDArray[np.float32] | None,
    only: int | None = None,
) -> Path:
    """All demonstrations (or `only` one, the others faint) from above and from the side, green (good) to red (bad):
    by confidence where it is given, else by the order of the returns."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
    from matplotlib.patches import Circle

    if file.suffix.lower() not in PICTURES:
        raise BadInput(f"expected a picture's name that ends in {', '.join(PICTURES)}, given {file}")
    if spec.view is None or not motions:
        raise BadInput(f"the task '{spec.name}' says nothing of positions, so that there is nothing to draw")
    if confidence is None and dataset.returns is None:
        raise BadInput(f"{dataset.root} holds no returns to colour by; give --run RUN to colour by its confidence")
    view, colours = spec.view, LinearSegmentedColormap.from_list("trust", GOOD_TO_BAD[::-1])
    if confidence is not None:
        shade, norm = [confidence[row.from_index : row.to_index] for row in dataset.rows], TwoSlopeNorm(
            1.0, 0.0, max(1.2, float(np.quantile(confidence, 0.98))))
        quality = np.array([values.mean() for values in shade])
    else:
        quality = np.asarray(dataset.returns)
        place = np.argsort(np.argsort(quality, kind="stable"), kind="stable") / max(1, dataset.episodes - 1)
        shade, norm = [np.full(row.length, place[row.episode_index]) for row in dataset.rows], None
    sides = [((0, 1), "from above")] + ([((0, 2), "from the side")] if len(view.position) > 2 else [])
    figure, panels = pyplot.subplots(1, len(sides), figsize=(6.4 * len(sides), 6), layout="constrained", squeeze=False)
    for axes, ((a, b), where) in zip(panels[0], sides, strict=True):
        order = [int(i) for i in np.argsort(quality)]
        if only is not None:
            axes.add_collection(LineCollection([motion.path[:, [a, b]] for motion in motions], colors="#bbbbbb", linewidths=0.5))
            order = [only]
        pieces = [np.stack([motions[i].path[:-1, [a, b]], motions[i].path[1:, [a, b]]], axis=1) for i in order]
        lines = LineCollection(list(np.concatenate(pieces)), array=np.concatenate([shade[i] for i in order]), cmap=colours,
                               norm=norm, linewidths=1.0 if only is None else 2.5)
        if norm is None:
            lines.set_clim(0, 1)
        axes.add_collection(lines)
        for thing in view.things:
            centre = np.median([motion.things[thing.name] for motion in motions], axis=0)[[a, b]]
            colour = "#b2182b" if thing.keep_clear else "#0b5fa5"
            axes.add_patch(Circle(tuple(centre), max(thing.radius_m, 1e-3), fill=False, color=colour, linewidth=1.5, zorder=3))
            axes.annotate(thing.name, centre, textcoords="offset points", xytext=(6, 6), color=colour, weight="bold", zorder=4)
        axes.autoscale_view()
        axes.set(title=f"{view.moves} {where}", xlabel=f"{view.labels[a]}, m", ylabel=f"{view.labels[b]}, m", aspect="equal")
        axes.grid(alpha=0.25)
    bar = figure.colorbar(lines, ax=panels[0].tolist(), location="bottom", shrink=0.6, label=(
        "learned confidence of each step (1 is average)" if confidence is not None else "return, by order"))
    if confidence is None:
        marks = [0.0, 0.25, 0.5, 0.75, 1.0]
        bar.set_ticks(marks, labels=[f"{np.quantile(quality, mark):.3g}" for mark in marks])
    people = len({row.demonstrator for row in dataset.rows})
    figure.suptitle(f"{dataset.episodes} demonstrations of {dataset.task} by {people} demonstrators" if only is None else
                    f"episode {only} by {dataset.rows[only].demonstrator}")
    return saved(figure, file)


def saved(figure: Any, file: Path, dpi: int = 110) -> Path:
    """Put a picture on the disk, whole or not at all."""
    from matplotlib import pyplot

    image = io.BytesIO()
    figure.savefig(image, format=file.suffix[1:].lower(), dpi=dpi)
    pyplot.close(figure)
    write_bytes(file, image.getvalue())
    return file
