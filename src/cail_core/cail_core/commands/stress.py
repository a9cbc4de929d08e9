"""`cail stress`: how a policy does when the arm, the tracker or the grasp differ from the simulator that it learned in."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cail_core.cli import whole_number
from cail_core.policy import load_policy
from cail_core.stress.played import EPISODES, STRESS
from cail_core.tasks import get_task

PLOT = "stress.png"


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "stress", help="find what makes a policy fail before an arm moves",
        description="Play under delay, other speeds, grasps and trackers, each alone at three strengths and all together, and "
        "with each observation moved by what its sensors may be wrong by. What is found goes onto the policy's card, which `cail "
        "deploy` holds against the arm. Started again after it was stopped, it goes on.")
    parser.add_argument("--policy", type=Path, required=True, metavar="P", help="policy folder, for instance RUN/policy")
    parser.add_argument("--task", metavar="T", help="default: the task that the policy was trained for")
    parser.add_argument("--episodes", type=whole_number, default=EPISODES, metavar="N",
                        help=f"of each case, three times as many as trained (default: {EPISODES})")
    parser.add_argument("--seed", type=whole_number, default=0, metavar="S",
                        help="the same seed gives the same episodes; default: 0")
    parser.add_argument("--short", action="store_true",
                        help="only the ends of the ranges that matter most: what `cail train` plays")
    parser.add_argument("--out", type=Path, metavar="DIR",
                        help=f"for {STRESS} and {PLOT} (default: RUN, for a policy elsewhere the folder NAME-stress beside it)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from cail_core import durable
    from cail_core.progress import bar, console
    from cail_core.stress.card import place, write_card
    from cail_core.stress.findings import sentences
    from cail_core.stress.played import checked, stress
    from cail_core.stress.show import conditions_table, figure, moved_table

    policy = load_policy(args.policy)
    task = checked(policy, get_task(args.task or policy.card.task), args.episodes)
    folder = args.out or place(args.policy)
    durable.make_folder(folder)
    with bar("stress", 1) as advance:
        results = stress(policy, task, folder, short=args.short, episodes=args.episodes, seed=args.seed, advance=advance)
    show = console()
    for table in (conditions_table(results), moved_table(results)):
        if table is not None:
            show.print(table)
    show.print("! a loss: more than 10 points below as trained, and not chance", soft_wrap=True)
    name = args.policy.resolve().parent.name if args.policy.resolve().name == "policy" else args.policy.resolve().name
    show.print(f"plot: {figure(results, f'{name} on {task.spec.name}', folder / PLOT)}", soft_wrap=True)
    if task.spec.name != policy.card.task:
        show.print(f"card: not changed, since the policy was trained for '{policy.card.task}'", soft_wrap=True)
    elif write_card(args.policy, results):
        show.print(f"card: {args.policy / 'README.md'}", soft_wrap=True)
    else:
        show.print("card: not changed, since what it says rests on more episodes", soft_wrap=True)
    for text in sentences(results):
        show.print(text, soft_wrap=True)
    return 0
