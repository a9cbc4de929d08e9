"""`cail record`: teleoperate an arm and record demonstrations, all nodes in one process, without a launch system."""

from __future__ import annotations

import argparse
import getpass
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cail_core.cli import Parser, say, whole_number
from cail_core.config import find_config, load_config
from cail_core.demos import layout
from cail_core.errors import BadInput, MissingDependency, in_workspace
from cail_core.recording.bag import load_mcap
from cail_core.recording.episode_builder import RecordableTask, Trim, recordable
from cail_core.terminal import Terminal
from cail_robot.recording.recorder import SILENCE_S, Recorder, check_fit
from cail_robot.recording.session import Desk
from cail_robot.ros.params import with_params_file
from cail_robot.safety.limits import Limits, load_limits
from cail_robot.teleop.command import Input, Keyboard, Steering, TeleopConfig

if TYPE_CHECKING:
    from cail_robot.ros.runtime import Nodes

ROBOTS = {"panda_sim": "sim", "ur5e": "ur5e", "ur5e_sim": "ur5e-sim"}
"""Robot -> its name among the arms of `cail up`."""
OWN_TASK = {"panda_sim": "panda", "ur5e": "ur5e", "ur5e_sim": "ur5e"}
"""Robot -> the task that is its own."""
INPUTS = ("keyboard", "gamepad", "spacemouse", "joy_topic", "spacenav_topic", "scripted")
DRAW_EVERY_S = 0.1


def register(commands: Any) -> None:
    p = commands.add_parser(
        "record",
        help="teleoperate an arm and record demonstrations",
        description="Teleoperate an arm and record demonstrations: a bag and an episode in the dataset for each one saved. "
        "Goes on with a dataset that is there and fits.",
    )
    p.add_argument("--robot", choices=(*ROBOTS, "running"), default="panda_sim",
                   help="which arm to bring up; running: its node is up already (default: panda_sim)")
    p.add_argument("--robot-ip", metavar="IP", help="address of the control box, for ur5e and ur5e_sim")
    p.add_argument("--robot-type", metavar="NAME", help="with --robot running: which robot the dataset is of")
    p.add_argument("--input", choices=INPUTS, default="keyboard", help="what steers (default: keyboard)")
    p.add_argument("--device", metavar="FILE", help="gamepad or spacemouse: /dev/input/event… (default: the first that fits)")
    p.add_argument("--script", type=Path, metavar="FILE", help="with --input scripted: what to do")
    p.add_argument("--dataset", type=Path, required=True, metavar="D", help="the dataset's folder, made if it is not there")
    p.add_argument("--demonstrator", default=getpass.getuser(), metavar="NAME", help="who demonstrates (default: the user)")
    p.add_argument("--task", default="", metavar="T", help="default: the robot's own, such as panda or ur5e")
    p.add_argument("--rate", type=whole_number, metavar="HZ", help="frames a second (default: the task's)")
    switch(p, "--trim-idle", "leave idle ends out of the dataset; the bags keep them")
    p.add_argument("--viewer", choices=("true", "false"), default="false", help="show the simulator's window (default: false)")
    p.add_argument("--seed", type=whole_number, default=0, metavar="S", help="of the simulator's scenes (default: 0)")
    p.add_argument("--silence", type=float, default=SILENCE_S, metavar="S",
                   help=f"seconds without a message on a needed topic that end an episode (default: {SILENCE_S:g})")
    p.add_argument("--namespace", default="arm", help="of the arm's topics (default: arm)")
    add_arm_arguments(p)
    switch(p, "--check", "see whether everything is there and fits, start nothing")
    p.set_defaults(run=_run)


def switch(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """An option that stands alone, or is followed by true or false as a launch file has it."""
    parser.add_argument(name, nargs="?", const="true", default="false", choices=("true", "false"), help=text)


def add_arm_arguments(p: argparse.ArgumentParser) -> None:
    """What the arm's node is started with."""
    p.add_argument("--robot-config", metavar="FILE", help="settings of a UR5e (default: the installed ur5e.yaml)")
    p.add_argument("--limits", metavar="FILE", help="limits in place of the arm's own; `limits`: those of real arms")
    p.add_argument("--params-file", metavar="FILE", help="ROS parameter file for the arm's node (docs/ros.md)")


def _run(args: argparse.Namespace) -> int:
    robot = args.robot_type if args.robot == "running" else args.robot
    args.task = args.task or OWN_TASK.get(robot, "panda")
    task = recordable(args.task)
    config = load_config(TeleopConfig, find_config("teleop"))
    if args.rate is not None and not 1 <= args.rate <= 1000:
        raise BadInput(f"expected --rate between 1 and 1000, given {args.rate}")
    if not 0.1 <= args.silence <= 60:
        raise BadInput(f"expected --silence between 0.1 and 60, given {args.silence}")
    if robot is None:
        raise BadInput("expected --robot-type with --robot running, such as panda_sim or ur5e: the dataset keeps it")
    with ExitStack() as stack:
        source, terminal = source_of(args, config, stack)
        make_arm = arm_of(args)
        if args.check == "true":
            source.close()
            check_dataset(args.dataset, task, robot, args.rate)
            print(f"{robot} can be recorded: task {args.task}, steered by {args.input}, into {args.dataset}")
            return 0
        recorder = Recorder(
            args.dataset,
            task,
            robot=robot,
            demonstrator=args.demonstrator,
            rate=args.rate,
            namespace=f"/{args.namespace.strip('/')}",
            trim=Trim(on=args.trim_idle == "true"),
            silence_s=args.silence,
        )
        stack.callback(recorder.close)
        from cail_robot.ros.runtime import Nodes  # first: it says how to add rclpy where it is missing

        nodes = stack.enter_context(Nodes(with_arm=make_arm is not None, params_file=args.params_file))
        say(f"cail record: {nodes.scheduling}")
        from cail_robot.recording.nodes import RecorderNode, TeleopNode

        teleop, listener = TeleopNode(args.namespace), RecorderNode(recorder, args.namespace)
        if hasattr(source, "join"):
            source.join(teleop)
        nodes.spin(*(make_arm() if make_arm is not None else []), teleop)
        nodes.listen(listener)
        title = f"cail record  {args.dataset}  task {args.task}, {robot}, {recorder.rate} Hz, by {args.demonstrator}"
        desk = Desk(source, teleop, recorder, Steering(config), title)
        screen = stack.enter_context(terminal) if terminal else None
        try:
            _loop(desk, nodes, recorder, listener.tell, screen, 1.0 / config.command_hz)
        finally:
            desk.leave()
            time.sleep(0.05)  # the last command, which is zero, is on its way
        left = recorder.frames if recorder.recording else None
    _summary(recorder, left)
    return 0


def source_of(args: argparse.Namespace, config: TeleopConfig, stack: ExitStack) -> tuple[Input, Terminal | None]:
    """What steers, and the terminal to draw on, if there is one."""
    if args.input == "keyboard":
        terminal = Terminal("steer with --input gamepad, joy_topic or scripted", controlling=True)
        return Keyboard(terminal.keys, config), terminal
    with suppress(BadInput):
        # Under a launcher too, where input and output are its pipes: whoever steers must be able to permit, to stop and to quit.
        terminal = Terminal("", controlling=args.input != "scripted")
        return _other_source(args, config, Keyboard(terminal.keys, config)), terminal
    return _other_source(args, config, None), None


def _other_source(args: argparse.Namespace, config: TeleopConfig, keys: Keyboard | None) -> Input:
    if args.input == "scripted":
        from cail_robot.teleop.scripted import Script

        if args.script is None:
            raise BadInput("expected --script FILE with --input scripted: lines such as `hold up 2.0` or `press enter`")
        return Script(args.script, config)
    from cail_robot.teleop.gamepad import JOY, SPACENAV, JoyTopic, Stick

    if args.input in ("joy_topic", "spacenav_topic"):
        return JoyTopic(JOY if args.input == "joy_topic" else SPACENAV, config, keys)
    return Stick.open(args.input, args.device, config, keys)


def arm_of(args: argparse.Namespace) -> Callable[[], list[Any]] | None:
    """Makes the arm's nodes, None where they run already; said early where the arm is not installed."""
    if args.robot == "running":
        return None
    arm, options = arm_options(args)
    arm_limits(args)
    return lambda: list(arm.nodes(options))


def arm_options(args: argparse.Namespace) -> tuple[Any, argparse.Namespace]:
    """The arm's class and its own options, made of ours."""
    name = ROBOTS[args.robot]
    found = {entry.name: entry for entry in entry_points(group="cail.arms")}
    if name not in found:
        way = "; the package cail_sim has it: colcon build, and source the workspace again" if in_workspace() else ""
        raise MissingDependency(f"the arm '{name}' is not installed; there are: {', '.join(sorted(found)) or 'none'}{way}")
    import cail_robot.ros.runtime  # noqa: F401  says how to add rclpy where it is missing

    arm = found[name].load()
    parser = Parser(prog=f"cail up {name}")
    arm.add_arguments(parser)
    offered = {option for action in parser._actions for option in action.option_strings}
    address = "--robot-ip" if "--robot-ip" in offered else "--host"
    wanted = {"--task": args.task, "--seed": str(args.seed), "--namespace": args.namespace, address: args.robot_ip,
              "--config": args.robot_config, "--limits": args.limits}  # fmt: skip
    words = [word for option, value in wanted.items() if value is not None and option in offered for word in (option, value)]
    if args.robot_ip is not None and address not in offered:
        raise BadInput(f"--robot-ip is for an arm with a control box, {args.robot} has none")
    if args.robot_config is not None and "--config" not in offered:
        raise BadInput(f"--robot-config is for a UR5e, {args.robot} has none; --limits and --params-file change its limits")
    if args.viewer == "true":
        if "--window" not in offered:
            raise BadInput(f"--viewer true is for a simulator of ours, {args.robot} has no window")
        words.append("--window")
    options = parser.parse_args(words)
    if hasattr(arm, "check"):
        arm.check(options)
    return arm, options


def arm_limits(args: argparse.Namespace) -> Limits:
    """Those that the arm's node will start with, those of a parameter file included."""
    arm, options = arm_options(args)
    limits: Limits = arm.limits(options) if hasattr(arm, "limits") else load_limits()
    return with_params_file(limits, args.params_file, f"/{args.namespace.strip('/')}/arm_node")


def check_dataset(folder: Path, task: RecordableTask, robot: str, rate: int | None) -> None:
    """Whether a recording may go there; nothing is made."""
    load_mcap()
    if (folder / layout.INFO).exists():
        check_fit(folder, task, robot, task.spec.fps if rate is None else rate)
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"expected a dataset, a new folder or an empty one, given {folder}; choose another --dataset")
    else:
        task.over_topics(task.spec.fps if rate is None else rate)


def _loop(
    desk: Desk, nodes: Nodes, recorder: Recorder, tell: Callable[[str], None], screen: Terminal | None, period_s: float
) -> None:
    ended: list[int] = []
    handlers = {number: signal.signal(number, lambda n, _: ended.append(n)) for number in (signal.SIGINT, signal.SIGTERM)}
    drawn, line, told = 0.0, "", (len(recorder.saved), recorder.discarded, recorder.recording)
    try:
        while not desk.ended and not ended and nodes.alive:
            desk.step(period_s)
            now = (len(recorder.saved), recorder.discarded, recorder.recording)
            if now != told:
                tell(_event(told, now, recorder))
                told = now
            if screen is not None and time.monotonic() - drawn > DRAW_EVERY_S:
                drawn = time.monotonic()
                screen.draw(desk.screen(*screen.size))
            elif screen is None and desk.line() != line and not recorder.recording:
                line = desk.line()
                print(line, flush=True)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _event(before: tuple[int, int, bool], now: tuple[int, int, bool], recorder: Recorder) -> str:
    if now[0] > before[0]:
        return "succeeded" if recorder.saved[-1].outcome == "success" else recorder.saved[-1].outcome
    if now[1] > before[1] or (before[2] and not now[2]):
        return "discarded"
    return "started"


def _summary(recorder: Recorder, left: int | None) -> None:
    outcomes = ", ".join(f"{count} {name}" for name, count in recorder.outcomes.items())
    count = len(recorder.saved)
    saved = f"{count} episode{'s' if count != 1 else ''} saved{f' ({outcomes})' if outcomes else ''}"
    print(f"{recorder.root}: {saved}, {recorder.discarded} discarded")
    if left is not None:
        print(f"the open episode ({left} frames) was left out")
    if recorder.saved:
        print(f"Next: cail demos rank {recorder.root}")
