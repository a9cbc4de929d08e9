"""Runs the whole demonstration-to-policy loop once: `ros2 launch cail_robot demo.launch.py out:=demo seed:=0`."""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess
from launch.substitutions import LaunchConfiguration
from launch_ros.substitutions import ExecutableInPackage


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([
        DeclareLaunchArgument("out", default_value="demo", description="folder for dataset, run and report"),
        DeclareLaunchArgument("seed", default_value="0", description="fixes demonstrations, ranking and training"),
        # Not a Node: launch_ros gives every Node --ros-args, which a plain command does not take.
        ExecuteProcess(
            cmd=[
                ExecutableInPackage(package="cail_core", executable="cail"),
                "demo", "--out", LaunchConfiguration("out"), "--seed", LaunchConfiguration("seed"),
            ],
            output="screen",
        ),
    ])
