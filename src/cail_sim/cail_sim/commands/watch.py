"""`cail watch`: see a policy, a script or a recorded demonstration, in a window or as a film."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cail_core.cli import say, whole_number
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.features import ACTION, CONFIDENCE, STATE
from cail_core.errors import BadInput
from cail_core.policy import load_policy
from cail_core.progress import bar
from cail_core.tasks import Policy, Task, get_task
from cail_core.tasks.base import GYM, Array
from cail_core.video import film
from cail_sim.bullet.window import has_display

# Importing this must not need PyBullet: `cail --help` reads it on every machine.


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "watch", help="see a policy, a script or a demonstration act in simulation",
        description="Opens a window where there is a display; elsewhere, or with --out, makes a film.")
    parser.add_argument("--task", help="a simulated task, such as panda, or gym:[MODULE:]ID, which is filmed; default: that of "
                                       "the policy or the demonstrations")
    parser.add_argument("--policy", metavar="P", default="script",
                        help="a policy folder, `script` (the best one), the name of a demonstrator, or `random`; default: script")
    parser.add_argument("--demos", type=Path, metavar="D", help="replay a recorded demonstration of this dataset instead")
    parser.add_argument("--episode", type=whole_number, default=0, help="which one; default: 0")
    parser.add_argument("--run", type=Path, metavar="RUN", help="colour its path by the confidence that this run learned",
                        dest="run_folder")
    parser.add_argument("--seed", type=whole_number, default=0, help="the same seed gives the same episode; default: 0")
    parser.add_argument("--out", type=Path, metavar="FILE", help="make a film there: .mp4 or .gif")
    parser.set_defaults(run=run)


@dataclass
class Scenario:
    """What is to be seen."""

    task: Any
    policy: Policy
    title: str
    begin: Any = None
    confidence: Sequence[float] | None = None


def run(args: argparse.Namespace) -> int:
    if args.out is not None and args.out.suffix.lower() not in (".mp4", ".gif"):
        raise BadInput(f"expected a file that ends in .mp4 or .gif, given '{args.out}'")
    if args.demos is None and (task := _filmed_by_itself(args)) is not None:
        return _film(args, task)
    from cail_sim.bullet.render import render_episode, save_film

    scenario = _recorded(args) if args.demos is not None else _played(args)
    if args.out is None and has_display():
        _window(scenario, args.seed)
        return 0
    out = args.out or Path(f"watch-{scenario.task.spec.name}-{args.seed}.mp4")
    if out.exists():
        raise BadInput(f"expected a file that does not exist yet, given {out}; choose another with --out, or remove it first")
    if args.out is None:
        say("no display here, so a film")
    with bar("film", scenario.task.spec.max_steps) as advance:
        film = render_episode(scenario.task, scenario.policy, seed=args.seed, title=scenario.title, begin=scenario.begin,
                              confidence=scenario.confidence, progress=advance)
    file, remark = save_film(film, out)
    if remark:
        say(remark)
    outcome = film.outcome.value if film.outcome else "not ended"
    print(f"{scenario.title}: {outcome}, return {film.total:.2f}, {film.decisions} decisions\nfilm: {file}")
    return 0


def _filmed_by_itself(args: argparse.Namespace) -> Task | None:
    """The task, where it is a Gymnasium environment: that draws itself."""
    name = args.task
    if name is None and Path(args.policy).is_dir():
        name = load_policy(Path(args.policy)).card.task
    return get_task(name) if name is not None and name.startswith(f"{GYM}:") else None


def _film(args: argparse.Namespace, task: Task) -> int:
    rng, spec = np.random.default_rng(args.seed), task.spec
    if Path(args.policy).is_dir():
        runner = load_policy(Path(args.policy))
        runner.check(spec)
        policy: Policy = runner
    elif args.policy == "random":
        def policy(observation: Array) -> Array:
            return rng.uniform(-1, 1, (len(observation), spec.action_dim)).astype(np.float32)
    else:
        raise BadInput(f"expected a policy folder or random for '{spec.name}', given '{args.policy}': give --policy P")
    out = args.out or Path(f"watch-{spec.robot_type.replace('/', '-')}-{args.seed}.mp4")
    if out.exists():
        raise BadInput(f"expected a file that does not exist yet, given {out}; choose another with --out, or remove it first")
    print(f"film: {film(task, policy, args.seed, out)}")
    return 0


def _simulated(name: str) -> Any:
    from cail_sim.tasks.panda import Panda

    task = get_task(name)
    if not isinstance(task, Panda):
        raise BadInput(f"expected a task with a simulated arm to watch, such as panda or panda-carry, given '{name}'")
    return task


def _played(args: argparse.Namespace) -> Scenario:
    rng = np.random.default_rng(args.seed)
    if Path(args.policy).is_dir():
        runner = load_policy(Path(args.policy))
        task = _simulated(args.task or runner.card.task)
        runner.check(task.spec)
        return Scenario(task, runner, f"{task.spec.name}, {runner.card.method}")
    task = _simulated(args.task or "panda")
    if args.policy == "random":
        return Scenario(task, lambda observation: rng.uniform(-1, 1, task.spec.action_dim).astype(np.float32),
                        f"{task.spec.name}, random")
    people = task.demonstrators()
    name = "best" if args.policy == "script" else args.policy
    if name not in people:
        raise BadInput(f"expected a policy folder, script, random or one of {', '.join(people)}, given '{args.policy}'")
    return Scenario(task, people[name].start(rng), f"{task.spec.name}, script {name}")


def _recorded(args: argparse.Namespace) -> Scenario:
    """A demonstration acted again: from where it began, with its actions."""
    from cail_sim.bullet.render import observed_start

    dataset = DemoDataset(args.demos)
    task = _simulated(args.task or dataset.task)
    if dataset.task != task.spec.name:
        raise BadInput(f"{args.demos} holds demonstrations of '{dataset.task}', not of '{task.spec.name}'")
    if args.episode >= dataset.episodes:
        raise BadInput(f"expected an episode from 0 to {dataset.episodes - 1} of {args.demos}, given {args.episode}")
    episode = dataset.episode(args.episode)
    actions = iter(episode.frames[ACTION])
    confidence = _confidence(args, dataset, episode.frames.get(CONFIDENCE))

    def again(observation: Array) -> Array:
        still: Array = np.zeros(task.spec.action_dim, dtype=np.float32)
        return next(actions, still)

    title = f"episode {args.episode}, {episode.demonstrator}"
    return Scenario(task, again, title, observed_start(task, episode.frames[STATE][0]), confidence)


def _confidence(args: argparse.Namespace, dataset: DemoDataset, stored: Any) -> Sequence[float] | None:
    """For each frame, from the run or else from the dataset, where either knows it."""
    if args.run_folder is None:
        return None if stored is None else [float(value) for value in np.ravel(stored)]
    from cail_core.report.material import read_run

    run = read_run(args.run_folder)
    if run.confidence is None or len(run.confidence) != dataset.frames:
        raise BadInput(f"{args.run_folder} has no confidence for {args.demos}; give the run that was trained on it")
    row = dataset.rows[args.episode]
    return [float(value) for value in run.confidence[row.from_index : row.to_index]]


def _window(scenario: Scenario, seed: int) -> None:
    """Act in real time in PyBullet's window until the episode ends or the window is closed."""
    from cail_sim.bullet.render import CARRYING, REACHING, trust_colour

    env = scenario.task.one(visible=True, window=True)
    p, client = env.world.engine, env.world.client
    try:
        if scenario.begin is not None:
            env.start_at(scenario.begin)
        else:
            env.start(np.random.default_rng(seed))
        total, outcome, decision, due = 0.0, None, 0, time.monotonic()
        while outcome is None:
            before = env.scene.tool
            reward, outcome = env.decide(scenario.policy(np.array(env.observe(), dtype=np.float32)).tolist())
            total += reward
            colour = CARRYING if env.task.closing else REACHING
            if scenario.confidence is not None and decision < len(scenario.confidence):
                colour = trust_colour(scenario.confidence[decision])
            p.addUserDebugLine(before, env.scene.tool, [c / 255 for c in colour], 4, physicsClientId=client)
            decision += 1
            due += env.world.task.decision_s
            time.sleep(max(0.0, due - time.monotonic()))
        print(f"{scenario.title}: {outcome.value}, return {total:.2f}, {decision} decisions")
        time.sleep(1.5)
    except p.error:
        say("the window was closed")
    finally:
        env.close()
