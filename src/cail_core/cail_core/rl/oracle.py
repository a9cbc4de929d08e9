"""The oracle and the graded demonstrators of the MuJoCo tasks, as in the paper: reinforcement learning on the true reward,
of which the converged policy and four intermediate ones are kept (SAC for Reacher, PPO for Ant).

    cail oracle --task reacher --seed 7 --out DIR

The intermediate policies are snapshots of that one training run, chosen by their measured return alone. On Reacher those
worse than doing nothing (−11.7) come from its first hundred updates, when the actor follows critics that know nothing yet and
presses the joints to one side: the arm spins, as in the paper's figure.
How bad they get differs: over the seeds 0 to 12 the worst of the first 80 updates scored between −17 and −84. Only seed 7
passes through the −72 to −80 of the paper's mix, which is why the shipped policies are its. The settings in config/sac.yaml were
chosen for that too: with 5000 random steps before the first update (now 1000) and an initial temperature of 0.02 (now 0.001) no
snapshot was worse than −56.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from cail_core.config import find_config, load_config, to_dict
from cail_core.errors import BadInput
from cail_core.evaluation import evaluate
from cail_core.policy import Mode, network_of, save_policy
from cail_core.rl.networks import TanhGaussianActor
from cail_core.rl.ppo import PPO, PPOConfig
from cail_core.rl.rollout import collect
from cail_core.rl.sac import SAC, SACConfig, train_sac
from cail_core.tasks.base import Task


@dataclass(frozen=True)
class Recipe:
    """How the demonstrators of a task are made: the learner, its budget, and the returns wanted of the intermediate policies."""

    method: str
    steps: int
    wanted: dict[str, float]
    """Name and return of each intermediate policy; where empty, four at a fifth, two, three and four fifths of the way up."""
    look_episodes: int


RECIPES = {
    "reacher": Recipe(
        "sac", 400_000, {"early-9": -9.0, "early-42": -42.0, "early-72": -72.0, "early-78": -78.0, "early-80": -80.0},
        look_episodes=40),
    "ant": Recipe(
        "ppo", 3_000_000, {"early-0": 0.0, "early-500": 500.0, "early-1500": 1500.0, "early-3000": 3000.0}, look_episodes=5),
}


def recipe_of(task: str) -> Recipe:
    """The recipe of a task; one without its own gets PPO, and four intermediate policies that are evenly graded."""
    return RECIPES.get(task, Recipe("ppo", 1_000_000, {}, look_episodes=20))


@dataclass(frozen=True)
class Snapshot:
    """The actor at one moment of training and its mean return, measured on episodes of its own."""

    steps: int
    updates: int
    mean_return: float
    actor: TanhGaussianActor


def train_oracle(task: Task, recipe: Recipe, seed: int) -> Iterator[Snapshot]:
    """Train on the task's own reward and look at the policy ever less often: it changes most at the start."""
    generator = torch.Generator().manual_seed(seed)
    learn = _learn_sac if recipe.method == "sac" else _learn_ppo
    next_look = 1.0
    for actor, steps, updates in learn(task, recipe.steps, seed, generator):
        if updates >= next_look or steps >= recipe.steps:
            next_look = max(updates + 1.0, updates * 1.05)
            result = evaluate(task, Mode(network_of(actor)), recipe.look_episodes, seed)
            yield Snapshot(steps, updates, result.mean, copy.deepcopy(actor))


def _learn_sac(task: Task, steps: int, seed: int, generator: torch.Generator) -> Iterator[tuple[TanhGaussianActor, int, int]]:
    config = load_config(SACConfig, find_config("sac"))
    sac = SAC(task.spec.observation_dim, task.spec.action_dim, config, generator)
    env = task.make_env(config.num_envs)
    try:
        for taken, updates, _ in train_sac(sac, env, steps, seed):
            yield sac.actor, taken, updates
    finally:
        env.close()


def _learn_ppo(task: Task, steps: int, seed: int, generator: torch.Generator) -> Iterator[tuple[TanhGaussianActor, int, int]]:
    config = load_config(PPOConfig, find_config("ppo"))
    ppo = PPO(task.spec.observation_dim, task.spec.action_dim, config, generator)
    env = task.make_env(config.num_envs)
    try:
        observation = env.reset(seed)
        taken, updates = 0, 0
        while taken < steps:
            rollout = collect(env, observation, ppo, config.steps_per_env)
            ppo.update(rollout, rollout.env_reward)
            observation, taken, updates = rollout.current, taken + rollout.steps, updates + 1
            yield ppo.actor, taken, updates
    finally:
        env.close()


def choose(snapshots: Sequence[Snapshot], wanted: dict[str, float]) -> dict[str, Snapshot]:
    """`optimal`: the last snapshot, the converged policy. For each wanted return the snapshot nearest to it, none twice."""
    if not wanted and snapshots:
        first, last = snapshots[0].mean_return, snapshots[-1].mean_return
        wanted = {f"early-{k}": first + (last - first) * k / 5 for k in range(1, 5)}
    if len(snapshots) <= len(wanted):
        raise BadInput(f"expected more than {len(wanted)} snapshots to choose from, given {len(snapshots)}; train longer")
    free = list(snapshots[:-1])
    chosen = {"optimal": snapshots[-1]}
    for name, value in wanted.items():
        nearest = min(free, key=lambda snapshot: abs(snapshot.mean_return - value))
        free.remove(nearest)
        chosen[name] = nearest
    return chosen


def save_demonstrators(chosen: dict[str, Snapshot], task: Task, recipe: Recipe, seed: int, out: Path) -> dict[str, float]:
    """Write each chosen policy into `out`/<name>; gives the mean return of each over 100 fresh episodes."""
    file = find_config(recipe.method)
    config = to_dict(load_config(SACConfig, file) if recipe.method == "sac" else load_config(PPOConfig, file))
    returns = {}
    for name, snapshot in chosen.items():
        result = evaluate(task, Mode(network_of(snapshot.actor)), 100, seed + 1)
        low, high = result.mean_interval()
        nearest = f"snapshot with the measured return nearest to {recipe.wanted[name]:g}" if name in recipe.wanted else (
            "" if name == "optimal" else "an intermediate snapshot, by its measured return")
        provenance = {
            "command": f"cail oracle --task {task.spec.name} --steps {recipe.steps} --seed {seed} --out DIR",
            "data": "no demonstrations; reinforcement learning on the task's own reward",
            "chosen": nearest or "the last policy of the run",
            "seed": seed, "environment_steps": snapshot.steps, "updates": snapshot.updates,
            "mean_return": round(result.mean, 3), "std_return": round(result.std, 3),
            "mean_return_95": [round(low, 3), round(high, 3)], "evaluation_episodes": 100, "evaluation_seed": seed + 1,
            "config": config,
        }
        save_policy(out / name, snapshot.actor, task.spec, recipe.method, provenance)
        returns[name] = result.mean
    return returns
