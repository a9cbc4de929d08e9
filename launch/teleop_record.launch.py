"""Teleoperate an arm and record demonstrations: the arm's node, and the desk with its recorder in this terminal.

ros2 launch cail_robot teleop_record.launch.py robot:=panda_sim input:=keyboard dataset:=demos demonstrator:=anna
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, Shutdown
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration, PythonExpression
from launch_ros.substitutions import ExecutableInPackage


def generate_launch_description() -> LaunchDescription:
    robot, ip = LaunchConfiguration("robot"), LaunchConfiguration("robot_ip")

    def chosen(*names: str) -> IfCondition:
        return IfCondition(PythonExpression(["'", robot, f"' in {names!r}"]))

    cail = ExecutableInPackage(package="cail_core", executable="cail")
    return LaunchDescription([
        DeclareLaunchArgument("robot", default_value="panda_sim", choices=["panda_sim", "ur5e", "ur5e_sim"],
                              description="which arm: simulated Panda, UR5e, simulated UR5e control box"),
        DeclareLaunchArgument("robot_ip", default_value="192.168.1.10",
                              description="address of the UR5e's control box; not used by panda_sim and ur5e_sim"),
        DeclareLaunchArgument("input", default_value="keyboard",
                              choices=["keyboard", "gamepad", "spacemouse", "joy_topic", "spacenav_topic", "scripted"],
                              description="what steers"),
        DeclareLaunchArgument("script", default_value="teleop.txt", description="with input:=scripted: the file of what to do"),
        DeclareLaunchArgument("dataset", default_value="demonstrations", description="the dataset's folder; made if need be"),
        DeclareLaunchArgument("demonstrator", default_value="unknown", description="who demonstrates"),
        DeclareLaunchArgument("task", default_value="panda", description="the task that is demonstrated"),
        DeclareLaunchArgument("rate", default_value="50", description="frames a second in the dataset; divides the arm's rate"),
        DeclareLaunchArgument("viewer", default_value="false", choices=["true", "false"],
                              description="show the simulator's window, with panda_sim"),
        # The arm in a process of its own. Its words go to the log: this terminal is the desk's.
        ExecuteProcess(
            cmd=[
                ExecutableInPackage(package="cail_sim", executable="sim_node"), "--task", LaunchConfiguration("task"),
                PythonExpression(["'--window' if '", LaunchConfiguration("viewer"), "' == 'true' else '--seed=0'"]),
            ],
            condition=chosen("panda_sim"), output={"both": "log"}, name="arm",
            on_exit=Shutdown(reason="the arm's node has ended"),
        ),
        ExecuteProcess(cmd=[cail, "up", "ur5e", "--robot-ip", ip], condition=chosen("ur5e"), output={"both": "log"}, name="arm",
                       on_exit=Shutdown(reason="the arm's node has ended")),
        ExecuteProcess(cmd=[cail, "up", "ur5e-sim"], condition=chosen("ur5e_sim"), output={"both": "log"}, name="arm",
                       on_exit=Shutdown(reason="the arm's node has ended")),
        ExecuteProcess(
            cmd=[
                cail, "record", "--robot", "running", "--robot-type", robot, "--input", LaunchConfiguration("input"),
                "--script", LaunchConfiguration("script"), "--dataset", LaunchConfiguration("dataset"),
                "--demonstrator", LaunchConfiguration("demonstrator"), "--task", LaunchConfiguration("task"),
                "--rate", LaunchConfiguration("rate"),
            ],
            output="screen", name="desk", on_exit=Shutdown(reason="the recording has ended"),
        ),
    ])
