"""The four functions of the Python interface; the `cail` command does the same with the same parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cail_core.demos.dataset import DemoDataset
from cail_core.evaluation import Evaluation
from cail_core.evaluation import evaluate as play
from cail_core.policy import PolicyRunner, load_policy
from cail_core.tasks import Task, get_task
from cail_core.tasks.base import Array
from cail_core.tasks.from_dataset import task_of

__all__ = ["evaluate", "load_demos", "load_policy", "train"]


def load_demos(folder: Path | str) -> DemoDataset:
    """Demonstrations that `cail demos collect`, `cail demos import` or `cail record` made."""
    return DemoDataset(folder)


def train(demos: DemoDataset | Path | str, out: Path | str, *, method: str = "cail-bc", task: Task | str | None = None,
          seed: int = 0, steps: int | None = None) -> Path:
    """Train `method` and fill the run folder `out`, which it gives back; a run that is there already goes on.

    `task` is an installed one, `gym:[MODULE:]ID` or an object; without it what the demonstrations say. Without an environment
    the methods that learn from recordings alone can be trained.
    """
    import torch

    from cail_core.algorithms.method import method_config
    from cail_core.training import train as fill

    dataset = demos if isinstance(demos, DemoDataset) else load_demos(demos)
    chosen = task_of(dataset) if task is None else get_task(task) if isinstance(task, str) else task
    torch.set_num_threads(1)  # the networks are small: more threads cost more than they bring, and change the last bits
    return fill(chosen, dataset.demonstrations(), method, method_config(method, chosen.spec.name), seed=seed, out=Path(out),
                steps=steps, demos_name=dataset.root.name, demos_folder=dataset.root)


def evaluate(policy: PolicyRunner | Path | str | Callable[[Array], Array], task: Task | str | None = None, *, episodes: int = 100,
             seed: int = 0) -> Evaluation:
    """Let a policy play fresh episodes: a policy folder, a loaded one (whose card names its task), or a function from a batch of
    observations to a batch of actions in [-1, 1] with the task beside it."""
    player = load_policy(Path(policy)) if isinstance(policy, (str, Path)) else policy
    if task is None:
        if not isinstance(player, PolicyRunner):
            raise TypeError("a function does not say what it is for: give the task too")
        task = player.card.task
    chosen = get_task(task) if isinstance(task, str) else task
    if isinstance(player, PolicyRunner):
        player.check(chosen.spec)
    return play(chosen, player, episodes, seed)
