"""The paper's MuJoCo tasks, Reacher and Ant, with the dynamics, observations and rewards of Gymnasium's Reacher-v4 and Ant-v4.

MuJoCo is stepped directly, one `MjData` per environment on one shared model: bit-equal to Gymnasium, and the same seed gives the
same episodes on every machine with the same MuJoCo.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from cail_core.config import find_config, load_config, setting
from cail_core.errors import ConfigError, MissingDependency, how_to_add, listed
from cail_core.policy import demonstrator
from cail_core.tasks.base import Array, BatchEnv, Demonstrator, Flags, Step, TaskSpec, Thing, View

Doubles = NDArray[np.float64]

SHIPPED = Path(__file__).resolve().parents[1] / "data"


@dataclass(frozen=True)
class MujocoConfig:
    """`config/reacher.yaml` and `config/ant.yaml`."""

    max_steps: int = setting(50, "time limit, steps", low=1)
    threads: int = setting(2, "threads that step the environments; the episodes do not depend on it", low=1)
    mixes: dict[str, dict[str, float]] = setting({}, "named mixes: share of the episodes by saved policy")

    def __post_init__(self) -> None:
        faults = [f"mixes.{mix}: shares sum to {sum(shares.values()):g}, expected 1"
                  for mix, shares in self.mixes.items() if not abs(sum(shares.values()) - 1) <= 1e-6]
        if faults:
            raise ConfigError(listed("MuJoCo task config", faults))


@dataclass(frozen=True)
class Physics:
    """A Gymnasium MuJoCo task, split into what differs between tasks. Positions are q, velocities v, body positions x."""

    xml: str
    frame_skip: int
    bodies: tuple[str, ...]
    start: Callable[[np.random.Generator, Doubles, Doubles], tuple[Doubles, Doubles]]  # rng, q0, v0 -> q, v
    observe: Callable[[Doubles, Doubles, Doubles], Doubles]  # q [n, nq], v [n, nv], x [n, bodies, 3] -> [n, observation]
    reward: Callable[[Doubles, Doubles, Doubles, float], Doubles]  # x before, x after, action [n, a], dt -> [n]
    ended: Callable[[Doubles, Doubles], Flags]  # q, v -> [n]


def load_mujoco() -> ModuleType:
    try:
        return importlib.import_module("mujoco")
    except ImportError as fault:
        raise MissingDependency(f"the tasks reacher and ant need MuJoCo ({fault}); {how_to_add('mujoco')}") from None


def asset(name: str) -> str:
    """A model file of Gymnasium, found without importing Gymnasium."""
    found = importlib.util.find_spec("gymnasium")
    places = found.submodule_search_locations if found else None
    path = Path(places[0], "envs", "mujoco", "assets", name) if places else None
    if path is None or not path.exists():
        raise MissingDependency(f"Gymnasium's model file {name} was not found; {how_to_add('mujoco')}")
    return str(path)


class MujocoEnv:
    """A batch of environments of one task."""

    def __init__(self, num_envs: int, physics: Physics, max_steps: int, threads: int) -> None:
        self.num_envs = num_envs
        self._mujoco = load_mujoco()
        self._physics = physics
        self._max_steps = max_steps
        self._model = self._mujoco.MjModel.from_xml_path(asset(physics.xml))
        self._dt = self._model.opt.timestep * physics.frame_skip
        self._bodies = [self._mujoco.mj_name2id(self._model, self._mujoco.mjtObj.mjOBJ_BODY, name) for name in physics.bodies]
        self._data = [self._mujoco.MjData(self._model) for _ in range(num_envs)]
        self._q0, self._v0 = self._data[0].qpos.copy(), self._data[0].qvel.copy()
        # Views into MuJoCo's memory, taken once: each attribute access of an MjData costs as much as the copy itself.
        self._views = [(data.ctrl, data.qpos, data.qvel, data.xpos) for data in self._data]
        self._q = np.zeros((num_envs, self._model.nq))
        self._v = np.zeros((num_envs, self._model.nv))
        self._x = np.zeros((num_envs, self._model.nbody, 3))
        self._steps = np.zeros(num_envs, dtype=np.int64)
        self._rngs = [np.random.default_rng(i) for i in range(num_envs)]
        threads = min(threads, num_envs)
        self._parts = [list(map(int, part)) for part in np.array_split(np.arange(num_envs), threads)]
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def reset(self, seed: int) -> Array:
        # One generator for each environment, so that its episodes do not depend on when the others end.
        self._rngs = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(self.num_envs)]
        for i in range(self.num_envs):
            self._start(i)
        return self._observe()

    def step(self, action: Array) -> Step:
        a = np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0)
        before = self._x[:, self._bodies]
        if self._pool is None:
            self._advance(a, self._parts[0])
        else:
            list(self._pool.map(lambda part: self._advance(a, part), self._parts))
        self._steps += 1
        reward = self._physics.reward(before, self._x[:, self._bodies], a, self._dt).astype(np.float32)
        terminated = self._physics.ended(self._q, self._v)
        truncated = (self._steps >= self._max_steps) & ~terminated
        reached = observation = self._observe()
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            for i in ended:
                self._start(int(i))
            observation = self._observe()
        return Step(observation, reached, reward, terminated, truncated, np.zeros(self.num_envs, dtype=np.bool_))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _advance(self, action: Doubles, which: Sequence[int]) -> None:
        for i in which:
            self._views[i][0][:] = action[i]
            self._mujoco.mj_step(self._model, self._data[i], self._physics.frame_skip)
            self._read(i)

    def _start(self, i: int) -> None:
        data = self._data[i]
        self._mujoco.mj_resetData(self._model, data)
        data.qpos[:], data.qvel[:] = self._physics.start(self._rngs[i], self._q0, self._v0)
        self._mujoco.mj_forward(self._model, data)
        self._steps[i] = 0
        self._read(i)

    def _read(self, i: int) -> None:
        _, self._q[i], self._v[i], self._x[i] = self._views[i]

    def _observe(self) -> Array:
        return self._physics.observe(self._q, self._v, self._x[:, self._bodies]).astype(np.float32)


def reacher_start(rng: np.random.Generator, q0: Doubles, v0: Doubles) -> tuple[Doubles, Doubles]:
    q = rng.uniform(-0.1, 0.1, len(q0)) + q0
    goal = rng.uniform(-0.2, 0.2, 2)
    while np.linalg.norm(goal) >= 0.2:  # out of the arm's reach
        goal = rng.uniform(-0.2, 0.2, 2)
    v = v0 + rng.uniform(-0.005, 0.005, len(v0))
    q[-2:], v[-2:] = goal, 0.0
    return q, v


def effort(action: Doubles) -> Doubles:
    """‖a‖² of each action."""
    squared: Doubles = np.square(action).sum(axis=1)
    return squared


def reacher_reward(before: Doubles, after: Doubles, action: Doubles, dt: float) -> Doubles:
    """−‖fingertip − target‖ where the action was chosen, −‖a‖²."""
    distance: Doubles = np.linalg.norm(before[:, 0] - before[:, 1], axis=1)
    return -distance - effort(action)


REACHER = Physics(
    xml="reacher.xml",
    frame_skip=2,
    bodies=("fingertip", "target"),
    start=reacher_start,
    observe=lambda q, v, x: np.concatenate([np.cos(q[:, :2]), np.sin(q[:, :2]), q[:, 2:], v[:, :2], x[:, 0] - x[:, 1]], axis=1),
    reward=reacher_reward,
    ended=lambda q, v: np.zeros(len(q), dtype=np.bool_),
)


def ant_start(rng: np.random.Generator, q0: Doubles, v0: Doubles) -> tuple[Doubles, Doubles]:
    return q0 + rng.uniform(-0.1, 0.1, len(q0)), v0 + 0.1 * rng.standard_normal(len(v0))


def ant_reward(before: Doubles, after: Doubles, action: Doubles, dt: float) -> Doubles:
    """Forward speed of the torso + 1 for being alive − ½‖a‖²."""
    return (after[:, 0, 0] - before[:, 0, 0]) / dt + 1.0 - 0.5 * effort(action)


def ant_fallen(q: Doubles, v: Doubles) -> Flags:
    finite: Flags = np.isfinite(np.concatenate([q, v], axis=1)).all(axis=1)
    standing: Flags = finite & (q[:, 2] >= 0.2) & (q[:, 2] <= 1.0)
    return ~standing


ANT = Physics(
    xml="ant.xml",
    frame_skip=5,
    bodies=("torso",),
    start=ant_start,
    observe=lambda q, v, x: np.concatenate([q[:, 2:], v], axis=1),
    reward=ant_reward,
    ended=ant_fallen,
)


class MujocoTask:
    """A task on MuJoCo; its demonstrators are the policies that the package ships in data/<task>/."""

    spec: TaskSpec
    physics: Physics

    def __init__(self, name: str, config_file: Path | None) -> None:
        self.config = load_config(MujocoConfig, config_file or find_config(name))

    def make_env(self, num_envs: int) -> BatchEnv:
        return MujocoEnv(num_envs, self.physics, self.config.max_steps, self.config.threads)

    def mixes(self) -> dict[str, Sequence[tuple[Demonstrator, float]]]:
        return {
            mix: [(demonstrator(SHIPPED / self.spec.name / policy, self.spec), share) for policy, share in shares.items()]
            for mix, shares in self.config.mixes.items()
        }


class Reacher(MujocoTask):
    """A two-link arm in the plane whose fingertip must come to a target that moves from episode to episode."""

    physics = REACHER

    def __init__(self, config_file: Path | None = None) -> None:
        super().__init__("reacher", config_file)
        self.spec = TaskSpec(
            name="reacher",
            text="Bring the fingertip of the two-link arm to the target and hold it there with little torque.",
            robot_type="mujoco_reacher",
            fps=50,
            max_steps=self.config.max_steps,
            observation_names=(
                "cos_shoulder", "cos_elbow", "sin_shoulder", "sin_elbow", "target_x", "target_y",
                "shoulder_velocity", "elbow_velocity", "tip_to_target_x", "tip_to_target_y", "tip_to_target_z",
            ),
            action_names=("shoulder_torque", "elbow_torque"),
            action_scale="200 N·m",
            view=View(
                moves="fingertip",
                position=({"tip_to_target_x": 1.0}, {"tip_to_target_y": 1.0}),
                things=(Thing("target", ({"1": 0.0}, {"1": 0.0}), radius_m=0.009),),  # the ball of reacher.xml
                labels=("x from the target", "y from the target"),
            ),
        )


class Ant(MujocoTask):
    """A four-legged body that should walk forward, observed without contact forces (27 numbers)."""

    physics = ANT

    def __init__(self, config_file: Path | None = None) -> None:
        super().__init__("ant", config_file)
        joints = [f"{kind}_{leg}" for leg in range(1, 5) for kind in ("hip", "ankle")]
        root = ["velocity_x", "velocity_y", "velocity_z", "angular_velocity_x", "angular_velocity_y", "angular_velocity_z"]
        self.spec = TaskSpec(
            name="ant",
            text="Walk forward along x as fast as possible with little torque and without falling.",
            robot_type="mujoco_ant",
            fps=20,
            max_steps=self.config.max_steps,
            observation_names=(
                "height", "quaternion_w", "quaternion_x", "quaternion_y", "quaternion_z",
                *joints, *root, *(f"{joint}_velocity" for joint in joints),
            ),
            action_names=tuple(f"{kind}_{leg}_torque" for leg in (4, 1, 2, 3) for kind in ("hip", "ankle")),
            action_scale="150 N·m",
        )
