"""`cail doctor`: what is installed, what is missing and how to add it, and how fast this machine is."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cail_core import __version__, machine
from cail_core.durable import write_bytes
from cail_core.errors import how_to_add
from cail_core.progress import console, table


@dataclass(frozen=True)
class Part:
    """A package that some part of the stack needs."""

    module: str
    package: str
    use: str
    extra: str | None
    """The extra of `cail` that adds it; None: it comes with cail itself."""


PARTS = (
    Part("numpy", "numpy", "everything", None),
    Part("pyarrow", "pyarrow", "demonstrations on disk", None),
    Part("h5py", "h5py", "robomimic and Minari files", None),
    Part("torch", "torch", "training", None),
    Part("gymnasium", "gymnasium", "environments", None),
    Part("tensorboard", "tensorboard", "training curves", None),
    Part("mujoco", "mujoco", "tasks reacher and ant", "mujoco"),
    Part("pybullet", "pybullet", "the simulated Panda and UR5e", "sim"),
    Part("rclpy", "ros-jazzy-rclpy", "ROS 2 nodes", "ros"),
    Part("geometry_msgs", "ros-jazzy-common-interfaces", "ROS 2 messages", "ros"),
    Part(
        "launch_ros",
        "launch_ros",
        "ros2 launch (else: cail up, cail record, cail deploy)",
        "a ROS 2 installation (Jazzy or newer)",
    ),
    Part("mcap", "mcap", "recordings", "ros"),
    Part("rtde_control", "ur-rtde", "the UR5e", "ur"),
    Part("scipy", "scipy", "p-values in benchmarks", "bench"),
)

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def register(commands: Any) -> None:
    p = commands.add_parser("doctor", help="what is installed, what is missing, how fast this machine is")
    p.add_argument("--no-speed", action="store_true", help="leave out the speed probe of about 5 s")
    p.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    out = console()
    out.print(
        f"cail {__version__}  {machine.cpu_model()}, {machine.cores()} cores, {machine.memory_gib():.1f} GiB, "
        f"Python {platform.python_version()}",
    )
    threads = ", ".join(f"{name}={os.environ[name]}" for name in THREAD_VARIABLES if name in os.environ)
    out.print(f"threads: {threads or 'not capped (set OMP_NUM_THREADS where several processes train at once)'}")
    free = shutil.disk_usage(".").free / 2**30
    out.print(f"disk: {free:.1f} GiB free here")

    shown = table("part", "version", "what for", "")
    broken: list[Part] = []
    missing: list[Part] = []
    for part in PARTS:
        state, fault = _state(part)
        shown.add_row(part.package, state or "–", part.use, "" if state else (fault or "missing"))
        if not state:
            (broken if part.extra is None else missing).append(part)
    out.print(shown)
    for part in broken:
        out.print(
            f"{part.package} belongs to every installation and does not work: pip install --force-reinstall {part.package}",
        )
    if clash := machine.two_pybullets():
        out.print(clash)
    for extra in dict.fromkeys(part.extra for part in missing):
        names = ", ".join(p.package for p in missing if p.extra == extra)
        command = how_to_add(extra) if extra and " " not in extra else extra
        out.print(f"to add {names}: {command}")
    if not missing and not broken and not clash:
        out.print("nothing is missing")
    if not args.no_speed:
        _probe(out)
    return 1 if broken else 0


def _state(part: Part) -> tuple[str | None, str | None]:
    """The version if the module imports, else why it does not."""
    try:
        if part.module == "launch_ros":  # the bare name can be a namespace package of a source tree
            importlib.import_module("launch_ros.actions")
        importlib.import_module(part.module)
    except ImportError as fault:
        return None, None if isinstance(fault, ModuleNotFoundError) else str(fault).splitlines()[0]
    except Exception as fault:  # a broken binary package may raise anything; the doctor reports it
        return None, f"does not load: {str(fault).splitlines()[0] if str(fault) else type(fault).__name__}"
    names = machine.PYBULLETS if part.package == "pybullet" else (part.package,)
    found = [(name, version) for name in names if (version := machine.installed(name))]
    return ", ".join(version if name == part.package else f"{version} ({name})" for name, version in found) or "present", None


def _probe(out: Any) -> None:
    """About a second each of what the stack spends its time on."""
    import numpy as np

    from cail_core.tasks import get_task

    shown = table("speed", "per second")
    env = get_task("pointmass").make_env(64)
    env.reset(0)
    action = np.zeros((64, 2), dtype=np.float32)
    shown.add_row("point-mass steps, 64 at once", f"{64 * _rate(lambda: env.step(action)):,.0f}")
    a = np.random.default_rng(0).standard_normal((256, 256), dtype=np.float32)
    shown.add_row("256 × 256 matrix products, NumPy", f"{_rate(lambda: a @ a):,.0f}")
    try:
        import torch
    except ImportError:
        pass
    else:
        net = torch.nn.Sequential(
            torch.nn.Linear(11, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2)
        )
        x = torch.zeros(256, 11)

        def update() -> None:
            net.zero_grad()
            net(x).square().mean().backward()

        shown.add_row(f"updates of a 2×64 network, batch 256, {torch.get_num_threads()} thread(s)", f"{_rate(update):,.0f}")
    try:
        import pybullet
    except ImportError:
        pass
    else:
        client = pybullet.connect(pybullet.DIRECT)
        shown.add_row("empty PyBullet ticks", f"{_rate(lambda: pybullet.stepSimulation(physicsClientId=client)):,.0f}")
        pybullet.disconnect(client)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        shown.add_row(
            "durable 64 KiB files on this disk", f"{_rate(lambda: write_bytes(Path(folder, 'probe'), bytes(65536))):,.0f}"
        )
    out.print(shown)


def _rate(work: Callable[[], object], seconds: float = 1.0) -> float:
    work()
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        work()
        count += 1
    return count / elapsed
