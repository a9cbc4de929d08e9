"""A worker process of `WorkerEnv`: commands come in on stdin, each is answered on stdout, the numbers stand in shared memory.

It ends when stdin closes, which the system does for a parent that ends in whatever way.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import mmap
import os
import sys
from typing import Any, TextIO

from cail_core.config import build
from cail_core.errors import CailError
from cail_core.tasks.variation import Variation
from cail_sim.bullet.vector import Batch, LocalEnv, Stretch
from cail_sim.tasks.panda import Panda, PandaConfig


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not look like an answer
    with contextlib.suppress(BrokenPipeError):
        try:
            serve(json.loads(sys.argv[1]), answers)
        except CailError as fault:
            _answer(answers, " ".join(str(fault).split()))


def serve(about: dict[str, Any], answers: TextIO) -> None:
    """Make the environments, then do what is told until stdin closes."""
    module, name = about["task"]
    task: Panda = getattr(importlib.import_module(module), name).of(
        build(PandaConfig, about["config"], "panda config"), build(Variation, about["played_under"], "variation"))
    num_envs, observation_dim, action_dim = about["dims"]
    batch = Batch(num_envs, observation_dim, action_dim, mmap.mmap(about["memory"], 0))
    env = LocalEnv([task.one() for _ in about["rows"]], batch, about["rows"])
    _answer(answers)
    for line in sys.stdin:
        command, _, rest = line.partition(" ")
        if command == "play":
            with contextlib.closing(mmap.mmap(about["stretches"], 0)) as memory:
                stretch = Stretch(json.loads(rest), memory)
                env.play_out(stretch)
                stretch.arrays.clear()  # they hold the memory
        elif command == "reset":
            env.reset(int(rest))
        elif command == "begin":
            env.begin(json.loads(rest))
        elif command == "restart":
            which, seed = rest.split()
            env.restart(int(which), int(seed))
        else:
            env.advance()
        _answer(answers)


def _answer(answers: TextIO, text: str = "ok") -> None:
    answers.write(text + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
