"""The oracle and the graded demonstrators of the MuJoCo tasks, as in the paper: reinforcement learning on the true reward,
of which the converged policy and four intermediate ones are kept (SAC for Reacher, PPO for Ant).

    cail oracle --task reacher --seed 7 --out DIR

The intermediate policies are snapshots of that one training run, chosen by their measured return alone. On Reacher those
worse than doing nothing (−11.7) come from its first hundred updates, when the actor follows critics that know nothing yet and
presses the joints to one side: the arm spins, as in the paper's figure.
How bad they get differs: over the seeds 0 to 12 the worst of the first 80 updates scored between −17 and −84. Only seed 7
passes through −72 to −80, which is why the shipped policies are its. The settings in config/sac.yaml were
chosen for that too: with 5000 random steps before the first update (now 1000) and an initial temperature of 0.02 (now 0.001) no
snapshot was worse than −56.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cail_bench.demonstrators.running import DiscountedReturn, Running
from cail_bench.demonstrators.sac import SAC, SACConfig, train_sac
from cail_core import __version__, durable
from cail_core.config import find_config, load_config, to_dict
from cail_core.errors import BadInput
from cail_core.evaluation import evaluate
from cail_core.policy import Mode, network_of, save_policy
from cail_core.rl.networks import TanhGaussianActor
from cail_core.rl.ppo import PPO, PPOConfig
from cail_core.rl.rollout import Rollout, collect
from cail_core.tasks.base import Task
from cail_core.training.checkpoint import read_about, read_checkpoint, write_checkpoint

CHECKPOINT = "oracle.safetensors"
CHECKPOINT_EVERY = 20
"""Updates of PPO. Environments start anew at each, in every run, because they cannot be saved."""


@dataclass(frozen=True)
class Recipe:
    """How the demonstrators of a task are made: the learner, its budget, and the returns wanted of the intermediate policies."""

    method: str
    steps: int
    wanted: dict[str, float]
    """Name and return of each intermediate policy; where empty, four at a fifth, two, three and four fifths of the way up."""
    look_episodes: int
    candidates: int = 1
    """How many snapshots are measured again for each wanted return; with 1 the nearest is taken as it is."""
    settings: str = ""
    """Name of the learner's YAML file in config/; where empty, the learner's defaults."""

    @property
    def config(self) -> SACConfig | PPOConfig:
        cls: type[SACConfig] | type[PPOConfig] = SACConfig if self.method == "sac" else PPOConfig
        return load_config(cls, find_config(self.settings)) if self.settings else cls()


RECIPES = {
    "reacher": Recipe(
        "sac", 400_000, {"early-9": -9.0, "early-10": -9.6, "early-42": -42.0, "early-72": -72.0, "early-78": -78.0,
                         "early-80": -80.0}, look_episodes=40, settings="sac"),
    "ant": Recipe(
        "ppo", 3_000_000, {"early-1000": 1000.0, "early-2100": 2100.0, "early-2900": 2900.0, "early-3700": 3700.0},
        look_episodes=10, candidates=4, settings="oracle-ant"),
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


def train_oracle(task: Task, recipe: Recipe, seed: int, out: Path | None = None) -> Iterator[Snapshot]:
    """Train on the task's own reward and look at the policy ever less often: it changes most at the start.

    With `out`, PPO keeps its state there and goes on after it when it is called again; the snapshots so far come first.
    """
    generator = torch.Generator().manual_seed(seed)
    if recipe.method == "ppo":
        yield from _PPOOracle(task, recipe, seed, generator).train(out)
        return
    next_look = 1.0
    for actor, steps, updates in _learn_sac(task, recipe, seed, generator):
        if updates >= next_look or steps >= recipe.steps:
            next_look = _after(updates)
            yield _look(task, recipe, seed, actor, steps, updates)


def _after(updates: int) -> float:
    return max(updates + 1.0, updates * 1.05)


def _look(task: Task, recipe: Recipe, seed: int, actor: TanhGaussianActor, steps: int, updates: int) -> Snapshot:
    result = evaluate(task, Mode(network_of(actor)), recipe.look_episodes, seed)
    return Snapshot(steps, updates, result.mean, copy.deepcopy(actor))


def _learn_sac(task: Task, recipe: Recipe, seed: int, generator: torch.Generator) -> Iterator[tuple[TanhGaussianActor, int, int]]:
    config = recipe.config
    assert isinstance(config, SACConfig)
    sac = SAC(task.spec.observation_dim, task.spec.action_dim, config, generator)
    env = task.make_env(config.num_envs)
    try:
        for taken, updates, _ in train_sac(sac, env, recipe.steps, seed):
            yield sac.actor, taken, updates
    finally:
        env.close()


class _PPOOracle:
    """PPO on the task's reward: observations standardised and rewards scaled by what was seen so far, the rate falling to 0."""

    def __init__(self, task: Task, recipe: Recipe, seed: int, generator: torch.Generator) -> None:
        config = recipe.config
        assert isinstance(config, PPOConfig)
        self.task, self.recipe, self.seed, self.config = task, recipe, seed, config
        self.ppo = PPO(task.spec.observation_dim, task.spec.action_dim, config, generator)
        self.seen = Running(task.spec.observation_dim)
        self.income = DiscountedReturn(config.num_envs, config.gamma)
        self.taken, self.updates, self.next_look = 0, 0, 1.0
        self.snapshots: list[Snapshot] = []

    def train(self, out: Path | None) -> Iterator[Snapshot]:
        if out is not None and (out / CHECKPOINT).exists():
            self._restore(out / CHECKPOINT)
        yield from self.snapshots
        env = self.task.make_env(self.config.num_envs)
        try:
            while self.taken < self.recipe.steps:
                observation = env.reset(self.seed + self.updates)
                self.income.restart()
                for _ in range(CHECKPOINT_EVERY):
                    rollout = collect(env, observation, self.ppo, self.config.steps_per_env)
                    observation = rollout.current
                    self._update(rollout)
                    if self.updates >= self.next_look or self.taken >= self.recipe.steps:
                        self.next_look = _after(self.updates)
                        self.snapshots.append(_look(self.task, self.recipe, self.seed, self.ppo.actor, self.taken, self.updates))
                        yield self.snapshots[-1]
                    if self.taken >= self.recipe.steps:
                        break
                if out is not None:
                    self._keep(out)
        finally:
            env.close()

    def _update(self, rollout: Rollout) -> None:
        scale = self.income.scale(rollout.env_reward, rollout.terminated | rollout.truncated)
        self.ppo.set_learning_rate(self.config.learning_rate * (1.0 - self.taken / self.recipe.steps))
        self.ppo.update(rollout, rollout.env_reward / scale)
        self.seen.add(rollout.observation.flatten(0, 1))
        self.ppo.standardise_observations(self.seen.mean, self.seen.deviation)
        self.taken += rollout.steps
        self.updates += 1

    def _about(self) -> dict[str, Any]:
        config = {name: list(value) if isinstance(value, tuple) else value for name, value in to_dict(self.config).items()}
        return {"version": __version__, "task": self.task.spec.name, "seed": self.seed, "steps": self.recipe.steps,
                "settings": config}

    def _keep(self, out: Path) -> None:
        durable.make_folder(out)
        found = [{"steps": s.steps, "updates": s.updates, "mean_return": s.mean_return, "actor": s.actor.state_dict()}
                 for s in self.snapshots]
        write_checkpoint(out / CHECKPOINT, {
            "ppo": self.ppo.state_dict(), "seen": self.seen.state_dict(), "income": self.income.state_dict(),
            "taken": self.taken, "updates": self.updates, "next_look": self.next_look, "snapshots": found}, self._about())

    def _restore(self, path: Path) -> None:
        held, about = read_about(path), self._about()
        if held != about:
            differ = ", ".join(name for name in about if held.get(name) != about[name])
            raise BadInput(f"{path.parent} holds another run (it differs in {differ}); choose another --out")
        state = read_checkpoint(path)
        self.ppo.load_state_dict(state["ppo"])
        self.seen.load_state_dict(state["seen"])
        self.income.load_state_dict(state["income"])
        self.taken, self.updates, self.next_look = state["taken"], state["updates"], state["next_look"]
        for kept in state["snapshots"]:
            actor = copy.deepcopy(self.ppo.actor)
            actor.load_state_dict(kept["actor"])
            self.snapshots.append(Snapshot(kept["steps"], kept["updates"], kept["mean_return"], actor))


def choose(snapshots: Sequence[Snapshot], wanted: dict[str, float], candidates: int = 1,
           again: Callable[[Snapshot], float] = lambda snapshot: snapshot.mean_return) -> dict[str, Snapshot]:
    """`optimal`: the last snapshot, the converged policy. For each wanted return the snapshot nearest to it, none twice.

    Where a look is short and returns spread widely, the nearest few `candidates` are measured `again`.
    """
    if not wanted and snapshots:
        first, last = snapshots[0].mean_return, snapshots[-1].mean_return
        wanted = {f"early-{k}": first + (last - first) * k / 5 for k in range(1, 5)}
    if len(snapshots) <= len(wanted):
        raise BadInput(f"expected more than {len(wanted)} snapshots to choose from, given {len(snapshots)}; train longer")
    free = list(snapshots[:-1])
    chosen = {"optimal": snapshots[-1]}
    for name, value in wanted.items():
        few = sorted(free, key=lambda snapshot: abs(snapshot.mean_return - value))[:candidates]
        nearest = min(few, key=lambda snapshot: abs(again(snapshot) - value))
        free.remove(nearest)
        chosen[name] = nearest
    return chosen


def save_demonstrators(chosen: dict[str, Snapshot], task: Task, recipe: Recipe, seed: int, out: Path) -> dict[str, float]:
    """Write each chosen policy into `out`/<name>; gives the mean return of each over 100 fresh episodes."""
    config = to_dict(recipe.config)
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
