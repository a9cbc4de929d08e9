"""Runs the whole demonstration-to-policy loop once: `ros2 launch cail_robot demo.launch.py out:=demo seed:=0`."""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([
        DeclareLaunchArgument("out", default_value="demo", description="folder for dataset, run and report"),
        DeclareLaunchArgument("seed", default_value="0", description="fixes demonstrations, ranking and training"),
        Node(
            package="cail_core",
            executable="cail",
            output="screen",
            arguments=["demo", "--out", LaunchConfiguration("out"), "--seed", LaunchConfiguration("seed")],
            ros_arguments=[],
        ),
    ])
