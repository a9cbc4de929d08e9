"""A task of this package as a Gymnasium environment. Its episodes end by themselves: no time limit is wrapped around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from cail_core.tasks import get_task
from cail_core.tasks.base import Array
from cail_core.tasks.pick_place_avoid import Outcome
from cail_sim.tasks.panda import Panda


class PickPlaceAvoidGymEnv(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """One environment of the task `task`; `info` tells `is_success` and, at the end, `outcome`."""

    def __init__(self, task: str = "panda", config_file: Path | None = None) -> None:
        chosen = get_task(task, config_file)
        assert isinstance(chosen, Panda)
        self._env = chosen.one()
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (chosen.spec.observation_dim,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (chosen.spec.action_dim,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._env.start(self.np_random)
        return self._observation(), {"is_success": False}

    def step(self, action: NDArray[np.float32]) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        reward, outcome = self._env.decide(action.tolist())
        info: dict[str, Any] = {"is_success": outcome is Outcome.SUCCESS}
        if outcome is not None:
            info["outcome"] = outcome.value
        truncated = outcome is Outcome.TIMEOUT
        return self._observation(), reward, outcome is not None and not truncated, truncated, info

    def close(self) -> None:
        self._env.close()

    def _observation(self) -> Array:
        return np.array(self._env.observe(), dtype=np.float32)
