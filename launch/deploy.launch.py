"""Run a learned policy on an arm: the arm's node, and the policy with the operator's desk in this terminal.

ros2 launch cail_robot deploy.launch.py policy:=RUN/policy robot:=ur5e_sim record:=true

The policy's card is held against the task and the arm first, and everything else that can be known before is checked; where
something does not fit, nothing else is started.
"""

import json
from pathlib import Path

from launch import LaunchDescription
from launch.actions import OpaqueFunction

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


def task_of(policy: str) -> str:
    """The task on the policy's card; the check says what is wrong where there is none."""
    try:
        return str(json.loads(Path(policy, "policy.json").read_text(encoding="utf-8"))["task"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def start(context):
    robot, policy = value(context, "robot"), value(context, "policy")
    what = options(
        context, "policy", "task", "rate", "max_speed", "input", "device", "script", "episodes", "operator", "record", "dataset",
        "dry_run", "without_guard", "other_robot", "beyond_stress", "config", "silence", "seed", "namespace",
    )  # fmt: skip
    for_arm = options(context, "robot_ip", "robot_config", "limits", "params_file", "viewer")
    check = process("check", [cail(), "deploy", "--check=all", f"--robot={robot}", *for_arm, *what], output="screen")
    desk = process("deploy", [cail(), "deploy", "--robot=running", f"--robot-type={robot}", *what], output="screen")
    task = value(context, "task") or task_of(policy)
    return Together(check, arm_process(context, task), desk, shown(context, task, policy)).actions()


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([
        argument("policy", "run/policy", "the policy's folder"),
        *arm_arguments(),
        argument("task", "", "empty: the task that the policy was trained for"),
        argument("rate", "0", "decisions a second; 0: as trained"),
        argument("max_speed", "0.0", "m/s that an action of 1 means, at most as trained; 0: that, as far as the arm allows"),
        argument("episodes", "10", "how many"),
        *hand_arguments("what takes over; none: nobody, for simulators only", "none"),
        argument("operator", "operator", "who takes over, demonstrator of corrections"),
        switch("record", "record every episode"),
        argument("dataset", "deployments", "where to; made if need be"),
        switch("dry_run", "everything but motion: show what would be commanded"),
        switch("without_guard", "run without the out-of-distribution guard"),
        switch("other_robot", "run on another robot than it was trained on"),
        switch("beyond_stress", "run slower, later or with a worse tracker than the policy's card was shown to hold"),
        argument("config", "deploy", "settings of the deployment: times after which inputs are stale, and others"),
        argument("silence", "2.0", "seconds without a message on a needed topic that end a recording"),
        OpaqueFunction(function=start),
    ])
