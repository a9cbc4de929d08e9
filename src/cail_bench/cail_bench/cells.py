"""One cell of a table: one method on one task's demonstrations with one seed, trained and evaluated once, and kept.

A cell is a folder; its training is a run folder inside, so a cell that was cut off goes on after its last checkpoint, on any
machine that sees the folder. When it is done its row stands in `row.json`, and it is never run again.
"""

from __future__ import annotations

import csv
import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cail_bench.methods import spearman
from cail_bench.pair_measures import measured
from cail_bench.theory_check import descend
from cail_bench.told import CLONE, TOLD, told, told_config
from cail_core import __version__, durable
from cail_core.algorithms.eq7.confidence import segment_mean
from cail_core.algorithms.method import method_config
from cail_core.algorithms.settings import MethodConfig, TrustConfig
from cail_core.algorithms.trainers.base import make_learner
from cail_core.config import to_dict
from cail_core.demos import truth
from cail_core.demos.collect import Mix, collect
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.demonstrations import Demonstrations
from cail_core.errors import BadInput, CailError
from cail_core.evaluation import evaluate
from cail_core.policy import load_policy
from cail_core.ranking.diverse import unalike
from cail_core.ranking.ranks import order_by_return, rank_by_return, share
from cail_core.tasks.base import Task, get_task
from cail_core.training import TrainingDiverged, train
from cail_core.training.checkpoint import read_checkpoint
from cail_core.training.run import CHECKPOINT, METRICS, demonstrator_means

Row = dict[str, Any]
ORACLE, EQUATION_7 = "oracle", "eq-7"
UNTRAINED = (ORACLE, EQUATION_7)
"""Rows of a table that are no method of `cail train`: the best demonstrator, and Eq. 7 without a policy (`theory_check.py`)."""
ROW, RUN = "row.json", "run"
DONE, DIVERGED, FAILED = "done", "diverged", "failed"


@dataclass(frozen=True)
class Cell:
    """All that decides a cell's outcome. `at` says where it stands in its table, for people."""

    task: str
    mix: dict[str, float]
    """Who demonstrates, and which share of the episodes."""
    method: str
    seed: int
    steps: int
    at: str = ""
    episodes: int = 200
    ranked: float = 0.05
    choose: str = "spread"
    """Which demonstrations are ranked: spread over all returns, or unalike by what is seen in them (`demos/choosing.py`)."""
    evaluation_episodes: int = 100
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the installed ones: {"beta.alpha": 0.1}; for Eq. 7 without a policy its loss: {"loss": "rk"}."""

    @property
    def key(self) -> str:
        """The folder's name: readable, and different for different cells; the place in a table does not count."""
        settings = None if self.method in UNTRAINED else _settings(self.method, self.task, json.dumps(self.changes))
        facts = {**asdict(self), "at": "", "version": __version__, "settings": settings}
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:10]
        return f"{self.task}-{self.method}-{self.seed}-{digest}"

    @property
    def demos_key(self) -> str:
        facts = [self.task, self.mix, self.seed, self.episodes, __version__]
        return f"{self.task}-{self.seed}-{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:10]}"


def config_of(cell: Cell) -> MethodConfig:
    """The method's installed settings with the cell's changes."""
    return _config(cell.method, cell.task, cell.changes)


def _config(method: str, task: str, changes: Mapping[str, Any]) -> MethodConfig:
    config: MethodConfig = told_config(task, changes) if method in TOLD else method_config(method, task, changes)
    return config


@lru_cache
def _settings(method: str, task: str, changes: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(to_dict(_config(method, task, json.loads(changes)))))
    if "pairs" in values and not values["pairs"]["rounds"]:  # off: the cell is the same as one from before there were these
        del values["pairs"]
    return values


def mix_of(task: Task, shares: Mapping[str, float]) -> Mix:
    """The task's demonstrators of these names."""
    people = {who.name: who for mix in task.mixes().values() for who, _ in mix}
    missing = [name for name in shares if name not in people]
    if missing:
        raise BadInput(f"expected demonstrators out of {', '.join(people) or 'none'} of task '{task.spec.name}', "
                       f"given {', '.join(missing)}")
    return [(people[name], share) for name, share in shares.items()]


def prepare_demonstrations(cell: Cell, out: Path) -> Path:
    """Collect what the cell learns from, unless it is there; several cells share it."""
    folder = out / "demos" / cell.demos_key
    if folder.exists():
        with suppress(CailError):  # hardly begun, by another process perhaps
            if len(DemoDataset(folder).rows) == cell.episodes:
                return folder
    task = get_task(cell.task)
    durable.make_folder(folder.parent)
    kept = not folder.exists() or truth.path_of(folder).exists()
    collect(task, mix_of(task, cell.mix), cell.episodes, cell.seed, folder, truth=kept)
    return folder


def demonstrations(cell: Cell, out: Path) -> tuple[Demonstrations, NDArray[np.float64]]:
    """The demonstrations with the cell's share of them ranked, and their true returns, which no method sees."""
    dataset = DemoDataset(out / "demos" / cell.demos_key)
    returns = dataset.returns
    if returns is None:
        raise BadInput(f"{dataset.root}: expected rewards to rank by, found none")
    demos = dataset.demonstrations()
    if cell.choose == "unalike":
        ranking = order_by_return(returns, unalike(demos, share(demos.episodes, cell.ranked), cell.seed))
    else:
        ranking = rank_by_return(returns, cell.ranked, cell.seed)
    rank = np.zeros(demos.episodes, dtype=np.int64)
    for episode, place in ranking.items():
        rank[episode] = place
    return replace(demos, rank=rank), returns


def finished(cell: Cell, out: Path) -> Row | None:
    """The row of a cell that needs no more running. What failed for an unknown reason is tried again."""
    path = out / "cells" / cell.key / ROW
    if not path.is_file():
        return None
    row: Row = json.loads(path.read_text())
    return None if row["outcome"].startswith(FAILED) else row


def run_cell(cell: Cell, out: Path) -> Row:
    """Train, evaluate and keep; a method that diverges or fails keeps its place in the table, with the reason."""
    known = finished(cell, out)
    if known is not None:
        return known
    torch.set_num_threads(1)
    began = time.perf_counter()
    folder = out / "cells" / cell.key
    durable.make_folder(folder)
    row: Row = {"task": cell.task, "method": cell.method, "seed": cell.seed, "outcome": DONE, "steps": cell.steps}
    try:
        if cell.method == ORACLE:
            row |= _oracle(cell, out)
        elif cell.method == EQUATION_7:
            row |= _equation_7(cell, out, folder)
        else:
            row |= _trained(cell, out, folder)
    except TrainingDiverged as fault:
        row["outcome"] = f"{DIVERGED}: {_line(fault)}"
    except (CailError, ArithmeticError, RuntimeError, ValueError, OSError) as fault:
        row["outcome"] = f"{FAILED}: {_line(fault)}"
    row["seconds"] = round(time.perf_counter() - began, 1)
    durable.write_json(folder / ROW, row)
    return row


def _line(fault: BaseException) -> str:
    return " ".join(str(fault).split())[:300]


def _oracle(cell: Cell, out: Path) -> Row:
    """The best demonstrator, as in the paper: what there would be to reach. It gave demonstrations and is not trained here."""
    demos, returns = demonstrations(cell, out)
    who = np.array(demos.demonstrator)
    best = best_first(demos, returns)[0]
    return {"return": round(float(returns[who == best].mean()), 3), "return_std": round(float(returns[who == best].std()), 3),
            "steps": 0}


def _equation_7(cell: Cell, out: Path, folder: Path) -> Row:
    """Eq. 7 under the assumptions of Theorems 1 and 2; `outer_loss` along it is kept where a training keeps its own."""
    demos, _ = demonstrations(cell, out)
    found = descend(demos, cell.changes["loss"], cell.steps, torch.Generator().manual_seed(cell.seed))
    lines = ["steps,outer_loss", *(f"{step},{value!r}" for step, value in enumerate(found.outer))]
    durable.make_folder(folder / RUN)
    durable.write_bytes(folder / RUN / METRICS, "\n".join([*lines, ""]).encode())
    return _outer_loss(folder / RUN) | {"rising": round(found.rising, 4), "mu": found.mu,
                                        "gradient_first": found.gradient[0], "gradient_least": min(found.gradient),
                                        "gradient_bound": found.bound}


def best_first(demos: Demonstrations, returns: NDArray[np.float64]) -> list[str]:
    """The demonstrators by their mean true return."""
    who = np.array(demos.demonstrator)
    return sorted(dict.fromkeys(demos.demonstrator), key=lambda name: -float(returns[who == name].mean()))


def _trained(cell: Cell, out: Path, folder: Path) -> Row:
    task = get_task(cell.task)
    demos, returns = demonstrations(cell, out)
    if cell.method in TOLD:
        demos = told(demos, _bad(cell, out, demos), cell.method)
    method = CLONE if cell.method in TOLD else cell.method
    train(task, demos, method, config_of(cell), seed=cell.seed, out=folder / RUN, steps=cell.steps, demos_name=cell.demos_key)
    result = evaluate(task, load_policy(folder / RUN / "policy"), cell.evaluation_episodes, cell.seed)
    row: Row = {"return": round(result.mean, 3), "return_std": round(result.std, 3)}
    if task.spec.has_success:
        row["success"] = round(result.success_rate, 4)
    if cell.method in TOLD:
        return row
    return row | _trust(demos, returns, folder / RUN) | _within(cell, out, demos, folder / RUN) | _outer_loss(folder / RUN)


def _bad(cell: Cell, out: Path, demos: Demonstrations) -> NDArray[np.bool_]:
    return truth.read(out / "demos" / cell.demos_key, np.diff(demos.starts).tolist())


def _within(cell: Cell, out: Path, demos: Demonstrations, run: Path) -> Row:
    """How well confidence and weights tell bad frames from good ones, where it is known which are bad; no method sees that."""
    config = config_of(cell)
    if not isinstance(config, TrustConfig) or not truth.path_of(out / "demos" / cell.demos_key).is_file():
        return {}
    learner = make_learner(cell.method, get_task(cell.task), demos, config, cell.seed, resumed=True)
    try:
        learner.restore(read_checkpoint(run / CHECKPOINT)["learner"])
        confidence, weight = learner.confidence().numpy(), learner.weight().numpy()
    finally:
        learner.close()
    return measured(confidence, weight, _bad(cell, out, demos), demos.starts, demos.demonstrator)


def _trust(demos: Demonstrations, returns: NDArray[np.float64], run: Path) -> Row:
    """Mean confidence by demonstrator, best first, and how well the order is met; nothing where all pairs count alike."""
    import pyarrow.parquet

    confidence = torch.as_tensor(pyarrow.parquet.read_table(run / "confidence.parquet")["confidence"].to_numpy().copy())
    if float(confidence.max() - confidence.min()) == 0.0:
        return {}
    means = demonstrator_means(demos, confidence)
    order = best_first(demos, returns)
    by_episode = segment_mean(confidence, torch.as_tensor(demos.episode_of_pair), demos.episodes)
    return {"spearman": spearman([means[name] for name in order], -np.arange(len(order))),
            "spearman_episodes": spearman(by_episode.tolist(), returns),
            "confidence": {name: round(means[name], 4) for name in order}}


def _outer_loss(run: Path) -> Row:
    """How the outer loss went: at first, at the end, and the most that it ever rose above what it had reached."""
    values = [loss for _, loss in curve(run, "outer_loss")]
    if not values:
        return {}
    return {"outer_first": round(values[0], 4), "outer_last": round(values[-1], 4),
            "outer_rise": round(float(np.max(np.array(values) - np.minimum.accumulate(values))), 4)}


def curve(run: Path, what: str) -> list[tuple[float, float]]:
    """(steps, value) along a run; empty where it was not measured."""
    if not (run / METRICS).is_file():
        return []
    with open(run / METRICS, newline="", encoding="utf-8") as lines:
        return [(float(row["steps"]), float(row[what])) for row in csv.DictReader(lines) if row.get(what)]
