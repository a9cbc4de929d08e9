"""Changes to a dataset: rank, delete, merge, split. Each builds the new folder aside and puts it in place in one step."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cail_core import durable
from cail_core.demos import layout
from cail_core.demos.check import interrupted
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.episode import Episode
from cail_core.demos.features import ACTION, REQUESTED, differences
from cail_core.demos.writer import DemoWriter
from cail_core.errors import BadInput, listed
from cail_core.ranking.ranks import Ranking


def repair(root: Path) -> None:
    """Complete a save that was cut off."""
    DemoWriter.open(root).close()


def whole(root: Path) -> DemoDataset:
    """The dataset with every episode that is on disk: a save that was cut off is completed first."""
    dataset = DemoDataset(root)
    if not interrupted(dataset):
        return dataset
    repair(root)
    return DemoDataset(root)


def set_ranking(root: Path, ranking: Ranking, how: dict[str, Any]) -> None:
    """Give the episodes these ranks, and only these; the frames are not touched."""
    with durable.locked(root):
        with durable.replaced_folder(root) as building:
            _link(root, building)
            for path in sorted((root / "meta" / "episodes").glob("chunk-*/file-*.parquet")):
                table = pq.read_table(path, memory_map=True)
                ranks = [ranking.get(episode) for episode in table.column("episode_index").to_pylist()]
                changed = table.set_column(table.column_names.index("rank"), "rank", pa.array(ranks, pa.int64()))
                durable.write_bytes(building / path.relative_to(root), layout.parquet_bytes(changed))
            durable.write_json(building / layout.RANKING, how)


def delete(root: Path, episodes: Sequence[int]) -> None:
    """Remove episodes; the ones after them move up."""
    whole(root)
    with durable.locked(root):
        dataset = DemoDataset(root)
        unknown = sorted({e for e in episodes if not 0 <= e < dataset.episodes})
        if unknown:
            raise BadInput(f"{root}: expected episodes out of 0 … {dataset.episodes - 1}, given {', '.join(map(str, unknown))}")
        kept = [i for i in range(dataset.episodes) if i not in set(episodes)]
        if not kept:
            raise BadInput(f"{root}: that would delete all {dataset.episodes} episodes; remove the folder instead")
        with durable.replaced_folder(root) as building:
            _write_like(dataset, building, dataset.iterate(kept))
            link_other_files(root, building)


def merge(roots: Sequence[Path], out: Path) -> DemoDataset:
    """One dataset of several; ranks of different datasets cannot be compared, so only a single ranked one keeps them.

    A dataset without `action.requested` was not recorded from an arm: there, what was asked for is the action itself.
    """
    datasets = [whole(root) for root in roots]
    faults = []
    first = next((d for d in datasets if REQUESTED in d.features), datasets[0])
    for other in (d for d in datasets if d is not first):
        found = [text for text in differences(first.features, other.features) if text != f"{REQUESTED}: only in the first"]
        for key, a, b in (("task", first.task, other.task), ("fps", first.info["fps"], other.info["fps"])):
            if a != b:
                found.append(f"{key}: {a} against {b}")
        faults += [f"{first.root} and {other.root}: {difference}" for difference in found]
    if faults:
        raise BadInput(listed("these datasets do not fit together", faults))
    ranked = [d for d in datasets if any(row.rank for row in d.rows)]

    def episodes() -> Iterator[Episode]:
        for dataset in datasets:
            for episode in dataset.iterate():
                frames = {name: episode.frames[ACTION if name == REQUESTED and name not in episode.frames else name]
                          for name in first.features}
                yield replace(episode, frames=frames, rank=episode.rank if len(ranked) == 1 else None)

    with durable.new_folder(out) as building:
        _write_like(first, building, episodes())
    return DemoDataset(out)


def split(root: Path, parts: Sequence[tuple[Path, Sequence[int]]]) -> None:
    """New datasets of chosen episodes; the old one stays."""
    dataset = whole(root)
    if len({out.resolve() for out, _ in parts}) < len(parts):
        raise BadInput(f"expected different folders for the parts, given {' and '.join(str(out) for out, _ in parts)}")
    for out, chosen in parts:
        if not chosen:
            raise BadInput(f"{out} would be empty; choose another share")
    with ExitStack() as stack:  # all parts are built before the first appears
        for out, chosen in parts:
            building = stack.enter_context(durable.new_folder(out))
            _write_like(dataset, building, dataset.iterate(list(chosen)))


def _write_like(dataset: DemoDataset, folder: Path, episodes: Iterable[Episode]) -> None:
    about = {key: value for key, value in dataset.info["cail"].items() if key not in ("task", "collect")}
    writer = DemoWriter.create(
        folder,
        task=dataset.task,
        text=dataset.text,
        robot_type=dataset.info["robot_type"],
        fps=dataset.info["fps"],
        features=dataset.features,
        about=about,
        in_place=True,
    )
    with writer:
        writer.save_all(episodes)


def link_other_files(root: Path, building: Path) -> None:
    """Carry over what is not the dataset's own, such as bags, answers and notes."""
    _link(root, building, ignore=lambda folder, names: _rewritten(root, Path(folder), names))


def _rewritten(root: Path, folder: Path, names: list[str]) -> set[str]:
    """Of a folder's entries those that a rewrite makes anew; the rest, such as bags and notes, is carried over."""
    if folder == root:
        return {"data"} & set(names)
    return {"episodes", "info.json", "stats.json", "tasks.parquet"} & set(names) if folder == root / "meta" else set()


def _link(root: Path, building: Path, ignore: Callable[[Any, list[str]], set[str]] | None = None) -> None:
    """The same files under new names without copying their bytes; a file is replaced, never written into."""

    def link(source: str, target: str) -> str:
        try:
            Path(target).hardlink_to(source)
        except OSError:  # a file system without hard links
            shutil.copy2(source, target)
        return target

    copy: Callable[[str, str], object] = link
    shutil.copytree(root, building, copy_function=copy, dirs_exist_ok=True, ignore=ignore, symlinks=True)


def parse_ids(given: Sequence[str], episodes: int) -> list[int]:
    """Episode ids as a person writes them, `3 7 10-14`, of a dataset with so many episodes."""
    ids: set[int] = set()
    for word in [w for text in given for w in text.split(",") if w]:
        if not re.fullmatch(r"[0-9]{1,12}(-[0-9]{1,12})?", word):
            raise BadInput(f"expected episode ids such as 3 7 10-14, given '{word}'")
        first, last = int(word.split("-")[0]), int(word.split("-")[-1])
        if last < first:
            raise BadInput(f"expected a range from low to high, given '{word}'")
        if last >= episodes:
            there = f"expected episodes out of 0 … {episodes - 1}" if episodes else "the dataset holds no episodes"
            raise BadInput(f"{there}, given {word}")
        ids.update(range(first, last + 1))
    return sorted(ids)
