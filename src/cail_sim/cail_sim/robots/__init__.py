"""The simulated robots."""

from cail_robot.robot import Resets, RobotSpec

PANDA_SIM = RobotSpec(
    name="panda_sim",
    text="simulated Panda with its table",
    bringup="cail_sim.robots.panda:Sim",
    base_frame="panda_link0",
    kind="panda",
    simulated=True,
    resets=Resets.ALL,
    task="panda",
    options=("task", "limits", "seed", "window"),
    aliases=("sim", "franka_panda_pybullet"),
    default=True,
)
UR5E_SIM = RobotSpec(
    name="ur5e_sim",
    text="simulated UR5e control box with its table",
    bringup="cail_sim.robots.ur5e:UR5eSim",
    base_frame="base",
    kind="ur5e",
    simulated=True,
    resets=Resets.SCENE,
    task="ur5e",
    options=("config", "limits", "robot_ip", "seed", "window"),
    aliases=("ur5e-sim",),
)
