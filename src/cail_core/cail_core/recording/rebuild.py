"""`cail demos rebuild`: the dataset again from its bags, identical to the one that the recorder wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cail_core import durable
from cail_core.demos import layout
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.edit import link_other_files, set_ranking
from cail_core.demos.writer import DemoWriter
from cail_core.errors import BadInput, CailError, listed
from cail_core.recording.bag import FOLDER, SAVING, bags_of, stem_of
from cail_core.recording.frames import Trim, about_episode, episode_from_bag, features_of, recordable
from cail_core.tasks import TaskSpec


def rebuild(
    root: Path, out: Path | None = None, trim: Trim | None = None, progress: Callable[[int], None] = lambda done: None
) -> tuple[DemoDataset, list[str]]:
    """Make the dataset of `root`'s bags: in place of the one that is there, in one step, or at `out`. Returns notes too."""
    bags = bags_of(root / FOLDER)
    if not bags:
        raise BadInput(f"expected bags in {root / FOLDER}, found none; only recorded datasets can be rebuilt")
    abouts = [about_episode(path) for path in bags]
    first, *_ = kinds = [(about["task"], about["robot_type"], about["timing"]["rate"]) for about in abouts]
    other = [(path, kind) for path, kind in zip(bags, kinds, strict=True) if kind != first]
    faults = [f"{path.name}: {_kind(kind)}, the first has {_kind(first)}" for path, kind in other]
    if faults:
        raise BadInput(listed("these bags are not of one dataset", faults))
    ranks, how, notes = _ranks(root, [stem_of(path) for path in bags], in_place=out is None)

    def write(folder: Path) -> None:
        task = recordable(first[0])
        with create(folder, task.spec, first[1], first[2], in_place=True) as writer:
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


def _kind(kind: tuple[str, str, int]) -> str:
    return f"task {kind[0]}, robot {kind[1]}, {kind[2]} Hz"


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
