"""The UR5e in PyBullet: the arm as cail_robot's `data/ur5e.urdf` has it, and the Panda's task with it (`ur5e`)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from cail_core.config import find_config
from cail_robot.robots.ur5e import kinematics
from cail_robot.robots.ur5e.config import UR5eConfig
from cail_robot.safety.limits import load_with_limits
from cail_sim.bullet.arm import ArmModel
from cail_sim.tasks.panda import Panda

UR5E = ArmModel(
    name="UR5e",
    urdf="ur5e.urdf",
    joints=(0, 1, 2, 3, 4, 5),
    joint_names=tuple(f"{name}_joint" for name in kinematics.JOINTS),
    tool_link=9,
    home=(0.27, -1.566, -1.776, -1.371, 1.571, -1.301),
    tool_down=(1.0, 0.0, 0.0, 0.0),
    max_force=(150.0, 150.0, 150.0, 28.0, 28.0, 28.0),
    max_joint_speed=(math.pi,) * 6,
    joint_low=(-kinematics.JOINT_LIMIT,) * 6,
    joint_high=(kinematics.JOINT_LIMIT,) * 6,
    fingers=(7, 8),
    finger_travel_m=0.04,
    finger_speed=0.04 / 0.57,  # a 2F-85 needs 0.57 s for its stroke
    grip_force=20.0,
)
TOOL_OFFSET = (0.0, 0.0, 0.16, 0.0, 0.0, 0.0)
"""Of the URDF's tool point in the flange."""


class UR5e(Panda):
    """Reach for the bottle, pick it up, carry it around the obstacle, put it standing on the platform."""

    name = "ur5e"
    robot_type = "ur5e_pybullet"
    simulated_by = "ur5e_sim"
    model = UR5E

    def __init__(self, config_file: Path | None = None) -> None:
        """The table is the Panda's. Speed, acceleration and workspace are those of the arm itself (`config/ur5e.yaml`), and so
        much longer an episode may take: what is learned in this process is what the arm's own node allows."""
        super().__init__(config_file)
        limits = load_with_limits(UR5eConfig, find_config("ur5e")).limits
        longer = max(1.0, self.config.task.max_speed / limits.max_linear_speed)
        self._set_up(replace(self.config, limits=limits, max_ticks=round(longer * self.config.max_ticks)))
