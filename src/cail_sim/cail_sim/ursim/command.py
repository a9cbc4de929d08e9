"""`cail ursim`: a UR5e control box on this machine."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import Any

from cail_core.cli import say


def register(commands: Any) -> None:
    p = commands.add_parser(
        "ursim",
        help="a UR5e control box on this machine, for ur_rtde and other RTDE clients",
        description="Speaks what a UR5e's control box speaks: Dashboard 29999, scripts 30003, RTDE 30004, Robotiq 63352.",
    )
    p.add_argument("--host", default="127.0.0.1", help="address to listen on; default: 127.0.0.1, this machine only")
    p.add_argument("--fault", metavar="TEXT", help="break something in a running box: try --fault help")
    p.add_argument("--realtime", action="store_true", help="real-time scheduling where the system permits it")
    p.add_argument("--quiet", action="store_true", help="no status line")
    p.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    from cail_sim.ursim import faults
    from cail_sim.ursim.plant import KinematicArm
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
    server = Server(KinematicArm, args.host)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.stop())
    say(f"UR5e control box on {args.host}: dashboard 29999, script 30003, RTDE 30004, Robotiq 63352. Ctrl-C ends it.")
    if args.realtime:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))
        except (OSError, AttributeError) as fault:
            say(f"real-time scheduling is not permitted ({fault}): cycles may come late on a busy machine")
    shown = not args.quiet and sys.stderr.isatty()
    server.run(_status_line(server) if shown else None)
    if shown:
        print(file=sys.stderr)


def _status_line(server: Any) -> Any:
    def show() -> None:
        now = {**server.box.status(), **server.status()}
        x, y, z = now["tcp"][:3]
        text = (
            f"{now['robot_mode']} {now['safety']} {now['runtime']}  tool ({x:+.3f}, {y:+.3f}, {z:+.3f}) m "
            f"{now['tool_speed']:.3f} m/s  slider {now['slider']:.0%}  {now['clients']} clients  {now['said']}"
        )
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        print(f"\r\x1b[K{text[: width - 1]}", end="", file=sys.stderr, flush=True)

    return show
