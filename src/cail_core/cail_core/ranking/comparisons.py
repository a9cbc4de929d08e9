"""A person's answers on which of two episodes is better, on disk after each; who ranks next goes on from them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from cail_core import durable
from cail_core.demos import layout
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.layout import EpisodeRow
from cail_core.errors import BadInput, DatasetError
from cail_core.ranking.pairwise import Answer, Group, Known, Pair, Progress, most_answers, progress

FILE = "meta/comparisons.json"


class Comparisons:
    """The episodes to rank and all answers given so far, of whoever gave them."""

    def __init__(self, root: Path, episodes: Sequence[int], answers: Sequence[Answer], marks: dict[int, str]) -> None:
        self.root, self.episodes, self.answers = root, list(episodes), list(answers)
        self._marks = marks

    @classmethod
    def of(cls, dataset: DemoDataset, episodes: Sequence[int]) -> Comparisons:
        """These episodes, with what earlier answers say of them."""
        if len(episodes) < 2:
            raise BadInput(f"expected at least 2 episodes to compare, given {len(episodes)}")
        return cls(dataset.root, episodes, _read(dataset)[1], {row.episode_index: identity(row) for row in dataset.rows})

    @classmethod
    def last(cls, dataset: DemoDataset) -> Comparisons | None:
        """Those that were begun last, to go on with them; None where none were."""
        chosen, _ = _read(dataset)
        return cls.of(dataset, chosen) if len(chosen) > 1 else None

    @property
    def progress(self) -> Progress:
        return progress(self.episodes, Known(self.answers))

    @property
    def at_most(self) -> int:
        return most_answers(len(self.episodes))

    @property
    def order(self) -> list[Group]:
        """What is known, best first: all episodes once everything is answered, before that as many as have an order."""
        return self.progress.order or Known(self.answers).longest_order(self.episodes)

    def answer(self, pair: Pair, better: int | None, by: str) -> None:
        self.answers.append(Answer(pair, better, by, datetime.now(timezone.utc).isoformat(timespec="seconds")))
        self.save()

    def undo(self) -> bool:
        """Take back the last answer on these episodes; False where there is none."""
        mine = [i for i, answer in enumerate(self.answers) if set(answer.pair) <= set(self.episodes)]
        if not mine:
            return False
        self.answers.pop(mine[-1])
        self.save()
        return True

    def save(self) -> None:
        named = {*self.episodes, *(e for answer in self.answers for e in answer.pair)}
        durable.write_json(
            self.root / FILE,
            {
                "ranking": self.episodes,
                "episodes": {str(e): self._marks[e] for e in sorted(named)},
                "answers": [{"pair": list(a.pair), "better": a.better, "by": a.by, "at": a.at} for a in self.answers],
            },
        )


def choose(dataset: DemoDataset, count: int, seed: int) -> list[int]:
    """`count` episodes drawn at random, as evenly over the demonstrators as can be."""
    if not 2 <= count <= dataset.episodes:
        raise BadInput(f"expected --count between 2 and the dataset's {dataset.episodes} episodes, given {count}")
    rng = np.random.default_rng(seed)
    people: dict[str, list[int]] = {}
    for row in dataset.rows:
        people.setdefault(row.demonstrator, []).append(row.episode_index)
    piles = [rng.permutation(people[who]).tolist() for who in rng.permutation(sorted(people)).tolist()]
    turns = [pile[turn] for turn in range(max(map(len, piles))) for pile in piles if turn < len(pile)]
    return sorted(turns[:count])


def identity(row: EpisodeRow) -> str:
    """Knows an episode again after others were deleted and the numbers have moved."""
    text = f"{row.length} {row.demonstrator} {row.outcome} ".encode() + np.ascontiguousarray(row.final_state).tobytes()
    return hashlib.sha256(text).hexdigest()[:16]


def _read(dataset: DemoDataset) -> tuple[list[int], list[Answer]]:
    path = dataset.root / FILE
    if not path.exists():
        return [], []
    stored = layout.read_json(path)
    try:
        number = _numbers_now(dataset, stored["episodes"])
        chosen = [number[e] for e in stored["ranking"] if e in number]
        answers = [_answer(entry, number) for entry in stored["answers"] if all(e in number for e in entry["pair"])]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DatasetError(f"{path}: not a list of comparisons as this command writes it; remove it to begin anew") from None
    return chosen, answers


def _answer(entry: Any, number: dict[int, int]) -> Answer:
    one, other = entry["pair"]
    better = entry["better"]
    if better not in (one, other, None):
        raise ValueError
    return Answer(
        (number[one], number[other]), None if better is None else number[better], str(entry["by"]), str(entry["at"])
    )


def _numbers_now(dataset: DemoDataset, stored: dict[str, str]) -> dict[int, int]:
    """Number then -> number now, of the episodes that are still there."""
    now = {identity(row): row.episode_index for row in reversed(dataset.rows)}
    found = {}
    for text, mark in stored.items():
        then = int(text)
        if then < dataset.episodes and identity(dataset.rows[then]) == mark:
            found[then] = then
        elif mark in now:
            found[then] = now[mark]
    return found
