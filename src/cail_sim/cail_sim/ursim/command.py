"""`cail ursim`: a UR5e control box on this machine."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from cail_core.cli import say, whole_number


def register(commands: Any) -> None:
    p = commands.add_parser(
        "ursim",
        help="a UR5e control box on this machine, for ur_rtde and other RTDE clients",
        description="Speaks what a UR5e's control box speaks: Dashboard 29999, scripts 30003, RTDE 30004, Robotiq 63352.",
    )
    p.add_argument("--host", default="127.0.0.1", help="address to listen on; default: 127.0.0.1, this machine only")
    p.add_argument("--table", action="store_true", help="the arm on the task's table in PyBullet, instead of an arm in the void")
    p.add_argument("--window", action="store_true", help="show PyBullet's window; with --table")
    p.add_argument("--seed", type=whole_number, default=0, help="of where the things on the table start; default: 0")
    p.add_argument("--fault", metavar="TEXT", help="break something in a running box: try --fault help")
    p.add_argument("--realtime", action="store_true", help="real-time scheduling where the system permits it")
    p.add_argument("--child", action="store_true", help="end when the process that started it does")
    p.add_argument("--quiet", action="store_true", help="no status line")
    p.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    from cail_robot.control.realtime import realtime
    from cail_sim.bullet.window import need_display
    from cail_sim.ursim import faults
    from cail_sim.ursim.plant import KinematicArm, Plant
    from cail_sim.ursim.server import Server

    loopback = args.host if args.host.startswith("127.") else "127.0.0.1"
    if args.fault:
        if args.fault == "help":
            for line, text in faults.HELP.items():
                print(f"{line:24} {text}")
            return
        client = faults.FaultClient(loopback)
        print(json.dumps(client(args.fault)))
        client.close()
        return

    def plant() -> Plant:
        if not args.table:
            return KinematicArm()
        from cail_sim.ursim.table import TableArm

        return TableArm(args.seed, window=args.window)

    if args.table and args.window:
        need_display()
    server = Server(plant, args.host)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.stop())
    say(f"UR5e control box on {args.host}: dashboard 29999, script 30003, RTDE 30004, Robotiq 63352. Ctrl-C ends it.")
    if args.realtime and not realtime(40):
        say("real-time scheduling is not permitted: cycles may come late on a busy machine")
    shown = not args.quiet and sys.stderr.isatty()
    server.run(_each_second(server, os.getppid() if args.child else None, shown))
    if shown:
        print(file=sys.stderr)


def _each_second(server: Any, parent: int | None, shown: bool) -> Callable[[], None]:
    def look() -> None:
        if parent is not None and os.getppid() != parent:
            server.stop()
        if shown:
            _show({**server.box.status(), **server.status()})

    return look


def _show(now: dict[str, Any]) -> None:
    x, y, z = now["tcp"][:3]
    text = (
        f"{now['robot_mode']} {now['safety']} {now['runtime']}  tool ({x:+.3f}, {y:+.3f}, {z:+.3f}) m "
        f"{now['tool_speed']:.3f} m/s  slider {now['slider']:.0%}  {now['clients']} clients  {now['said']}"
    )
    width = os.get_terminal_size(sys.stderr.fileno()).columns
    print(f"\r\x1b[K{text[: width - 1]}", end="", file=sys.stderr, flush=True)
