"""Trains from a dataset and publishes the progress; Ctrl-C stops at the next checkpoint, the same command goes on.

ros2 launch cail_robot train.launch.py task:=panda demos:=demos method:=cail-bc out:=run
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, Shutdown
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

METHODS = ["cail", "cail-paper", "cail-gail", "cail-bc", "cail-hybrid", "airl", "gail", "bc",
           "2iwil", "ic-gail", "t-rex", "d-rex", "ssrr", "rinse", "dwbc"]  # fmt: skip
GIVEN = ("task", "demos", "method", "seed", "steps", "out", "report")


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([
        DeclareLaunchArgument("task", default_value="panda", description="the task that was demonstrated, such as panda, ur5e"),
        DeclareLaunchArgument("demos", default_value="demonstrations", description="the dataset's folder"),
        DeclareLaunchArgument("method", default_value="cail", choices=METHODS, description="how to learn (docs/algorithms.md)"),
        DeclareLaunchArgument("seed", default_value="0", description="a whole number; the same gives the same run"),
        DeclareLaunchArgument("steps", default_value="default",
                              description="environment steps, or gradient steps of bc and cail-bc; default: the method's"),
        DeclareLaunchArgument("out", default_value="run", description="the run's folder; made, or gone on with"),
        DeclareLaunchArgument("report", default_value="true", choices=["true", "false"],
                              description="write report.html into the run's folder"),
        DeclareLaunchArgument("sigterm_timeout", default_value="60",
                              description="seconds from Ctrl-C in which to reach the next checkpoint; then the last one counts"),
        Node(
            package="cail_robot", executable="train_node",
            arguments=[part for name in GIVEN for part in (f"--{name}", LaunchConfiguration(name))],
            sigterm_timeout=LaunchConfiguration("sigterm_timeout"), output="screen",
            on_exit=Shutdown(reason="the training has ended"),
        ),
    ])
