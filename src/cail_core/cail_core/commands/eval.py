"""`cail eval`: how good a saved policy is on a task."""

from __future__ import annotations

import argparse
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

from cail_core.cli import whole_number
from cail_core.errors import BadInput
from cail_core.evaluation import Evaluation, describe, evaluate, plot, references
from cail_core.policy import PolicyRunner, load_policy
from cail_core.tasks import Task, get_task
from cail_core.tasks.base import DATA
from cail_core.video import check_format, film


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "eval", help="evaluate a policy",
        description="Let a policy play episodes of its own and print return and success. A policy "
        "whose task has no environment is held against demonstrations instead: those of its run, by cross-validation, or others.")
    parser.add_argument("--policy", type=Path, required=True, help="policy folder, for instance RUN/policy")
    parser.add_argument("--task", help="default: the task that the policy was trained for")
    parser.add_argument("--demos", type=Path, metavar="D", help="compare with what was done in these demonstrations instead")
    parser.add_argument("--episodes", type=int, default=100, help="default: 100")
    parser.add_argument("--seed", type=whole_number, default=0, help="the same seed gives the same episodes; default: 0")
    parser.add_argument("--no-references", action="store_true", help="do not also let the idle and the random policy play")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="also draw the distribution of the returns")
    parser.add_argument("--video", type=Path, metavar="FILE.gif", help="also film one episode (.gif or .mp4), or draw its curves "
                                                                       "where the task cannot be filmed")
    parser.add_argument("--over", choices=("process", "topics"), default="process",
                        help="topics: the same starts through the simulated arm's node in real time, and in process beside")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    policy = load_policy(args.policy)
    if args.task is None and (args.demos is not None or policy.card.task.startswith(f"{DATA}:")):
        return _held_out(args, policy)
    if args.demos is not None:
        raise BadInput("expected --task or --demos, given both: play in an environment, or compare with demonstrations")
    task = get_task(args.task or policy.card.task)
    policy.check(task.spec)
    if args.over == "topics":
        return _over_topics(args, task, policy)
    if args.video is not None:
        check_format(args.video)
    result = evaluate(task, policy, args.episodes, args.seed)
    print(describe(result, task.spec.has_success))
    if task.spec.has_success and not args.no_references and not task.spec.on_arm:
        print("for reference:")
        for name, reference in references(task, args.seed).items():
            played = evaluate(task, reference, max(1, args.episodes // 4), args.seed)
            print(f"        {name}: return {played.mean:.2f} ± {played.std:.2f}, success {100 * played.success_rate:.1f}%")
    if args.plot is not None:
        plot(result, f"{policy.card.method} on {task.spec.name}", args.plot)
    if args.video is not None:
        print(f"video: {film(task, policy, args.seed, args.video)}")
    return 0


def _held_out(args: argparse.Namespace, policy: PolicyRunner) -> int:
    """Without an environment: what the policy does in states of demonstrations, beside what was done there."""
    from cail_core.demos.dataset import DemoDataset
    from cail_core.held_out import describe, of_policy
    from cail_core.report.material import read_run
    from cail_core.report.offline import of_run, who_is_trusted

    asked = [name for name in ("plot", "video") if getattr(args, name) is not None]
    if asked or args.over != "process":
        raise BadInput(f"{' and '.join(f'--{name}' for name in asked) or '--over'}: needs an environment to play in, and "
                       f"'{policy.card.task}' has none; give one with --task")
    folder = args.policy.resolve().parent
    of_a_run = args.policy.resolve().name == "policy" and (folder / "config.yaml").is_file()
    if args.demos is not None:
        dataset = DemoDataset(args.demos)
        if not of_a_run or dataset.demonstrations().digest() != read_run(folder).config.get("demonstrations"):
            print("\n".join(describe(of_policy(policy, dataset))))
            return 0
        print("these demonstrations trained it, so some are held out:")
    if not of_a_run:
        raise BadInput(f"{args.policy}: its task '{policy.card.task}' has no environment, and it does not lie in its run; give "
                       "--demos D with demonstrations to compare with, or an environment with --task")
    run = read_run(folder, args.demos)
    print("\n".join([*describe(of_run(run)), *who_is_trusted(run)]))
    return 0


def _over_topics(args: argparse.Namespace, task: Task, policy: PolicyRunner) -> int:
    from cail_core.over_topics import in_process, node_seed, play_over_topics

    spec = task.spec
    if not spec.simulated_by:
        raise BadInput(f"expected a task that a simulated arm plays over topics (simulated_by in its spec), given '{spec.name}'")
    print(f"{args.episodes} episodes through the node of {spec.simulated_by}, in real time: at most "
          f"{spec.max_steps / spec.fps:.0f} s each", flush=True)
    played = play_over_topics(args.policy, spec.simulated_by, args.episodes, node_seed(args.seed), "--task", spec.name)
    here = in_process(task, policy, args.episodes, args.seed)
    topics = Evaluation(np.array([one.total for one in played]), np.array([round(one.seconds * spec.fps) for one in played]),
                        np.array([one.outcome == "success" for one in played]))
    for name, result in (("over the topics", topics), ("in process", here)):
        print(f"{name}:\n{describe(result, spec.has_success)}")
    same = int((topics.success == here.success).sum())
    print(f"the same end in {same} of {args.episodes} episodes"
          + ("" if _puts_all_back(spec.simulated_by) else "; the tool begins elsewhere over the topics"))
    return 0


def _puts_all_back(robot: str) -> bool:
    """Whether a reset of the robot puts its arm back too; robots are of packages that build on this one."""
    return any(entry.load().resets.value == "all" for entry in entry_points(group="cail.arms") if entry.name == robot)
