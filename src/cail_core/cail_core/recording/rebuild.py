"""`cail demos rebuild`: the dataset again from its bags, identical to the one that the recorder wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cail_core import durable
from cail_core.demos import layout
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.edit import link_other_files, set_ranking
from cail_core.demos.writer import DemoWriter
from cail_core.errors import BadInput, CailError, listed
from cail_core.recording.bag import FOLDER, SAVING, bags_of, stem_of
from cail_core.recording.episode_builder import Trim, about_episode, episode_from_bag, features_of, recordable
from cail_core.tasks import TaskSpec


class Kind(NamedTuple):
    """What is the same in all episodes of a dataset."""

    task: str
    robot: str
    rate: int

    @classmethod
    def of(cls, about: dict[str, Any]) -> Kind:
        return cls(about["task"], about["robot_type"], about["timing"]["rate"])

    def __str__(self) -> str:
        return f"task {self.task}, robot {self.robot}, {self.rate} Hz"


def rebuild(
    root: Path, out: Path | None = None, trim: Trim | None = None, progress: Callable[[int], None] = lambda done: None
) -> tuple[DemoDataset, list[str]]:
    """Make the dataset of `root`'s bags: in place of the one that is there, in one step, or at `out`. Returns notes too."""
    bags = bags_of(root / FOLDER)
    if not bags:
        raise BadInput(f"expected bags in {root / FOLDER}, found none; only recorded datasets can be rebuilt")
    kind = one_kind(bags)
    ranks, how, notes = _ranks(root, [stem_of(path) for path in bags], in_place=out is None)

    def write(folder: Path) -> None:
        task = recordable(kind.task)
        with create(folder, task.spec, kind.robot, kind.rate, in_place=True) as writer:
            for done, path in enumerate(bags, start=1):
                writer.save_episode(episode_from_bag(path, task, trim))
                progress(done)
        if ranks:
            set_ranking(folder, ranks, how)

    if out is None:
        with durable.locked(root), durable.replaced_folder(root) as building:
            write(building)
            link_other_files(root, building)
    else:
        with durable.new_folder(out) as building:
            write(building)
    return DemoDataset(out or root), notes


def create(root: Path, spec: TaskSpec, robot: str, rate: int, *, in_place: bool = False) -> DemoWriter:
    """An empty dataset for recordings of this task."""
    return DemoWriter.create(
        root,
        task=spec.name,
        text=spec.text,
        robot_type=robot,
        fps=rate,
        features=features_of(spec),
        in_place=in_place,
    )


def one_kind(bags: list[Path]) -> Kind:
    """What all of the bags are of; BadInput lists those that are of something else than the first."""
    kinds = [Kind.of(about_episode(path)) for path in bags]
    first = kinds[0]
    faults = [f"{path.name}: {kind}, the first has {first}" for path, kind in zip(bags, kinds, strict=True) if kind != first]
    if faults:
        raise BadInput(listed("these bags are not of one dataset", faults))
    return first


def _ranks(root: Path, stems: list[str], *, in_place: bool) -> tuple[dict[int, int], dict[str, Any], list[str]]:
    """The ranks of the old dataset under the new numbers, which bags do not hold; and what a person should know."""
    if not (root / layout.INFO).exists():
        return {}, {}, []
    try:
        old = DemoDataset(root)
        how = layout.read_json(root / layout.RANKING) if (root / layout.RANKING).exists() else {}
    except CailError as fault:
        return {}, {}, [f"the old dataset cannot be read, its ranks are lost: {fault}"]
    bags = [(row.recording or {}).get("bag") for row in old.rows]
    alone = [str(row.episode_index) for row, bag in zip(old.rows, bags, strict=True) if bag not in stems]
    if alone and in_place:
        raise BadInput(f"{root}: episodes without a bag ({', '.join(alone)}) would be lost; rebuild elsewhere with --out")
    back = [stem for stem in stems if stem not in bags]
    notes = [f"back in the dataset from which they had been deleted: {', '.join(back)}"] if back else []
    unsaved = [path.name for path in (root / FOLDER).glob(f"*{SAVING}")]
    if unsaved:
        notes.append(f"{', '.join(unsaved)}: not in the dataset yet; `cail record` into it completes that")
    ranks = {stems.index(bag): row.rank for row, bag in zip(old.rows, bags, strict=True) if row.rank and bag in stems}
    return ranks, how, notes
