"""The `cail` command. Sub-commands come from entry points (`cail.commands`), of this package and of others."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from importlib.metadata import entry_points
from typing import Any, NoReturn

from cail_core import __version__
from cail_core.errors import CailError
from cail_core.launch_words import launched, spoken


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and where to look."""

    def error(self, message: str) -> NoReturn:
        where = "ros2 launch … --show-args" if launched() else f"{self.prog} --help"
        self.exit(2, f"{spoken(f'{self.prog}: {message}')}; see `{where}`\n")


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="cail",
        description="Confidence-aware imitation learning: demonstrations of mixed quality in, "
        "a confidence for every state-action pair and a policy out.",
        epilog="Start with `cail demo`. Each command has its own --help.",
    )
    parser.add_argument("--version", action="version", version=f"cail {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    # A pip install and a sourced colcon workspace may both be visible: of two with one name the first on the path counts.
    found = {entry.name: entry for entry in reversed(list(entry_points(group="cail.commands")))}
    for name in sorted(found):
        found[name].load()(commands)
    return parser


def main(argv: list[str] | None = None) -> int:
    try:
        args = build_parser().parse_args(argv)
        return args.run(args) or 0
    except CailError as fault:
        say(spoken(f"cail: {fault}"))
        return 2
    except KeyboardInterrupt:
        say("cail: interrupted; what was saved is intact")
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as fault:
        if fault.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            say(f"cail: no permission for {fault.filename}; choose a folder you may write, or change its owner")
            return 2
        if fault.filename is None and fault.errno != errno.ENOSPC:
            raise
        say(f"cail: {fault.strerror}: {fault.filename or 'the output'}; choose another place")
        return 2


def whole_number(text: str) -> int:
    """A seed or a count on the command line: 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number of 0 or more, given '{text}'")
    return int(text)


def say(text: Any) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
