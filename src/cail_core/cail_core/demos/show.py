"""`cail demos show` and `cail demos plot`: demonstrations as a person can look at them, in a terminal or as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from cail_core.demos.dataset import DemoDataset
from cail_core.demos.features import REWARD, STATE
from cail_core.demos.layout import read_parquet
from cail_core.demos.sketch import View, sketch
from cail_core.errors import BadInput, CailError
from cail_core.progress import console, table
from cail_core.report.motion import Motion, motion_of
from cail_core.tasks import TaskSpec, get_task

Confidence = NDArray[np.float32]
BLOCKS = "▁▂▃▄▅▆▇█"
SHADES = ("red", "dark_orange", "yellow", "green_yellow", "green")


def confidence_of(run: Path, dataset: DemoDataset) -> Confidence:
    """What a run learned about the dataset's frames."""
    path = run / "confidence.parquet"
    if not path.is_file():
        raise BadInput(f"expected --run to be a run folder with {path.name}, given {run}")
    values: Confidence = read_parquet(path, ["confidence"]).column("confidence").to_numpy().astype(np.float32)
    if len(values) != dataset.frames:
        raise BadInput(f"expected a run trained on the {dataset.frames} frames of {dataset.root}, given {run} with {len(values)}")
    return values


def spec_of(dataset: DemoDataset) -> TaskSpec | None:
    """The task, where it is installed here and its observations are those of the dataset."""
    try:
        spec = get_task(dataset.task).spec
    except CailError:
        return None
    return spec if spec.observation_dim == dataset.features[STATE].shape[0] else None


def motions(dataset: DemoDataset, spec: TaskSpec) -> list[Motion]:
    """How each episode moved; empty where the task says nothing of positions."""
    states = dataset.column(STATE).reshape(dataset.frames, -1)
    found = (motion_of(spec, np.concatenate([states[row.from_index : row.to_index], row.final_state[None]]))
             for row in dataset.rows)
    return [motion for motion in found if motion is not None]


def show(dataset: DemoDataset, index: int, confidence: Confidence | None) -> None:
    """One episode in the terminal."""
    episode, row, spec = dataset.episode(index), dataset.rows[index], spec_of(dataset)
    motion = None if spec is None else motion_of(
        spec, np.concatenate([episode.frames[STATE].reshape(episode.length, -1), episode.final_state[None]]))
    fps = int(dataset.info["fps"])
    facts = {"demonstrator": row.demonstrator, "outcome": row.outcome, "frames": str(row.length),
             "time": f"{row.length / fps:.1f} s"}
    if row.undiscounted_return is not None:
        facts["return"] = f"{row.undiscounted_return:.2f}"
    facts["rank"] = "–" if row.rank is None else str(row.rank)
    moved: dict[str, str] = {}
    if motion is not None:
        moved["path"] = f"{np.linalg.norm(np.diff(motion.path, axis=0), axis=1).sum():.2f} m"
        moved["top speed"] = f"{motion.top_speed:.2f} m/s"
        if motion.closest is not None:
            moved["closest gap"] = f"{motion.closest:.3f} m"
    mine = None if confidence is None else confidence[row.from_index : row.to_index]
    if mine is not None:
        moved["confidence"] = f"{mine.mean():.2f}"
    say = console().print
    say(f"{dataset.root}, episode {index}")
    for said in (facts, moved):
        if said:
            shown = table(*said)
            shown.add_row(*said.values())
            say(shown)
    if motion is not None and spec is not None and spec.view is not None:
        _sketch(motion, spec, (0, 1), "from above")
        if motion.path.shape[1] > 2:
            _sketch(motion, spec, (0, 2), "from the side")
    else:
        say(f"no sketch: the task '{dataset.task}' is not installed here or says nothing of positions")
    if REWARD in episode.frames:
        reward = episode.frames[REWARD]
        blocks, _ = strip(reward, float(reward.min()), float(reward.max()))
        say(f"reward      {blocks}  {reward.min():.3g} … {reward.max():.3g}")
    if mine is not None and confidence is not None:
        high = max(1.2, float(np.quantile(confidence, 0.98)))
        blocks, means = strip(mine, 0.0, high)
        line = Text("confidence  ")
        for block, mean in zip(blocks, means, strict=True):
            line.append(block, _shade(float(mean), high))
        say(line.append(f"  0 … {high:.2f}"))


def strip(values: NDArray[np.floating], low: float, high: float, width: int = 48) -> tuple[str, NDArray[np.float64]]:
    """Numbers over time as blocks of height low … high, at most `width` of them, and the mean that each stands for."""
    means = np.array([part.mean() for part in np.array_split(values, min(width, len(values)))], dtype=np.float64)
    level = np.clip(np.round((means - low) / max(high - low, 1e-9) * (len(BLOCKS) - 1)), 0, len(BLOCKS) - 1).astype(int)
    return "".join(BLOCKS[i] for i in level), means


def _shade(confidence: float, high: float) -> str:
    """0 red, 1 (average) yellow, `high` green."""
    place = confidence / 2 if confidence < 1 else 0.5 + (confidence - 1) / (high - 1) / 2
    return SHADES[min(len(SHADES) - 1, int(place * len(SHADES)))]


def _sketch(motion: Motion, spec: TaskSpec, axes: tuple[int, int], where: str) -> None:
    view = spec.view
    if view is None:
        return
    path = motion.path[:, list(axes)]
    places = {("#" if thing.keep_clear else "+"): motion.things[thing.name][list(axes)] for thing in view.things}
    places |= {"○": path[0], "●": path[-1]}
    width, height = 60, 14
    shown = View.of([path, *(place[None] for place in places.values())], width, height)
    for line in sketch(path, shown, width, height, {mark: (float(x), float(y)) for mark, (x, y) in places.items()}):
        if line.strip():
            console().print(f"  {line.rstrip()}")
    legend = ", ".join(f"{'#' if thing.keep_clear else '+'} {thing.name}" for thing in view.things)
    size = np.ptp(path, axis=0)
    console().print(f"  {view.moves} {where}: ○ start, ● end{', ' if legend else ''}{legend}; "
                    f"path within {size[0]:.2f} × {size[1]:.2f} m\n")
