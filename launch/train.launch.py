"""Trains from a dataset and publishes the progress; Ctrl-C stops at the next checkpoint, the same command goes on.

ros2 launch cail_robot train.launch.py task:=panda demos:=demos method:=cail-bc out:=run
"""

import shlex

from launch import LaunchDescription
from launch.actions import OpaqueFunction
from launch_ros.actions import Node

from cail_core.algorithms import method_names
from cail_core.launch_words import SWITCH
from cail_robot.ros.launching import alone, argument, options, value


def start(context):
    changes = [f"--set={one}" for one in shlex.split(value(context, "set"))]
    training = Node(
        package="cail_robot", executable="train_node", output="screen", additional_env={SWITCH: "1"},
        arguments=[*options(context, "task", "demos", "method", "seed", "steps", "config", "out", "report"), *changes],
        sigterm_timeout=value(context, "sigterm_timeout"), sigkill_timeout=value(context, "sigkill_timeout"),
    )  # fmt: skip
    return alone(training, "the training")


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([
        argument("task", "panda", "the task that was demonstrated, such as panda, ur5e"),
        argument("demos", "demonstrations", "the dataset's folder"),
        argument("method", "cail", "how to learn (docs/algorithms.md)", method_names()),
        argument("seed", "0", "a whole number; the same gives the same run"),
        argument("steps", "default", "environment steps, or gradient steps of bc and cail-bc; default: the method's"),
        argument("config", "", "a YAML file with the settings that differ from the method's and the task's"),
        argument("set", "", "single settings over these, separated by spaces: 'ppo.gamma=0.99 steps=20000'"),
        argument("out", "run", "the run's folder; made, or gone on with"),
        argument("report", "true", "write report.html into the run's folder", ["true", "false"]),
        argument("sigterm_timeout", "60", "seconds from Ctrl-C in which to reach the next checkpoint; then the last one counts"),
        argument("sigkill_timeout", "30", "seconds from then on until it is killed"),
        OpaqueFunction(function=start),
    ])
