"""Teleoperate an arm and record demonstrations: the arm's node, and the desk with its recorder in this terminal.

ros2 launch cail_robot teleop_record.launch.py robot:=ur5e_sim input:=keyboard dataset:=demos demonstrator:=anna

Everything that can be known before is checked first; where something is missing or does not fit, nothing else is started.
"""

from launch import LaunchDescription
from launch.actions import OpaqueFunction

from cail_robot.robot import find_robot
from cail_robot.ros.launching import (
    Together,
    argument,
    arm_arguments,
    arm_process,
    cail,
    hand_arguments,
    options,
    process,
    shown,
    switch,
    value,
)


def start(context):
    robot = value(context, "robot")
    task = value(context, "task") or find_robot(robot).task
    what = [
        *([f"--task={task}"] if task else []),
        *options(context, "input", "device", "script", "dataset", "demonstrator", "rate", "trim_idle", "silence", "namespace"),
    ]
    for_arm = options(context, "robot_ip", "robot_config", "limits", "params_file", "viewer")
    check = process("check", [cail(), "record", "--check", f"--robot={robot}", *for_arm, *what], output="screen")
    desk = process("desk", [cail(), "record", "--robot=running", f"--robot-type={robot}", *what], output="screen")
    return Together(check, arm_process(context, task), desk, shown(context, task)).actions()


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([
        *arm_arguments(),
        *hand_arguments("what steers"),
        argument("dataset", "demonstrations", "the dataset's folder; made if need be"),
        argument("demonstrator", "unknown", "who demonstrates"),
        argument("task", "", "the task that is demonstrated; empty: the robot's own"),
        argument("rate", "50", "frames a second in the dataset; divides the arm's rate"),
        switch("trim_idle", "leave idle ends out of the dataset; the bags keep them"),
        argument("silence", "2.0", "seconds without a message on a needed topic that end an episode"),
        OpaqueFunction(function=start),
    ])
