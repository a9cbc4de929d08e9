"""What `cail` needs to know of the robot before anything is started. Launch files read it: import nothing else here."""

from cail_robot.robot import Resets, RobotSpec

SPEC = RobotSpec(
    name="my_arm",
    text="a kinematic arm: its tool goes where it is told",
    bringup="my_arm.arm:MyBringup",
    base_frame="my_arm_base",
    simulated=True,  # False for a real arm: then a person must be at an input, and says when an episode begins
    resets=Resets.ALL,  # NOTHING for a real arm
    options=("limits",),
)
