"""What a policy does in one episode, to look at: a film where the task can draw itself, otherwise curves over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cail_core.errors import BadInput, CailError, MissingDependency, how_to_add
from cail_core.tasks.base import Array, Task

FORMATS = (".gif", ".mp4")
BatchPolicy = Callable[[Array], Array]
Picture = NDArray[np.uint8]


class CannotRender(CailError):
    """There is nothing to draw with on this machine."""


@runtime_checkable
class Rendering(Protocol):
    """A task that can draw itself."""

    def render_episode(self, policy: BatchPolicy, seed: int) -> Iterable[Picture]:
        """One episode of `policy` as pictures [height, width, 3], one for each step; `CannotRender` where nothing can draw."""
        ...


def check_format(file: Path) -> None:
    if file.suffix.lower() not in FORMATS:
        raise BadInput(f"expected a video file that ends in {' or '.join(FORMATS)}, given {file}")


def film(task: Task, policy: BatchPolicy, seed: int, file: Path) -> Path:
    """Write `file` (.gif or .mp4), or, where the task cannot be drawn, the curves of the episode as a .png beside it.

    Gives the file that was made.
    """
    check_format(file)
    try:
        if not isinstance(task, Rendering):
            raise CannotRender(f"the task '{task.spec.name}' has no pictures of itself")
        _write(file, list(task.render_episode(policy, seed)), task.spec.fps)
        return file
    except CannotRender as fault:
        print(f"no video: {fault}; the episode's curves instead")
        return curves(task, policy, seed, file.with_suffix(".png"))


def _write(file: Path, pictures: list[Picture], fps: int) -> None:
    try:
        import imageio.v3 as imageio
    except ImportError as fault:
        raise MissingDependency(f"writing a video needs imageio ({fault}); {how_to_add('mujoco')}") from None
    options: dict[str, Any] = {"duration": 1000 / fps, "loop": 0} if file.suffix.lower() == ".gif" else {"fps": fps}
    try:
        imageio.imwrite(file, pictures, **options)
    except ImportError as fault:
        reason = str(fault).splitlines()[0]
        raise MissingDependency(f"{file}: imageio cannot write this kind of file ({reason}); pip install imageio-ffmpeg, "
                                "or ask for a .gif") from None
    except OSError as fault:
        raise BadInput(f"{file}: cannot write the video: {fault}") from None


def curves(task: Task, policy: BatchPolicy, seed: int, file: Path) -> Path:
    """Observations and actions of one episode over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    states, actions = play(task, policy, seed)
    figure, axes = pyplot.subplots(2, 1, figsize=(9, 6), sharex=True, layout="constrained")
    seconds = np.arange(len(states)) / task.spec.fps
    for axis, values, names, what in ((axes[0], states, task.spec.observation_names, "observation"),
                                      (axes[1], actions, task.spec.action_names, "action")):
        for column, name in zip(values.T, names, strict=True):
            axis.plot(seconds, column, label=name, linewidth=1)
        axis.set_ylabel(what)
        axis.legend(fontsize="x-small", ncols=2, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes[1].set_xlabel("s")
    try:
        figure.savefig(file, dpi=120)
    except (OSError, ValueError) as fault:
        raise BadInput(f"{file}: cannot write the curves: {fault}") from None
    finally:
        pyplot.close(figure)
    return file


def play(task: Task, policy: BatchPolicy, seed: int) -> tuple[Array, Array]:
    """States and actions of one episode."""
    env = task.make_env(1)
    try:
        observation = env.reset(seed)
        states, actions = [], []
        while True:
            action = policy(observation)
            states.append(observation[0].copy())
            actions.append(np.array(action[0], dtype=np.float32))
            step = env.step(action)
            observation = step.observation
            if step.terminated[0] or step.truncated[0]:
                return np.stack(states), np.stack(actions)
    finally:
        env.close()
