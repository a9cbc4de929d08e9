"""Everything a report says, worked out once from the runs, the demonstrations and the episodes played."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cail_core.demos.dataset import DemoDataset
from cail_core.demos.features import STATE
from cail_core.demos.layout import EpisodeRow
from cail_core.errors import CailError
from cail_core.evaluation import Evaluation
from cail_core.held_out import HeldOut
from cail_core.report.material import RunFolder, read_runs
from cail_core.report.motion import Motion, motion_of
from cail_core.report.played import Played, play_for
from cail_core.report.trust import Segment, pairs_in_order, per_episode, rank_correlation, segments
from cail_core.stress.card import short_form
from cail_core.stress.findings import results_of
from cail_core.stress.played import Result, stressable
from cail_core.tasks import TaskSpec, get_task
from cail_core.tasks.base import DATA
from cail_core.tasks.from_dataset import DatasetTask

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Person:
    """A demonstrator: their episodes, how good they were, how far they were trusted."""

    name: str
    rows: list[EpisodeRow]
    evaluation: Evaluation | None
    confidence: float


@dataclass
class Findings:
    """`runs[0]` is what the report is about; `trusting` is the first run that learned a confidence and has its demonstrations."""

    runs: list[RunFolder]
    spec: TaskSpec | None = None
    dataset: DemoDataset | None = None
    trusting: RunFolder | None = None
    played: dict[str, Played] = field(default_factory=dict)
    references: dict[str, Played] = field(default_factory=dict)
    people: list[Person] = field(default_factory=list)
    """Most trusted first, best first where nothing was learned about trust."""
    motions: list[Motion] = field(default_factory=list)
    confidence_of_episode: Floats = field(default_factory=lambda: np.zeros(0))
    correlation: float | None = None
    pairs: tuple[int, int] | None = None
    """Of the ranked pairs of episodes: how many the confidence puts in the order given, and how many there are."""
    learned_pairs: tuple[int, int] | None = None
    """The same for the learned returns."""
    most: list[Segment] = field(default_factory=list)
    least: list[Segment] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    stress: list[Result] = field(default_factory=list)
    """What the subject's card tells of other conditions."""
    unstressed: str = ""
    """The command that finds it out, where it could be known and is not."""
    held_out: dict[str, HeldOut] = field(default_factory=dict)
    """By run, where there is no environment to play in."""

    @property
    def subject(self) -> RunFolder:
        return self.runs[0]

    @property
    def without_environment(self) -> bool:
        """Whether all that is known of the task is its demonstrations."""
        return self.subject.task.startswith(f"{DATA}:")

    @property
    def has_success(self) -> bool:
        return self.spec is not None and self.spec.has_success

    @property
    def result(self) -> Evaluation | None:
        played = self.played.get(self.subject.name)
        return None if played is None else played.evaluation

    @property
    def ranked_episodes(self) -> int:
        return 0 if self.dataset is None else sum(row.rank is not None for row in self.dataset.rows)

    @property
    def mean_return(self) -> float | None:
        returns = None if self.dataset is None else self.dataset.returns
        return None if returns is None or not len(returns) else float(returns.mean())

    @property
    def best_person(self) -> tuple[str, float] | None:
        known = [(person.name, person.evaluation.mean) for person in self.people if person.evaluation is not None]
        return max(known, key=lambda one: one[1]) if known else None


def gather(folders: Sequence[Path], demos: Path | None, episodes: int, seed: int, *, stress: bool = True) -> Findings:
    """Read the runs, play what has not been played yet, and work everything out. `stress`: the short form of it too."""
    runs = read_runs(folders, demos)
    found = Findings(runs, missing=[text for run in runs for text in run.missing])
    found.dataset = next((run.dataset for run in runs if run.dataset is not None), None)
    found.trusting = next((run for run in runs if run.learned_confidence and run.dataset is not None), None)
    if found.trusting is not None:
        found.dataset = found.trusting.dataset
    _play(found, episodes, seed)
    _stress(found, played=stress and episodes > 0)
    if found.dataset is not None and found.dataset.episodes:
        _look_at_demonstrations(found, found.dataset)
    ranked = (found.trusting or found.subject).ranked
    if ranked:
        found.learned_pairs = pairs_in_order([one.rank for one in ranked], [one.learned_return for one in ranked])
    found.missing = list(dict.fromkeys(found.missing))
    return found


def _play(found: Findings, episodes: int, seed: int) -> None:
    """A task that is not installed here, or cannot run here, costs the evaluation and not the report."""
    if found.without_environment:
        _hold_out(found, played=episodes > 0)
        return
    try:
        task = get_task(found.subject.task)
        found.spec = task.spec
        if task.spec.on_arm:
            found.missing.append(f"no episodes are played on an arm for a report; `cail eval --task {task.spec.name}` plays them")
            return
        for run in found.runs if episodes else []:
            if run.policy is None:
                continue
            run.policy.check(task.spec)
            first = run is found.subject
            played = play_for(run.folder, task, run.policy, episodes, seed, with_references=first)
            found.played[run.name] = played.pop("policy")
            found.references |= {name: one for name, one in played.items() if first}
    except CailError as fault:
        found.missing.append(f"the policies could not be evaluated here: {fault}")


def _hold_out(found: Findings, *, played: bool) -> None:
    """Where nothing can play: what is known of demonstrations and ranks that were held out."""
    from cail_core.report.offline import of_run  # it draws, and so comes after the findings

    if found.dataset is not None:
        found.spec = DatasetTask(found.dataset).spec
    for run in found.runs if played else []:
        try:
            found.held_out[run.name] = of_run(run)
            found.missing += found.held_out[run.name].notes
        except CailError as fault:
            found.missing.append(f"{run.name} could not be evaluated: {fault}")


def _stress(found: Findings, *, played: bool) -> None:
    """What the first run's policy holds, played now where its card does not tell. As with episodes, it costs no report."""
    run = found.subject
    if run.policy is None or found.without_environment:
        return
    try:
        task = get_task(run.task)
        if played and stressable(task) and not run.policy.faults(task.spec):
            run.policy = short_form(run.folder / "policy", run.policy, task)
        if stressable(task) and not run.policy.card.stress:
            found.unstressed = f"cail stress --policy {shlex.quote(str(run.folder / 'policy'))}"
    except (CailError, OSError) as fault:
        found.missing.append(f"how the policy does under other conditions could not be played here: {fault}")
    if run.policy.card.stress:
        found.stress = results_of(run.policy.card.stress)


def _look_at_demonstrations(found: Findings, dataset: DemoDataset) -> None:
    confidence = found.trusting.confidence if found.trusting is not None else None
    values = np.ones(dataset.episodes) if confidence is None else per_episode(dataset, confidence)
    found.confidence_of_episode = values
    for name in dict.fromkeys(row.demonstrator for row in dataset.rows):
        rows = [row for row in dataset.rows if row.demonstrator == name]
        found.people.append(Person(name, rows, _evaluation(rows), float(values[[row.episode_index for row in rows]].mean())))
    found.people.sort(key=lambda person: (-person.confidence, -person.evaluation.mean if person.evaluation else 0.0))
    if found.spec is not None and dataset.features[STATE].shape[0] == found.spec.observation_dim:
        states = dataset.column(STATE).reshape(dataset.frames, -1)
        made = [motion_of(found.spec, np.concatenate([states[row.from_index : row.to_index], row.final_state[None]]))
                for row in dataset.rows]
        found.motions = [motion for motion in made if motion is not None]
    if confidence is not None:
        if dataset.returns is not None:
            found.correlation = rank_correlation(values, dataset.returns)
        ranked = [row for row in dataset.rows if row.rank]
        found.pairs = pairs_in_order([row.rank or 0 for row in ranked], [float(values[row.episode_index]) for row in ranked])
        found.most, found.least = segments(dataset, confidence)


def _evaluation(rows: Sequence[EpisodeRow]) -> Evaluation | None:
    if any(row.undiscounted_return is None for row in rows):
        return None
    return Evaluation(np.array([row.undiscounted_return for row in rows], dtype=np.float64),
                      np.array([row.length for row in rows]), np.array([row.outcome == "success" for row in rows]))
