"""`cail train`: from demonstrations to a run folder with a policy, a confidence for every pair, and the curves."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
import yaml

from cail_core import __version__, durable
from cail_core.algorithms import method_names
from cail_core.algorithms.eq7.confidence import segment_mean
from cail_core.algorithms.registry import get_method
from cail_core.algorithms.settings import MethodConfig
from cail_core.algorithms.trainers.base import Learner, Metrics, make_learner
from cail_core.algorithms.trainers.demo_modes import passed_over
from cail_core.config import read_yaml, to_dict
from cail_core.demos.demonstrations import Demonstrations
from cail_core.errors import BadInput, CailError, listed
from cail_core.evaluation import Evaluation, evaluate
from cail_core.guard import Guard
from cail_core.layers import flat
from cail_core.policy import Mode, network_of, save_policy
from cail_core.tasks.base import GYM, Practised, Task, task_names
from cail_core.tasks.scaling import Scaling
from cail_core.training.checkpoint import is_finite, read_about, read_checkpoint, write_checkpoint
from cail_core.training.display import Display

ANOTHER_WAY = "another_way"
"""In the policy's provenance: the trusted demonstrations that it did not learn from."""
CHECKPOINT, CONFIG, METRICS, CONFIDENCE = "checkpoint.safetensors", "config.yaml", "metrics.csv", "confidence.parquet"
PAIR_ROUNDS = "settings.pairs.rounds"
RANKED = "ranked.csv"
LOSSES = ("inner_loss", "outer_loss", "actor_loss", "critic_loss", "learned_reward")
TOO_LARGE = 1e8
SELECTION_STREAM = 0x73656C65  # episodes to choose a checkpoint by: neither training's nor those of `cail eval`
Watch = Callable[[int, int, Mapping[str, float]], None]
"""Called with the steps done, the steps in all and the iteration's numbers (none when the run begins or goes on)."""
EVALUATED = ("evaluation_success", "evaluation_stricter", "evaluation_return")
"""What checkpoints are compared by, in this order: success in the task, in its stricter form where there is one, return."""


class TrainingDiverged(CailError):
    """A loss or a weight is no longer a usable number."""


@dataclass(frozen=True)
class Run:
    """What is trained, on what, how, and where it goes. Task and demonstrations are as the learner sees them (`scaling`)."""

    task: Task
    demos: Demonstrations
    method: str
    config: MethodConfig
    seed: int
    steps: int
    out: Path
    demos_name: str = ""
    demos_folder: Path | None = None
    scaling: Scaling | None = None
    digest: str = ""
    """Of the demonstrations as they were recorded."""

    def about(self) -> dict[str, Any]:
        """What must not change between a run and its continuation."""
        settings = json.loads(json.dumps(to_dict(self.config)))  # as it reads when it comes back: a tuple is a list
        return {"version": __version__, "task": self.task.spec.name, "method": self.method, "seed": self.seed,
                "demonstrations": self.digest or self.demos.digest(), "settings": settings}


def train(task: Task, demos: Demonstrations, method: str, config: MethodConfig, *, seed: int, out: Path, steps: int | None = None,
          demos_name: str = "", demos_folder: Path | None = None, show: bool = False, watch: Watch | None = None,
          stop: Callable[[], bool] | None = None) -> Path:
    """Train `method` and fill the run folder `out`; a run that is there already goes on after its last checkpoint.

    Everything is checked before `out` is touched. The same seed gives the same curve, killed in between or not. `watch` hears
    of every iteration; `stop` is asked at every checkpoint whether to leave there, for the same call to go on later.
    """
    run = Run(task, demos, method, config, seed, config.steps if steps is None else steps, out, demos_name, demos_folder)
    faults = unfit(task, demos)
    if not faults:
        scaling = Scaling.of(task.spec, demos)
        run = replace(run, task=scaling.task(task), demos=scaling.demos(demos), scaling=scaling, digest=demos.digest())
    check(run, faults)
    state = _begin(run)
    with durable.locked(out):
        learner = make_learner(method, run.task, run.demos, config, seed, resumed=state is not None)
        try:
            _loop(run, learner, state, show, watch, stop)
        finally:
            learner.close()
    return out


def unfit(task: Task, demos: Demonstrations) -> list[str]:
    """In what the demonstrations are not the task's, or hold what is no number."""
    spec = task.spec
    faults = [f"{column.shape[1]} {what} per frame, the task '{spec.name}' has {len(names)} ({', '.join(names)})"
              for what, column, names in (("observations", demos.states, spec.observation_names),
                                          ("actions", demos.actions, spec.action_names)) if column.shape[1] != len(names)]
    for what, column in (("observations", demos.states), ("actions", demos.actions), ("final observations", demos.next_states)):
        if not np.isfinite(column).all():
            faults.append(f"{what} hold NaN or infinite numbers; `cail demos check` says where")
    return faults


def check(run: Run, unfit: Sequence[str] = ()) -> None:
    """Refuse, all at once, demonstrations that do not fit the task (`unfit`) or the method."""
    spec, demos, faults = run.task.spec, run.demos, list(unfit)
    if np.abs(demos.actions).max(initial=0.0) > 1 + 1e-4:
        reached = float(np.abs(demos.actions).max())
        faults.append(f"actions reach {reached:g}, expected them in [-1, 1]" if not spec.action_low else
                      f"actions reach {reached:g} times their bounds in '{spec.name}': {spec.action_scale}")
    if not spec.has_environment and not get_method(run.method).offline:
        faults.append(f"'{run.method}' acts while it learns, and these demonstrations bring no environment: name one with --task "
                      f"({GYM}:[MODULE:]ID, {', '.join(task_names())}), or take a method that learns from recordings alone "
                      f"({', '.join(name for name in method_names() if get_method(name).offline)})")
    elif not spec.has_environment and run.config.checkpoint_selection == "best":
        faults.append("checkpoint_selection: best plays episodes to choose by, and these demonstrations bring no environment; "
                      "set checkpoint_selection: last")
    if get_method(run.method).needs_ranking and len(set(demos.rank[demos.rank > 0].tolist())) < 2:
        faults.append(f"{int((demos.rank > 0).sum())} ranked episodes; '{run.method}' needs at least two of different rank: "
                      "`cail demos rank` ranks some")
    if run.steps < 1:
        faults.append(f"expected at least 1 step, given {run.steps}")
    if faults:
        raise BadInput(listed(f"cannot train '{run.method}' on {run.demos_name or 'these demonstrations'}", faults))


def _begin(run: Run) -> dict[str, Any] | None:
    """Make a new run folder, or check that the one there is this very run and read its last state."""
    out, about = run.out, run.about()
    if out.exists() and not out.is_dir():
        raise BadInput(f"expected --out to be a folder, {out} is a file")
    if out.is_dir() and any(out.iterdir()):
        if not (out / CONFIG).is_file():
            raise BadInput(f"{out} is neither empty nor a run (no {CONFIG} in it); choose another --out")
        held = flat(read_about(out / CHECKPOINT) if (out / CHECKPOINT).is_file() else read_yaml(out / CONFIG))
        if "settings.learner" in held:
            raise BadInput(f"{out} was made by an earlier version of cail, whose settings had other names, and cannot go on with "
                           "this one; go on with that version, or choose another --out")
        asked = flat(about)
        if PAIR_ROUNDS not in held and not asked.get(PAIR_ROUNDS):  # begun before there were these settings, which are off
            asked = {name: value for name, value in asked.items() if not name.startswith("settings.pairs.")}
        faults = [f"{name}: it has {held.get(name)!r}, asked for {value!r}"
                  for name, value in asked.items() if held.get(name) != value]
        if faults:
            raise BadInput(listed(f"{out} is another run and cannot go on as this one; choose another --out", faults))
        return read_checkpoint(out / CHECKPOINT) if (out / CHECKPOINT).is_file() else None
    durable.make_folder(out)
    where = {} if run.demos_folder is None else {"demos_from_here": os.path.relpath(run.demos_folder, out)}
    text = yaml.safe_dump({**about, "steps": run.steps, "demos": run.demos_name, **where}, sort_keys=False, allow_unicode=True)
    durable.write_bytes(out / CONFIG, text.encode())
    return None


def _loop(run: Run, learner: Learner, state: dict[str, Any] | None, show: bool, watch: Watch | None,
          stop: Callable[[], bool] | None) -> None:
    config, out = run.config, run.out
    by_evaluation = config.checkpoint_selection == "best"
    iteration = segment = size = flawless = 0
    best: list[float] = []
    if state is not None:
        learner.restore(state["learner"])
        iteration, segment, size, best = state["iteration"], state["segment"], state["metrics_bytes"], state["best"]
        flawless = state["flawless"]

    def over() -> bool:
        return learner.done >= run.steps or 0 < config.stop_after_perfect_checkpoints <= flawless

    if watch is not None:
        watch(learner.done, learner.done if over() else run.steps, {})
    if over():
        return
    with Display(run.steps, learner.done, f"{run.method} on {run.task.spec.name}", show) as display, \
            _Curves(out, size, learner.done) as curves:
        while not over():
            learner.begin_segment(segment)
            for i in range(config.checkpoint_every):
                metrics = learner.iterate()
                iteration += 1
                _stop_if_diverged(metrics, learner, out)
                last = i == config.checkpoint_every - 1 or learner.done >= run.steps
                if by_evaluation:
                    metrics |= _evaluated(run, learner, segment) if last else dict.fromkeys(EVALUATED, math.nan)
                curves.add(iteration, learner.done, metrics)
                display.show(learner.done, metrics)
                if watch is not None:
                    watch(learner.done, run.steps, metrics)
                if last:
                    break
            segment += 1
            score = [metrics[name] for name in EVALUATED if not math.isnan(metrics[name])] if by_evaluation else []
            if not best or score >= best:
                best = score
                _save_policy(run, learner)
            flawless = flawless + 1 if score and score[0] == 1.0 else 0
            _save(run, learner, {"iteration": iteration, "segment": segment, "metrics_bytes": curves.size(), "best": best,
                                 "flawless": flawless})
            if stop is not None and stop():
                return
        display.ends_here()
    if watch is not None and learner.done < run.steps:
        watch(learner.done, learner.done, {})


def _evaluated(run: Run, learner: Learner, segment: int) -> Metrics:
    """How the policy does now, without exploration, in episodes that nothing else looks at.

    Others at each checkpoint: a rare failure that the first ones do not show is then seen by the next.
    """
    def played(task: Task) -> Evaluation:
        return evaluate(task, Mode(network_of(learner.actor)), run.config.evaluation_episodes, selection_seed(run.seed, segment))

    result = played(run.task)
    stricter = played(run.task.stricter()).success_rate if isinstance(run.task, Practised) else math.nan
    success = result.success_rate if run.task.spec.has_success else 0.0
    return dict(zip(EVALUATED, (success, stricter, result.mean), strict=True))


def selection_seed(seed: int, segment: int) -> int:
    return int(np.random.SeedSequence((seed, SELECTION_STREAM, segment)).generate_state(1)[0])


def _save(run: Run, learner: Learner, progress: dict[str, Any]) -> None:
    """The checkpoint comes last: it vouches for everything before it."""
    state = {"learner": learner.state(), **progress}
    if not is_finite(state):
        raise TrainingDiverged(_diverged("a weight is NaN or infinite", learner.done, run.out))
    _write_confidence(run.out / CONFIDENCE, run.demos, learner.confidence())
    _write_ranked(run.out / RANKED, run.demos, learner)
    write_checkpoint(run.out / CHECKPOINT, state, run.about())


def _save_policy(run: Run, learner: Learner) -> None:
    if not is_finite(learner.actor.state_dict()):
        raise TrainingDiverged(_diverged("a weight is NaN or infinite", learner.done, run.out))
    confidence = learner.confidence()
    guard = Guard.fit(run.demos.states, confidence.numpy(), run.demos.episode_of_pair, run.seed)
    another_way = passed_over(run.demos, confidence, learner.weight())
    scaling = run.scaling or Scaling(run.task.spec)
    save_policy(run.out / "policy", learner.actor, run.task.spec, run.method,
                {"demonstrations": run.demos_name, "episodes": run.demos.episodes, "ranked": len(run.demos.ranked),
                 **({ANOTHER_WAY: another_way} if another_way else {}), "seed": run.seed, "steps": learner.done,
                 "fastest_action": _fastest(run.demos), "cail": __version__},
                guard=scaling.guard(guard), robot=run.demos.robot, card_text=_trusted(run.demos, confidence, another_way),
                network=scaling.network(network_of(learner.actor)))


def _fastest(demos: Demonstrations) -> float:
    """How strong the demonstrated actions are: an arm with a low speed limit is never asked for more than that."""
    return round(float(np.quantile(np.linalg.norm(demos.actions, axis=1), 0.999)), 3)


def _write_confidence(path: Path, demos: Demonstrations, confidence: torch.Tensor) -> None:
    """One row per demonstration frame, in dataset order."""
    episode = demos.episode_of_pair
    table = pa.table({"episode_index": episode, "frame_index": np.arange(len(episode), dtype=np.int64) - demos.starts[episode],
                      "confidence": confidence.numpy().astype(np.float32)})
    sink = io.BytesIO()
    pyarrow.parquet.write_table(table, sink)
    durable.write_bytes(path, sink.getvalue())


def _write_ranked(path: Path, demos: Demonstrations, learner: Learner) -> None:
    """The ranked episodes, best first, with the return that the learner gives each."""
    learned = learner.learned_returns()
    if learned is not None:
        rows = [f"{episode},{demos.rank[episode]},{value!r}" for episode, value in zip(demos.ranked, learned, strict=True)]
        durable.write_bytes(path, "\n".join(["episode_index,rank,learned_return", *rows, ""]).encode())


def demonstrator_means(demos: Demonstrations, confidence: torch.Tensor) -> dict[str, float]:
    """Mean confidence by demonstrator, most trusted first."""
    per_episode = segment_mean(confidence, torch.as_tensor(demos.episode_of_pair), demos.episodes).numpy()
    who = np.array(demos.demonstrator or ["all"] * demos.episodes)
    means = {str(name): float(per_episode[who == name].mean()) for name in dict.fromkeys(who)}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def _trusted(demos: Demonstrations, confidence: torch.Tensor, another_way: list[int]) -> str:
    who = np.array(demos.demonstrator or ["all"] * demos.episodes)
    means = demonstrator_means(demos, confidence)
    rows = "\n".join(f"| {name} | {int((who == name).sum())} | {mean:.2f} |" for name, mean in means.items())
    return ("## The demonstrations it trusted\n\nMean confidence (1 is average):\n\n"
            f"| demonstrator | episodes | confidence |\n| --- | --- | --- |\n{rows}\n"
            + _said_of_another_way(another_way))


def _said_of_another_way(episodes: list[int]) -> str:
    listed_ones = ", ".join(map(str, episodes))
    return f"\nTrusted, but not learned from, since they go another way than most: episodes {listed_ones}.\n" if episodes else ""


def _stop_if_diverged(metrics: Metrics, learner: Learner, out: Path) -> None:
    for name in LOSSES:
        value = metrics.get(name, 0.0)
        if not math.isfinite(value) or abs(value) > TOO_LARGE:
            raise TrainingDiverged(_diverged(f"{name} is {value:g}", learner.done, out))


def _diverged(what: str, step: int, out: Path) -> str:
    kept = f"the last good checkpoint is in {out}" if (out / CHECKPOINT).exists() else "no checkpoint had been reached"
    return f"training diverged at step {step}: {what}; {kept}; lower the learning rates with --set, or try another seed"


class _Curves:
    """metrics.csv and TensorBoard events; on a resume the rows after the checkpoint are cut off and written again."""

    def __init__(self, out: Path, size: int, done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._file = open(out / METRICS, "ab")  # noqa: SIM115
        self._file.truncate(size)
        self._board = SummaryWriter(str(out / "tensorboard"), purge_step=done + 1 if done else None)

    def __enter__(self) -> _Curves:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._board.close()

    def add(self, iteration: int, done: int, metrics: Mapping[str, float]) -> None:
        row = {"iteration": iteration, "steps": done,
               **{name: "" if math.isnan(value) else repr(value) for name, value in metrics.items()}}
        text = io.StringIO()
        writer = csv.DictWriter(text, list(row), lineterminator="\n")
        if self._file.seek(0, os.SEEK_END) == 0:
            writer.writeheader()
        writer.writerow(row)
        with durable.full_disk_is_said(Path(self._file.name)):
            self._file.write(text.getvalue().encode())
            self._file.flush()
        for name, value in metrics.items():
            if not math.isnan(value):
                self._board.add_scalar(name, value, done)

    def size(self) -> int:
        """Bytes of metrics.csv, all of them on the device."""
        os.fsync(self._file.fileno())
        return self._file.tell()
