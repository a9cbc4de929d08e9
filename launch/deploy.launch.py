"""Run a learned policy on an arm: the arm's node, and the policy with the operator's desk in this terminal.

ros2 launch cail_robot deploy.launch.py policy:=RUN/policy robot:=panda_sim record:=true

The policy's card is held against the task and the arm first; where it does not fit, nothing else is started.
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, RegisterEventHandler, Shutdown
from launch.conditions import IfCondition
from launch.event_handlers import OnProcessExit
from launch.substitutions import LaunchConfiguration, PythonExpression
from launch_ros.substitutions import ExecutableInPackage


def generate_launch_description() -> LaunchDescription:
    robot, ip = LaunchConfiguration("robot"), LaunchConfiguration("robot_ip")
    cail = ExecutableInPackage(package="cail_core", executable="cail")

    def chosen(*names: str) -> IfCondition:
        return IfCondition(PythonExpression(["'", robot, f"' in {names!r}"]))

    def arm(name: str, *command: object) -> ExecuteProcess:
        """A process of its own: the policy's end is not the arm's. Its words go to the log: this terminal is the desk's."""
        return ExecuteProcess(cmd=[*command], condition=chosen(name), output={"both": "log"}, name="arm",
                              on_exit=Shutdown(reason="the arm's node has ended"))

    what = [
        "--policy", LaunchConfiguration("policy"), "--task", LaunchConfiguration("task"), "--rate", LaunchConfiguration("rate"),
        "--max-speed", LaunchConfiguration("max_speed"), "--input", LaunchConfiguration("input"),
        ["--dry-run=", LaunchConfiguration("dry_run")], ["--without-guard=", LaunchConfiguration("without_guard")],
        ["--other-robot=", LaunchConfiguration("other_robot")], ["--beyond-stress=", LaunchConfiguration("beyond_stress")],
    ]
    check = ExecuteProcess(cmd=[cail, "deploy", "--check", "--robot", robot, *what], output="screen", name="check")
    started = [
        arm("panda_sim", ExecutableInPackage(package="cail_sim", executable="sim_node"), "--seed", LaunchConfiguration("seed"),
            "--task", PythonExpression(["'", LaunchConfiguration("task"), "' or 'panda'"])),
        arm("ur5e", cail, "up", "ur5e", "--robot-ip", ip),
        arm("ur5e_sim", cail, "up", "ur5e-sim", "--seed", LaunchConfiguration("seed")),
        ExecuteProcess(
            cmd=[
                cail, "deploy", "--robot", "running", "--robot-type", robot, *what,
                "--episodes", LaunchConfiguration("episodes"), "--script", LaunchConfiguration("script"),
                "--operator", LaunchConfiguration("operator"), ["--record=", LaunchConfiguration("record")],
                "--dataset", LaunchConfiguration("dataset"),
            ],
            output="screen", name="deploy", on_exit=Shutdown(reason="the deployment has ended"),
        ),
    ]
    return LaunchDescription([
        DeclareLaunchArgument("policy", default_value="run/policy", description="the policy's folder"),
        DeclareLaunchArgument("robot", default_value="panda_sim", choices=["panda_sim", "ur5e", "ur5e_sim"],
                              description="which arm: simulated Panda, UR5e, simulated UR5e control box"),
        DeclareLaunchArgument("robot_ip", default_value="192.168.1.10",
                              description="address of the UR5e's control box; not used by panda_sim and ur5e_sim"),
        DeclareLaunchArgument("task", default_value="", description="empty: the task that the policy was trained for"),
        DeclareLaunchArgument("rate", default_value="0", description="decisions a second; 0: as trained"),
        DeclareLaunchArgument("max_speed", default_value="0.0",
                              description="m/s that an action of 1 means, at most as trained; 0: that, as far as the arm allows"),
        DeclareLaunchArgument("episodes", default_value="10", description="how many"),
        DeclareLaunchArgument("input", default_value="keyboard",
                              choices=["keyboard", "gamepad", "spacemouse", "joy_topic", "scripted", "none"],
                              description="what takes over; none: nobody, for simulators only"),
        DeclareLaunchArgument("script", default_value="teleop.txt", description="with input:=scripted: the file of what to do"),
        DeclareLaunchArgument("operator", default_value="operator", description="who takes over, demonstrator of corrections"),
        DeclareLaunchArgument("record", default_value="false", choices=["true", "false"], description="record every episode"),
        DeclareLaunchArgument("dataset", default_value="deployments", description="where to; made if need be"),
        DeclareLaunchArgument("dry_run", default_value="false", choices=["true", "false"],
                              description="everything but motion: show what would be commanded"),
        DeclareLaunchArgument("without_guard", default_value="false", choices=["true", "false"],
                              description="run without the out-of-distribution guard"),
        DeclareLaunchArgument("other_robot", default_value="false", choices=["true", "false"],
                              description="run on another robot than it was trained on"),
        DeclareLaunchArgument("beyond_stress", default_value="false", choices=["true", "false"],
                              description="run slower, later or with a worse tracker than the policy's card was shown to hold"),
        DeclareLaunchArgument("seed", default_value="0", description="of the simulator's scenes"),
        check,
        RegisterEventHandler(OnProcessExit(
            target_action=check,
            on_exit=lambda event, _: started if event.returncode == 0 else [Shutdown(reason="the policy does not fit")],
        )),
    ])
