"""`cail demos`: collect, import, look at, rank, change and export demonstrations."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cail_core.cli import whole_number
from cail_core.errors import BadInput, listed

if TYPE_CHECKING:
    from cail_core.demos.dataset import DemoDataset


def register(commands: Any) -> None:
    demos = commands.add_parser("demos", help="collect, import, rank, change and export demonstrations")
    actions = demos.add_subparsers(title="actions", metavar="ACTION", required=True)

    def action(name: str, run: Any, help: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = actions.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        made.set_defaults(run=run)
        return made

    p = action("collect", _collect, "let a task's demonstrators of graded quality demonstrate; goes on if it was cut off")
    p.add_argument("--task", required=True, help="for example pointmass; gym:[MODULE:]ID is any Gymnasium environment")
    who = p.add_mutually_exclusive_group()
    who.add_argument("--mix", default="paper", help="which demonstrators, in which shares (default: paper)")
    who.add_argument("--policies", type=Path, nargs="+", metavar="P", help="saved policies as demonstrators, in equal shares")
    who.add_argument("--demonstrators", metavar="MODULE:FUNCTION", help="your own, in equal shares: the function returns "
                     "{name: start}, start(rng) gives the policy of an episode, which maps an observation to an action")
    p.add_argument("--episodes", type=int, default=200, metavar="N", help="default: 200")
    p.add_argument("--seed", type=whole_number, default=0, metavar="S", help="default: 0")
    p.add_argument("--config", type=Path, metavar="FILE", help="settings of the task (default: the installed ones)")
    p.add_argument("--out", type=Path, required=True, metavar="D", help="the dataset's folder")
    p.add_argument("--truth", action="store_true",
                   help="keep beside it, in D.truth.json, which frames were shown badly on purpose; no learner reads that")

    p = action("import", _import, "bring in an .npz archive, robomimic HDF5, Minari or LeRobot v3 dataset, or MCAP bags")
    p.add_argument("file", type=Path, metavar="FILE", help="file, folder (of bags too) or Minari id")
    p.add_argument("--task", help="checks sizes and gives names; without it they come from the file")
    p.add_argument("--episode-length", type=int, metavar="N", help="npz only: every episode has N steps, ended by a time limit")
    p.add_argument("--fps", type=int, metavar="HZ", help="rate of the recording (default: the task's or the file's)")
    p.add_argument("--name", help="what the task is called (default: what the file calls it, else the file's name)")
    p.add_argument("--text", help="the task in a sentence (default: the file's)")
    p.add_argument("--robot", help="which robot it was recorded on (default: the file's)")
    for kind in ("observation", "action"):
        p.add_argument(f"--{kind}-names", metavar="A,B,…", help=f"a name for each number of the {kind} (default: the file's)")
        p.add_argument(f"--{kind}-units", metavar="U,V,…", help=f"a unit for each number of the {kind}, or one for all")
    p.add_argument("--out", type=Path, required=True, metavar="D", help="the new dataset's folder")

    p = action("export", _export, "write a dataset as another tool's file")
    p.add_argument("dataset", type=Path, metavar="D")
    p.add_argument("--format", choices=("npz", "robomimic", "minari"), required=True)
    p.add_argument("--out", type=Path, required=True, metavar="FILE", help="file, or folder for minari")

    p = action("info", _info, "show what a dataset holds")
    p.add_argument("dataset", type=Path, metavar="D")
    p.add_argument("--episodes", action="store_true", help="a line for every episode too")

    p = action("show", _show, "show one episode in the terminal: its facts, its path from above, its confidence")
    p.add_argument("dataset", type=Path, metavar="D")
    p.add_argument("episode", type=whole_number, metavar="EPISODE")
    p.add_argument("--run", dest="run_folder", type=Path, metavar="RUN", help="show the confidence that this run learned")
    p.add_argument("--plot", type=Path, metavar="FILE.png", help="also draw it, among the others")

    p = action("plot", _plot, "draw all demonstrations from above and from the side, green (good) to red (bad)")
    p.add_argument("dataset", type=Path, metavar="D")
    p.add_argument("--run", dest="run_folder", type=Path, metavar="RUN", help="colour by its confidence (default: by return)")
    p.add_argument("--out", type=Path, required=True, metavar="FILE.png", help="the picture; .svg and .pdf too")

    p = action("check", _check, "validate a dataset down to every number, all faults listed")
    p.add_argument("dataset", type=Path, metavar="D")
    p.add_argument("--repair", action="store_true", help="complete a save that was cut off")

    p = action("rank", _rank, "rank a few episodes: asks which of two is better; or by their return, or from a ranking file")
    p.add_argument("dataset", type=Path, metavar="D")
    how = p.add_mutually_exclusive_group()
    how.add_argument("--by", choices=("return",), help="order a spread subset by the recorded return")
    how.add_argument("--file", type=Path, metavar="R", help="YAML or CSV: ids, best first; ties are nested lists or share a line")
    how.add_argument("--clear", action="store_true", help="remove all ranks")
    p.add_argument("--fraction", type=float, default=0.05, metavar="F", help="with --by: share of the episodes (default: 0.05)")
    p.add_argument("--choose", choices=("returns", "unalike"), default="returns",
                   help="with --by: which episodes. returns: one from each part of their order; unalike: one of each kind, by "
                        "what was seen alone (default: returns)")
    p.add_argument("--seed", type=whole_number, default=0, metavar="S", help="with --by or --count: which episodes (default: 0)")
    which = p.add_mutually_exclusive_group()
    which.add_argument("--count", type=whole_number, metavar="K", help="ask: so many, spread over the people (default: 10)")
    which.add_argument("--episodes", nargs="+", metavar="ID", help="ask: about these, for example 3,17 20-24")
    p.add_argument("--who", metavar="NAME", help="ask: who answers (default: the user's name)")

    p = action("delete", _delete, "remove episodes; the ones after them move up")
    p.add_argument("dataset", type=Path, metavar="D")
    p.add_argument("episodes", nargs="+", metavar="ID", help="for example 3 7 10-14")
    p.add_argument("--yes", action="store_true", help="do not ask")

    p = action("rebuild", _rebuild, "make a recorded dataset again from its bags")
    p.add_argument("dataset", type=Path, metavar="D")
    p.add_argument("--out", type=Path, metavar="NEW", help="write it there instead of in place of the one in D")
    p.add_argument("--trim-idle", action=argparse.BooleanOptionalAction, help="leave idle ends out, or not (default: as was)")

    p = action("merge", _merge, "make one dataset of several (of a single one: pack its files)")
    p.add_argument("datasets", nargs="+", type=Path, metavar="D")
    p.add_argument("--out", type=Path, required=True, metavar="NEW")

    p = action("split", _split, "make two datasets of one by share or by episode ids")
    p.add_argument("dataset", type=Path, metavar="D")
    which = p.add_mutually_exclusive_group(required=True)
    which.add_argument("--fraction", type=float, metavar="F", help="share of the episodes that goes to the first")
    which.add_argument("--episodes", nargs="+", metavar="ID", help="the episodes that go to the first, for example 0-9 12")
    p.add_argument("--seed", type=whole_number, default=0, metavar="S", help="with --fraction: which episodes (default: 0)")
    p.add_argument("--out", type=Path, nargs=2, required=True, metavar=("FIRST", "SECOND"))


def _collect(args: argparse.Namespace) -> None:
    from cail_core.demos.collect import collect, mix_of, mix_of_function, mix_of_policies
    from cail_core.progress import bar
    from cail_core.tasks import get_task

    task = get_task(args.task, args.config)
    if args.demonstrators:
        mix = mix_of_function(task, args.demonstrators)
    else:
        mix = mix_of_policies(task, args.policies) if args.policies else mix_of(task, args.mix)
    with bar(f"collecting {args.task}", args.episodes) as advance:
        dataset = collect(task, mix, args.episodes, args.seed, args.out, truth=args.truth, progress=advance)
    _print_info(dataset)
    print(f"\nNext: cail demos rank {args.out} --by return --fraction {_worth_ranking(args.episodes)}")


def _import(args: argparse.Namespace) -> None:
    from cail_core.demos.importing import KINDS, Given, import_demos, split
    from cail_core.tasks import get_task

    spec = get_task(args.task).spec if args.task else None
    if args.fps is not None and args.fps < 1:
        raise BadInput(f"expected --fps of at least 1, given {args.fps}")
    given = Given(name=args.name, text=args.text, robot=args.robot, names={kind: split(getattr(args, f"{kind}_names"))
                  for kind in KINDS}, units={kind: split(getattr(args, f"{kind}_units")) for kind in KINDS})
    dataset, notes = import_demos(args.file, args.out, spec=spec, fps=args.fps, episode_length=args.episode_length, given=given)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    _print_info(dataset)
    by = "" if dataset.returns is None else f" --by return --fraction {_worth_ranking(dataset.episodes)}"
    print(f"\nNext: cail demos rank {args.out}{by}")


def _worth_ranking(episodes: int) -> float:
    """The share to rank: a twentieth, but of a few dozen episodes enough that they have an order."""
    return 0.05 if episodes >= 200 else 0.1 if episodes >= 100 else 0.3


def _export(args: argparse.Namespace) -> None:
    from cail_core.demos.edit import whole
    from cail_core.demos.importing import export_demos

    dataset = whole(args.dataset)
    export_demos(dataset, args.format, args.out)
    print(f"wrote {dataset.episodes} episodes, {dataset.frames} frames as {args.format} to {args.out}")


def _info(args: argparse.Namespace) -> None:
    from cail_core.demos.dataset import DemoDataset

    _print_info(DemoDataset(args.dataset), every=args.episodes)


def _show(args: argparse.Namespace) -> None:
    from cail_core.demos.dataset import DemoDataset
    from cail_core.demos.show import confidence_of, show

    dataset = DemoDataset(args.dataset)
    confidence = None if args.run_folder is None else confidence_of(args.run_folder, dataset)
    show(dataset, args.episode, confidence)
    if args.plot is not None:
        _draw(dataset, args.plot, confidence, args.episode)


def _plot(args: argparse.Namespace) -> None:
    from cail_core.demos.dataset import DemoDataset
    from cail_core.demos.show import confidence_of

    dataset = DemoDataset(args.dataset)
    _draw(dataset, args.out, None if args.run_folder is None else confidence_of(args.run_folder, dataset))


def _draw(dataset: DemoDataset, file: Path, confidence: Any, only: int | None = None) -> None:
    from cail_core.demos.show import motions, spec_of
    from cail_core.figures import demonstrations_figure

    spec = spec_of(dataset)
    if spec is None:
        raise BadInput(f"the task '{dataset.task}' is not installed here or has other observations: where things are is unknown")
    print(f"picture: {demonstrations_figure(file, dataset, spec, motions(dataset, spec), confidence, only)}")


def _check(args: argparse.Namespace) -> None:
    from cail_core.demos.check import check
    from cail_core.demos.dataset import DemoDataset
    from cail_core.demos.edit import repair

    if args.repair:
        repair(args.dataset)
    faults = check(args.dataset)
    if faults:
        raise BadInput(listed(str(args.dataset), faults))
    dataset = DemoDataset(args.dataset)
    print(f"{args.dataset}: sound, {dataset.episodes} episodes, {dataset.frames} frames")


def _rank(args: argparse.Namespace) -> None:
    from cail_core.demos.dataset import DemoDataset
    from cail_core.demos.edit import set_ranking
    from cail_core.ranking.diverse import unalike
    from cail_core.ranking.ranks import order_by_return, provenance, rank_by_return, read_ranking, share

    dataset = DemoDataset(args.dataset)
    if not (args.by or args.file or args.clear):
        _ask(args, dataset)
        return
    given = [f"--{name}" for name in ("count", "episodes", "who") if getattr(args, name) is not None]
    if given:
        raise BadInput(f"{', '.join(given)}: for ranking by asking, which --by, --file and --clear do not")
    if args.clear:
        ranking, how = {}, provenance("cleared")
    elif args.file is not None:
        ranking, how = read_ranking(args.file, dataset.episodes), provenance("file", file=args.file.name)
    else:
        if dataset.returns is None:
            raise BadInput(f"{args.dataset} holds no rewards, so there are no returns to rank by; give --file R")
        if args.choose == "unalike":
            chosen = unalike(dataset.demonstrations(), share(dataset.episodes, args.fraction), args.seed)
            ranking = order_by_return(dataset.returns, chosen)
        else:
            ranking = rank_by_return(dataset.returns, args.fraction, args.seed)
        how = provenance("return", fraction=args.fraction, choose=args.choose, seed=args.seed)
    set_ranking(args.dataset, ranking, how)
    if not ranking:
        print(f"{args.dataset}: all ranks removed")
        return
    _print_ranking(dataset, ranking)


def _ask(args: argparse.Namespace, dataset: DemoDataset) -> None:
    import getpass

    from cail_core.demos.edit import parse_ids
    from cail_core.ranking.comparisons import Comparisons, choose
    from cail_core.ranking.interactive import rank_by_asking

    comparisons = None
    if args.episodes is not None:
        chosen = parse_ids(args.episodes, dataset.episodes)
    elif args.count is not None:
        chosen = choose(dataset, args.count, args.seed)
    else:
        comparisons = Comparisons.last(dataset)
        chosen = [] if comparisons else choose(dataset, min(10, dataset.episodes), args.seed)
    comparisons = comparisons or Comparisons.of(dataset, chosen)
    ranking = rank_by_asking(dataset, comparisons, args.who or getpass.getuser())
    if ranking:
        _print_ranking(dataset, ranking)
    else:
        print(f"{args.dataset}: no order between any two episodes yet, so no ranks were set")
    if comparisons.answers and comparisons.progress.question is not None:
        print(f"{len(comparisons.answers)} answers kept; `cail demos rank {args.dataset}` goes on from there")


def _print_ranking(dataset: DemoDataset, ranking: dict[int, int]) -> None:
    best_first = sorted(ranking, key=lambda e: ranking[e])
    shown = " ".join(
        f"{'=' if i and ranking[e] == ranking[best_first[i - 1]] else '>' if i else ''}{e}" for i, e in enumerate(best_first)
    )
    print(f"{dataset.root}: {len(ranking)} of {dataset.episodes} episodes ranked, best first: {shown}")


def _delete(args: argparse.Namespace) -> None:
    from cail_core.demos.edit import delete, parse_ids, whole

    dataset = whole(args.dataset)
    ids = parse_ids(args.episodes, dataset.episodes)
    if not args.yes:
        if not sys.stdin.isatty():
            raise BadInput("deleting asks first, and there is no terminal to ask on; give --yes")
        answer = input(f"Delete {len(ids)} of {dataset.episodes} episodes ({', '.join(map(str, ids))}) of {args.dataset}? [y/N] ")
        if answer.strip().lower() not in ("y", "yes"):
            print("nothing deleted")
            return
    delete(args.dataset, ids)
    left = dataset.episodes - len(ids)
    print(
        f"{args.dataset}: {len(ids)} episodes deleted, {left} left"
        + (f"; episodes after {ids[0]} have new numbers" if ids[0] < left else "")
    )


def _rebuild(args: argparse.Namespace) -> None:
    from cail_core.progress import bar
    from cail_core.recording.bag import FOLDER, bags_of
    from cail_core.recording.episode_builder import Trim
    from cail_core.recording.rebuild import rebuild

    trim = None if args.trim_idle is None else Trim(on=args.trim_idle)
    with bar(f"rebuilding {args.dataset.name}", len(bags_of(args.dataset / FOLDER))) as advance:
        dataset, notes = rebuild(args.dataset, args.out, trim, advance)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    _print_info(dataset)


def _merge(args: argparse.Namespace) -> None:
    from cail_core.demos.dataset import DemoDataset
    from cail_core.demos.edit import merge

    merged = merge(args.datasets, args.out)
    if sum(any(row.rank for row in DemoDataset(d).rows) for d in args.datasets) > 1:
        print("note: ranks of different datasets cannot be compared; rank the new one", file=sys.stderr)
    _print_info(merged)


def _split(args: argparse.Namespace) -> None:
    from cail_core.demos.edit import parse_ids, split, whole

    n = whole(args.dataset).episodes
    if args.episodes is not None:
        first = parse_ids(args.episodes, n)
    else:
        if not 0 < args.fraction < 1:
            raise BadInput(f"expected --fraction between 0 and 1, given {args.fraction}")
        first = sorted(np.random.default_rng(args.seed).permutation(n)[: round(args.fraction * n)].tolist())
    second = [i for i in range(n) if i not in set(first)]
    split(args.dataset, [(args.out[0], first), (args.out[1], second)])
    print(f"{args.out[0]}: {len(first)} episodes; {args.out[1]}: {len(second)} episodes")


def _print_info(dataset: DemoDataset, every: bool = False) -> None:
    from cail_core.demos.check import interrupted
    from cail_core.progress import console, table

    rows = dataset.rows
    known = [row.undiscounted_return for row in rows if row.undiscounted_return is not None]
    ranked = sum(row.rank is not None for row in rows)
    console().print(
        f"{dataset.root}  task {dataset.task}, robot {dataset.info['robot_type']}, {dataset.info['fps']} Hz, "
        f"state {dataset.features['observation.state'].shape[0]}, action {dataset.features['action'].shape[0]}",
    )
    shown = table("demonstrator", "episodes", "frames", "return", "outcomes", "ranked")
    people = list(dict.fromkeys(row.demonstrator for row in rows))
    best_first = sorted(people, key=lambda who: -_mean([r.undiscounted_return for r in rows if r.demonstrator == who]))
    for who in [*best_first, None]:
        mine = [row for row in rows if who is None or row.demonstrator == who]
        if who is None:
            shown.add_section()
        outcomes = {o: sum(r.outcome == o for r in mine) for o in dict.fromkeys(r.outcome for r in mine)}
        ranks = sorted(r.rank for r in mine if r.rank is not None)
        shown.add_row(
            "all" if who is None else who,
            str(len(mine)),
            str(sum(r.length for r in mine)),
            _spread([r.undiscounted_return for r in mine]),
            ", ".join(f"{n} {o}" for o, n in outcomes.items()),
            f"{ranked} of {len(rows)}" if who is None else " ".join(map(str, ranks)),
        )
    console().print(shown)
    if every:
        listing = table("episode", "demonstrator", "frames", "return", "outcome", "rank")
        for row in rows:
            listing.add_row(
                str(row.episode_index),
                row.demonstrator,
                str(row.length),
                "–" if row.undiscounted_return is None else f"{row.undiscounted_return:.2f}",
                row.outcome,
                "" if row.rank is None else str(row.rank),
            )
        console().print(listing)
    if not known and rows:
        console().print("no rewards recorded: no returns")
    if interrupted(dataset):
        console().print(f"a save was cut off; `cail demos check {dataset.root} --repair` completes it")


def _mean(values: list[float | None]) -> float:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else 0.0


def _spread(values: list[float | None]) -> str:
    known = [v for v in values if v is not None]
    return f"{np.mean(known):.2f} ± {np.std(known):.2f}" if known else "–"
