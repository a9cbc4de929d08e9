"""The two cups without physics: a cup goes with a gripper that closes around it, and falls straight down when that opens."""

from __future__ import annotations

import math

import numpy as np

from cail_core.recording.sync import ArmSample, Vector
from stack_two_cups.view import NEAR_M, STACKED_M, CupsConfig

UPRIGHT = (0.0, 0.0, 0.0, 1.0)
GRASP_M = 0.05
"""The rim, which the gripper closes around, is this far above the cup's base."""


class Table:
    def __init__(self, config: CupsConfig, seed: int) -> None:
        self._config = config
        self.restart(seed)

    def restart(self, seed: int) -> None:
        draw = np.random.default_rng(seed).uniform
        (x1, y1), (x2, y2) = ([draw(low, high) for low, high in cup] for cup in (self._config.cup_1, self._config.cup_2))
        self._one, self._two, self._held = (x1, y1, 0.0), (x2, y2, 0.0), False

    def move(self, tool: Vector, opening: float) -> None:
        """The tool is here and so far open; the cups are where that leaves them."""
        x, y, z = tool[0], tool[1], tool[2] - GRASP_M
        if opening < 0.5:
            self._held = self._held or math.dist((x, y, z), self._one) < NEAR_M
            if self._held:
                self._one = (x, y, max(0.0, z))
        elif self._held:
            over = math.dist(self._one[:2], self._two[:2]) < NEAR_M
            self._one = (*self._two[:2], STACKED_M) if over else (*self._one[:2], 0.0)
            self._held = False

    def things(self) -> dict[str, Vector]:
        return {"cup_1": (*self._one, *UPRIGHT), "cup_2": (*self._two, *UPRIGHT)}


def sample_of(stamp_ns: int, tool: Vector, executed: Vector, opening: float, asked: float | None, table: Table) -> ArmSample:
    """What the topics would show, for an environment in this process."""
    pose = (*tool, 1.0, 0.0, 0.0, 0.0)
    return ArmSample(stamp_ns, 0, executed, executed, pose, executed, (), opening, asked, table.things())
