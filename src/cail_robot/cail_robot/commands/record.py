"""`cail record`: teleoperate an arm and record demonstrations, all nodes in one process, without a launch system."""

from __future__ import annotations

import argparse
import getpass
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cail_core.cli import say, whole_number
from cail_core.config import find_config, load_config
from cail_core.demos import layout
from cail_core.errors import BadInput
from cail_core.recording.bag import load_mcap
from cail_core.recording.episode_builder import RecordableTask, Trim, recordable
from cail_core.terminal import Terminal
from cail_robot.commands.robot_options import add_input_arguments, add_robot_arguments, bring_up, robot_of, switch
from cail_robot.recording.recorder import Recorder, check_fit
from cail_robot.recording.session import Desk
from cail_robot.teleop.command import Input, Keyboard, NodeInput, Steering, TeleopConfig

if TYPE_CHECKING:
    from cail_robot.ros.runtime import Nodes

DRAW_EVERY_S = 0.1


def register(commands: Any) -> None:
    p = commands.add_parser(
        "record",
        help="teleoperate an arm and record demonstrations",
        description="Teleoperate an arm and record demonstrations: a bag and an episode in the dataset for each one saved. "
        "Goes on with a dataset that is there and fits.",
    )
    add_robot_arguments(p)
    add_input_arguments(p, "what steers")
    p.add_argument("--dataset", type=Path, required=True, metavar="D", help="the dataset's folder, made if it is not there")
    p.add_argument("--demonstrator", default=getpass.getuser(), metavar="NAME", help="who demonstrates (default: the user)")
    p.add_argument("--task", default="", metavar="T", help="default: the robot's own")
    p.add_argument("--rate", type=whole_number, metavar="HZ", help="frames a second (default: the task's)")
    switch(p, "--trim-idle", "leave idle ends out of the dataset; the bags keep them")
    switch(p, "--check", "see whether everything is there and fits, start nothing")
    p.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    spec = robot_of(args)
    args.task = args.task or spec.task
    if not args.task:
        raise BadInput(f"expected --task: {spec.name} has none of its own")
    task, robot = recordable(args.task), spec.name
    config = load_config(TeleopConfig, find_config("teleop"))
    if args.rate is not None and not 1 <= args.rate <= 1000:
        raise BadInput(f"expected --rate between 1 and 1000, given {args.rate}")
    if not 0.1 <= args.silence <= 60:
        raise BadInput(f"expected --silence between 0.1 and 60, given {args.silence}")
    with ExitStack() as stack:
        source, terminal = source_of(args, config, stack)
        arm = bring_up(args, spec)
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

        nodes = stack.enter_context(Nodes(with_arm=arm is not None, params_file=args.params_file))
        for note in (nodes.scheduling, *([] if arm is None else arm.about())):
            say(f"cail record: {note}")
        from cail_robot.recording.nodes import RecorderNode
        from cail_robot.ros.arm_client import ArmClient

        teleop, listener = ArmClient("teleop", args.namespace), RecorderNode(recorder, args.namespace)
        if isinstance(source, NodeInput):
            source.join(teleop)
        nodes.spin(*(arm.nodes() if arm is not None else []), teleop)
        nodes.listen(listener)
        title = f"cail record  {args.dataset}  task {args.task}, {robot}, {recorder.rate} Hz, by {args.demonstrator}"
        desk = Desk(source, teleop, recorder, Steering(config), title, simulated=spec.simulated)
        screen = stack.enter_context(terminal) if terminal else None
        with signals() as ended:  # until the arm was let go: a closed terminal sends more than one
            whole = False
            try:
                _loop(desk, nodes, recorder, listener.tell, screen, 1.0 / config.command_hz, ended)
                whole = True
            finally:
                desk.leave(latch=bool(ended) or not whole)
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
    desk: Desk, nodes: Nodes, recorder: Recorder, tell: Callable[[str], None], screen: Terminal | None, period_s: float,
    ended: list[int],
) -> None:  # fmt: skip
    """Step until the end, or a signal."""
    drawn, line, told = 0.0, "", (len(recorder.saved), recorder.discarded, recorder.recording)
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


@contextmanager
def signals() -> Iterator[list[int]]:
    """SIGINT, SIGTERM and SIGHUP, as many as come: they end the loop, not the process."""
    ended: list[int] = []
    handlers = {number: signal.signal(number, lambda n, _: ended.append(n))
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}  # fmt: skip
    try:
        yield ended
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
