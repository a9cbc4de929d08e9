"""Runs the whole demonstration-to-policy loop once: `ros2 launch cail_robot demo.launch.py out:=demo seed:=0`."""

from launch import LaunchDescription
from launch.actions import OpaqueFunction

from cail_robot.ros.launching import alone, argument, cail, options, process, switch, value


def start(context):
    quick = ["--quick"] if value(context, "quick") == "true" else []
    return alone(process("demo", [cail(), "demo", *options(context, "task", "out", "seed"), *quick], output="screen"), "the demo")


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([
        argument("out", "demo", "folder for dataset, run and report"),
        argument("seed", "0", "fixes demonstrations, ranking and training"),
        argument("task", "", "panda or pointmass; empty: panda where PyBullet is installed"),
        switch("quick", "little of everything: shows that all of it runs, not what it can do"),
        OpaqueFunction(function=start),
    ])
