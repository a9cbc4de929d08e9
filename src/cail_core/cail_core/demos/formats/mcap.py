"""Reads recordings: an MCAP bag of `cail record`, or a folder of them, an episode each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cail_core.demos.episode import Episode
from cail_core.demos.formats.source import Source
from cail_core.errors import BadInput
from cail_core.recording.bag import DONE, bags_of
from cail_core.recording.episode_builder import episode_from_bag, features_of, recordable
from cail_core.recording.rebuild import one_kind


def find(path: Path) -> list[Path]:
    """The bags that `path` is or holds; none where it is something else."""
    if path.is_dir():
        return bags_of(path)
    return [path] if path.name.endswith(DONE) else []


def read(bags: list[Path], task: str | None) -> Source:
    """`task` is what the caller expects the bags to show."""
    kind = one_kind(bags)
    if task is not None and task != kind.task:
        raise BadInput(f"{bags[0]}: recorded for the task '{kind.task}', given --task {task}")
    shown = recordable(kind.task)

    def episodes() -> Iterator[Episode]:
        for path in bags:
            yield episode_from_bag(path, shown)

    return Source(features_of(shown.spec), episodes, kind.task, shown.spec.text, kind.robot, kind.rate, recorded=True)
