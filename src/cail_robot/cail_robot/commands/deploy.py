"""`cail deploy`: a learned policy on an arm, the operator's hand on the teleop device, all nodes in one process."""

from __future__ import annotations

import argparse
import getpass
import json
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cail_core import durable
from cail_core.cli import say, whole_number
from cail_core.config import find_config, load_config
from cail_core.errors import BadInput
from cail_core.launch_words import spoken
from cail_core.recording.episode_builder import recordable
from cail_core.terminal import Terminal
from cail_robot.commands.record import check_dataset, signals, source_of
from cail_robot.commands.robot_options import add_input_arguments, add_robot_arguments, bring_up, robot_of, switch
from cail_robot.deploy.config import DeployConfig, Deployment, prepare, scripted
from cail_robot.deploy.phase import Phase
from cail_robot.deploy.screen import line, screen
from cail_robot.deploy.session import Session
from cail_robot.recording.recorder import Recorder
from cail_robot.robot import RobotSpec
from cail_robot.safety.limits import Limits
from cail_robot.teleop.command import NodeInput, Steering, TeleopConfig, Wish

if TYPE_CHECKING:
    from cail_robot.ros.runtime import Nodes

DRAW_EVERY_S = 0.1
NODE_PATIENCE_S = 30.0


def register(commands: Any) -> None:
    p = commands.add_parser(
        "deploy",
        help="run a learned policy on an arm",
        description="Run a learned policy on an arm. Its card is held against the task and the arm first: what does not fit is "
        "listed, and nothing starts. Touching the teleop device takes over.",
    )

    p.add_argument("--policy", type=Path, required=True, metavar="P",
                   help="the policy's folder, such as RUN/policy; mix:NAME with --task: the task's scripted people instead")
    add_robot_arguments(p)
    p.add_argument("--task", default="", metavar="T", help="default: the policy's")
    p.add_argument("--episodes", type=whole_number, default=10, metavar="N", help="default: 10")
    p.add_argument("--rate", type=whole_number, default=0, metavar="HZ", help="decisions a second (default: as trained)")
    p.add_argument("--max-speed", type=float, default=0.0, metavar="V",
                   help="m/s that an action of 1 means, at most as trained (default: as trained, as far as the arm allows)")
    add_input_arguments(p, "what takes over; none: nobody, for simulators only", "none")
    p.add_argument("--operator", default=getpass.getuser(), metavar="NAME", help="who takes over (default: the user)")
    switch(p, "--record", "record every episode, takeovers as demonstrations of the operator")
    p.add_argument("--dataset", type=Path, default=Path("deployments"), metavar="D", help="for --record (default: deployments)")
    switch(p, "--dry-run", "everything but motion: show what would be commanded")
    switch(p, "--without-guard", "run a policy that has no out-of-distribution guard, or without it")
    switch(p, "--other-robot", "run a policy on another robot than it was trained on")
    switch(p, "--beyond-stress", "run a policy slower, later or with a worse tracker than its card was shown to hold")
    p.add_argument("--check", nargs="?", const="true", default="false", choices=("true", "all", "false"),
                   help="hold the card against task and arm, start nothing; all: also what takes over and where recordings go")
    p.add_argument("--config", default="deploy", metavar="FILE", help="settings (default: the installed deploy.yaml)")
    p.add_argument("--results", type=Path, metavar="FILE.json", help="write how each episode ended, for other programs")
    p.set_defaults(run=_run)


class Nobody:
    """No input: an unattended run."""

    help: tuple[str, ...] = ()

    def read(self, timeout_s: float) -> Wish:
        time.sleep(timeout_s)
        return Wish()

    def close(self) -> None:
        """Nothing to release."""


def _run(args: argparse.Namespace) -> int:
    robot = robot_of(args)
    if args.input == "none" and not robot.simulated and args.dry_run == "false":
        raise BadInput(f"expected somebody at {robot.name} who can take over: choose an --input other than none")
    if not 0.1 <= args.silence <= 60:
        raise BadInput(f"expected --silence between 0.1 and 60, given {args.silence}")
    if args.episodes < 1:
        raise BadInput(f"expected --episodes of 1 or more, given {args.episodes}")
    if args.results is not None and not args.results.absolute().parent.is_dir():
        raise BadInput(f"expected --results in a folder that exists, given {args.results}")
    if _mix(args) and not args.task:
        raise BadInput(f"expected --task with --policy {args.policy}: whose scripted people")
    args.task = args.task or _task_of(args.policy)
    teleop, config = load_config(TeleopConfig, find_config("teleop")), load_config(DeployConfig, find_config(args.config))
    arm = bring_up(args, robot)
    if arm is not None:
        plan = _prepare(args, robot, arm.limits)
        if args.check != "false":
            return _checked(args, plan, teleop)
    with ExitStack() as stack:
        needs = recordable(args.task).spec.needs
        from cail_robot.ros.runtime import Nodes  # first: it says how to add rclpy where it is missing

        nodes = stack.enter_context(Nodes(with_arm=arm is not None, params_file=args.params_file))
        from cail_robot.recording.nodes import RecorderNode
        from cail_robot.ros.arm_client import ArmClient

        node = ArmClient("policy", args.namespace, needs=needs, commands=args.dry_run == "false")
        nodes.spin(node)
        if arm is None:
            limits = node.arm_limits(NODE_PATIENCE_S)
            if robot.simulated and not node.simulated:
                raise BadInput(f"expected a simulated arm on /{args.namespace.strip('/')}, found a real one"
                               f" ({node.report.state}); --robot-type says which robot it is, such as ur5e")  # fmt: skip
            plan = _prepare(args, robot, limits)
            if args.check != "false":
                return _checked(args, plan, teleop)
        source, terminal = (Nobody(), None) if args.input == "none" else source_of(args, teleop, stack)
        recorder = _recorder(args, plan, stack)
        if arm is not None:
            nodes.spin(*arm.nodes())
        if recorder is not None:
            nodes.listen(RecorderNode(recorder, args.namespace))
        if isinstance(source, NodeInput):
            source.join(node)
        in_force = [text for text in (node.settings, plan.limits.text()) if text] if arm is None else arm.about()
        for note in (nodes.scheduling, *in_force, *plan.notes):
            say(f"cail: {note}")
        session = Session(
            plan, config, node, source, Steering(teleop), episodes=args.episodes, operator=args.operator, recorder=recorder,
            attended=args.input != "none", simulated=robot.simulated, dry_run=args.dry_run == "true",
        )  # fmt: skip
        drawn = stack.enter_context(terminal) if terminal else None
        with signals() as ended:  # until the arm was let go: a closed terminal sends more than one
            whole = False
            try:
                _loop(session, nodes, drawn, ended)
                whole = True
            finally:
                session.close(latch=bool(ended) or not whole)
    if args.results is not None:
        _write_results(args.results, session)
    return _summary(session, recorder, ended[0] if ended else 0)


def _write_results(file: Path, session: Session) -> None:
    rows = [{"outcome": one.outcome, "total": one.total_reward, "seconds": one.seconds} for one in session.tally.episodes]
    durable.write_bytes(file, json.dumps(rows, indent=1).encode())


def _task_of(folder: Path) -> str:
    from cail_core.policy import load_policy

    if not (folder / "policy.json").is_file() and (folder / "policy" / "policy.json").is_file():
        raise BadInput(f"expected a policy's folder, given the run {folder}; its policy is --policy {folder / 'policy'}")

    return load_policy(folder).card.task


def _mix(args: argparse.Namespace) -> str:
    """The mix of scripted people that is asked for in the place of a policy, if it is."""
    return str(args.policy).removeprefix("mix:") if str(args.policy).startswith("mix:") else ""


def _prepare(args: argparse.Namespace, robot: RobotSpec, limits: Limits) -> Deployment:
    if mix := _mix(args):
        return scripted(mix, limits, robot=robot, task=args.task, episodes=args.episodes, seed=args.seed)
    return prepare(
        args.policy, limits, robot=robot, task=args.task, rate=args.rate, max_speed=args.max_speed,
        without_guard=args.without_guard == "true", other_robot=args.other_robot == "true",
        beyond_stress=args.beyond_stress == "true",
    )  # fmt: skip


def _checked(args: argparse.Namespace, plan: Deployment, teleop: TeleopConfig) -> int:
    """The policy fits; with `all` what steers and where recordings go as well. Nothing is started or made."""
    if args.check == "all" and args.input != "none":
        with ExitStack() as stack:
            source_of(args, teleop, stack)[0].close()
    if args.check == "all" and args.record == "true" and args.dry_run == "false":
        check_dataset(args.dataset, plan.task, plan.robot.name, plan.rate)
    return _say_fit(plan)


def _say_fit(plan: Deployment) -> int:
    print(f"{plan.name} fits {plan.task.spec.name} on {plan.robot.name}: {plan.rate} Hz, {plan.max_speed:g} m/s,"
          f" at most {plan.time_limit_s:.1f} s an episode")  # fmt: skip
    for note in plan.notes:
        print(f"note: {note}")
    return 0


def _recorder(args: argparse.Namespace, plan: Deployment, stack: ExitStack) -> Recorder | None:
    if args.record == "false" or args.dry_run == "true":
        return None
    namespace = f"/{args.namespace.strip('/')}"
    recorder = Recorder(args.dataset, plan.task, robot=plan.robot.name, demonstrator=plan.name, rate=plan.rate,
                        namespace=namespace, silence_s=args.silence)  # fmt: skip
    stack.callback(recorder.close)
    return recorder


def _loop(session: Session, nodes: Nodes, drawn: Terminal | None, ended: list[int]) -> None:
    """Step until the end, or a signal."""
    last, said = 0.0, ""
    while session.phase is not Phase.DONE and not ended:
        session.step()
        if not nodes.alive:
            session.fault = "the arm's control loop has ended"
            break
        now = time.monotonic()
        if drawn is not None and now - last > DRAW_EVERY_S:
            last = now
            drawn.draw(screen(session, *drawn.size))
        elif drawn is None and (text := line(session)) != said and now - last > DRAW_EVERY_S:
            last, said = now, text
            print(text, flush=True)


def _summary(session: Session, recorder: Recorder | None, ended: int) -> int:
    plan = session.deployment
    if not session.dry_run:
        print(f"{plan.name}: {plan.task.spec.name} on {plan.robot.name}, {plan.rate} Hz, {plan.max_speed:g} m/s")
        for row in session.tally.table():
            print(f"  {row}")
    if recorder is not None:
        print(f"{recorder.root}: {len(recorder.saved)} episodes saved, {recorder.episodes} in the dataset")
    if ended := ended or (signal.SIGINT if session.broken_off else 0):
        say(f"cail: ended by {signal.Signals(ended).name}; the arm was stopped (clear_fault lets it move again),"
            " what was saved is intact")  # fmt: skip
        return 128 + ended
    if session.fault:
        say(spoken(f"cail: {session.fault}"))
        return 1
    return 0
