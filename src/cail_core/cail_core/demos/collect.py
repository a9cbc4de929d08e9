"""Collects demonstrations from a task's demonstrators; episode k depends on the seed and k alone, so a cut-off run goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cail_core.config import to_dict
from cail_core.demos import layout
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.episode import Episode, end_flags, outcome_of
from cail_core.demos.features import ACTION, REWARD, STATE, SUCCESS, frame_features
from cail_core.demos.writer import DemoWriter
from cail_core.errors import BadInput
from cail_core.policy import load_demonstrators
from cail_core.tasks import BatchEnv, Demonstrator, Task

Mix = Sequence[tuple[Demonstrator, float]]
"""Who demonstrates, and which share of the episodes each gives."""


def schedule(mix: Mix, episodes: int) -> list[Demonstrator]:
    """Who gives which episode: at every length of the list the shares are met as closely as whole numbers allow."""
    given = [0] * len(mix)
    order = []
    for k in range(1, episodes + 1):
        behind = [share * k - n for (_, share), n in zip(mix, given, strict=True)]
        turn = int(np.argmax(behind))
        given[turn] += 1
        order.append(mix[turn][0])
    return order


def roll_out(env: BatchEnv, who: Demonstrator, seed: tuple[int, int], *, success: bool) -> Episode:
    """One episode of one demonstrator; the first state is the true reset state."""
    rng = np.random.default_rng(seed)
    policy = who.start(rng)
    observation = env.reset(seed=int(rng.integers(2**31)))[0]
    states, actions, rewards, successes = [], [], [], []
    while True:
        action = policy(observation)
        step = env.step(action[None])
        states.append(observation)
        actions.append(action)
        rewards.append(step.reward[0])
        successes.append(step.success[0])
        observation = step.observation[0]
        if step.terminated[0] or step.truncated[0]:
            break
    truncated = not bool(step.terminated[0])
    frames: dict[str, Any] = {
        STATE: np.stack(states),
        ACTION: np.stack(actions),
        REWARD: np.array(rewards, dtype=np.float32),
        **end_flags(len(states), truncated=truncated),
    }
    if success:
        frames[SUCCESS] = np.array(successes, dtype=bool)
    outcome = outcome_of(bool(successes[-1]) if success else None, truncated)
    return Episode(frames, step.next_observation[0].copy(), who.name, outcome)


def mix_of(task: Task, name: str) -> Mix:
    """The task's mix of that name."""
    mixes = task.mixes()
    if not mixes:
        raise BadInput(f"task '{task.spec.name}' brings no demonstrators; give saved policies with --policies")
    if name not in mixes:
        raise BadInput(f"expected a mix out of {', '.join(mixes)} for task '{task.spec.name}', given '{name}'")
    return mixes[name]


def mix_of_policies(task: Task, folders: Sequence[Path]) -> Mix:
    """Saved policies (or folders of them) as demonstrators, each with the same share of the episodes."""
    people = load_demonstrators(folders, task.spec)
    return [(who, 1 / len(people)) for who in people]


def collect(
    task: Task,
    mix: Mix,
    episodes: int,
    seed: int,
    out: Path,
    *,
    progress: Callable[[int], None] = lambda saved: None,
) -> DemoDataset:
    """Fill the dataset at `out` up to `episodes`; each is durable once saved, and the same call goes on where one stopped."""
    spec = task.spec
    if episodes < 1:
        raise BadInput(f"expected at least 1 episode, given {episodes}")
    recipe = {
        "demonstrators": {who.name: [share, who.version] for who, share in mix},
        "settings": to_dict(config) if (config := getattr(task, "config", None)) is not None else {},
        "episodes": episodes,
        "seed": seed,
    }
    if (out / layout.INFO).exists():
        known = DemoDataset(out)
        if known.task != spec.name or known.info["cail"].get("collect") != recipe:
            raise BadInput(
                f"{out} exists and was not collected with this task, its settings, mix, number of episodes and seed; "
                "choose another --out, or the same options to go on with it"
            )
        writer = DemoWriter.open(out)
    else:
        writer = DemoWriter.create(
            out,
            task=spec.name,
            text=spec.text,
            robot_type=spec.robot_type,
            fps=spec.fps,
            features=frame_features(spec.observation_names, spec.action_names, success=spec.has_success),
            about={"collect": recipe},
        )
    env = task.make_env(1)
    try:
        with writer:
            for k, who in list(enumerate(schedule(mix, episodes)))[writer.episodes :]:
                writer.save_episode(roll_out(env, who, (seed, k), success=spec.has_success))
                progress(writer.episodes)
    finally:
        env.close()
    return DemoDataset(out)
