"""Environments of somebody else's: what `gym:cart_envs:Cart-v0` names in the tests, and some that do not fit."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

LIMIT = 30


class Cart(gymnasium.Env[Any, Any]):
    """A cart on a line, pulled with -2 … 6 N, that must come to rest at a place it is shown. Beyond 3 m the table ends."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = Dict({"cart": Box(-np.inf, np.inf, (2,)), "goal": Box(-1.0, 1.0, (1,)), "mode": Discrete(2)})
        self.action_space = Box(np.array([-2.0], np.float32), np.array([6.0], np.float32))
        self.render_mode = render_mode

    def _seen(self) -> dict[str, Any]:
        return {"cart": np.array([self.x, self.v], np.float32), "goal": np.array([self.goal], np.float32), "mode": 1}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.v = float(self.np_random.uniform(-1, 1)), 0.0
        self.goal = float(self.np_random.uniform(-1, 1))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"{action} is no action of this environment")
        self.v += 0.1 * (float(action[0]) - 2.0)  # 2 N hold it
        self.x += 0.1 * self.v
        near = abs(self.x - self.goal) < 0.15 and abs(self.v) < 0.3
        return self._seen(), -abs(self.x - self.goal), abs(self.x) > 3.0, False, {"is_success": near}

    def render(self) -> Any:
        picture = np.zeros((32, 64, 3), np.uint8)
        picture[:, int(np.clip(32 + 10 * self.x, 0, 63))] = 255
        return picture


class Buttons(Cart):
    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = Discrete(3)  # type: ignore[assignment]


class Camera(Cart):
    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.observation_space = Dict({"cart": Box(-1, 1, (2,)), "image": Box(0, 255, (64, 64, 3), np.uint8)})


class Boundless(Cart):
    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = Box(-np.inf, np.inf, (1,))


class Broken(Cart):
    def __init__(self, render_mode: str | None = None) -> None:
        raise RuntimeError("the licence server is down\nand more")


for kind in (Cart, Buttons, Camera, Boundless, Broken):
    gymnasium.register(f"{kind.__name__}-v0", kind, max_episode_steps=LIMIT)  # type: ignore[arg-type]
gymnasium.register("Endless-v0", Cart)  # type: ignore[arg-type]


def people() -> dict[str, Any]:
    """Who pulls it to the goal, and who pulls it beside the goal; in newtons."""
    return {"good": lambda rng: pulling(rng, 0.0), "bad": lambda rng: pulling(rng, 1.2)}


def pulling(rng: np.random.Generator, aside: float) -> Any:
    def policy(seen: dict[str, Any]) -> list[float]:
        assert seen["mode"] == 1
        x, v = seen["cart"]
        return [2.0 + 3.0 * (seen["goal"][0] + aside - x) - 3.0 * v + rng.normal(0.0, 0.1)]

    return policy


def nobody() -> dict[str, Any]:
    return {}


def two_numbers() -> dict[str, Any]:
    return {"wrong": lambda rng: lambda seen: [1.0, 2.0]}
