"""The robots of this package."""

from cail_robot.robot import RobotSpec

UR5E = RobotSpec(
    name="ur5e",
    text="UR5e over RTDE, or `cail ursim`",
    bringup="cail_robot.robots.ur5e.bringup:UR5e",
    base_frame="base",
    task="ur5e",
    options=("config", "limits", "robot_ip"),
    aliases=("ur5e_pybullet",),
)
