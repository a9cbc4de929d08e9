"""What this program runs on: for `cail doctor` and for the record beside every benchmark's result."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

from cail_core.errors import how_to_add

VERSIONS = ("cail", "numpy", "torch", "pyarrow", "gymnasium", "mujoco", "pybullet", "pybullet-arm64", "ros-jazzy-rclpy",
            "ur-rtde")
PYBULLETS = ("pybullet", "pybullet-arm64")
"""Two packages with the same module: PyBullet itself, and its build for Pythons that have no wheel of it."""


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_gib() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def two_pybullets() -> str:
    """What to say where both packages lie in one folder, each with some of its files overwritten by the other; else nothing."""
    folders = [distribution(name).locate_file("") for name in PYBULLETS if installed(name)]
    if len(folders) < 2 or Path(str(folders[0])).resolve() != Path(str(folders[1])).resolve():
        return ""
    return (f"expected one PyBullet, found {' and '.join(PYBULLETS)}, which overwrite each other: "
            f"pip uninstall -y {' '.join(PYBULLETS)}, then {how_to_add('sim')}")


def _cpu_ticks() -> tuple[int, int]:
    """What all cores were asked for since the machine started, and how much of it the host of a virtual machine kept."""
    try:
        user, nice, system, _, _, irq, softirq, stolen = map(int, Path("/proc/stat").read_text("ascii").split()[1:9])
    except (OSError, ValueError):
        return 0, 0
    return user + nice + system + irq + softirq + stolen, stolen


_AT_START = _cpu_ticks()


def stolen_share() -> float:
    """The share of the processor time wanted on this machine, since this program started, that its host gave to others.

    0 on a machine of its own. Where it is not small, nothing that was timed says much.
    """
    wanted, stolen = (now - before for now, before in zip(_cpu_ticks(), _AT_START, strict=True))
    return stolen / wanted if wanted else 0.0


def describe() -> dict[str, Any]:
    """Versions and machine, as a benchmark's record keeps them."""
    return {
        "versions": {"python": platform.python_version(), **{p: v for p in VERSIONS if (v := installed(p))}},
        "machine": {
            "cpu": cpu_model(),
            "cores": cores(),
            "memory_gib": round(memory_gib(), 1),
            "system": f"{platform.system()} {platform.release().split('-')[0]}",
            "load": round(os.getloadavg()[0], 1),
            "stolen_share": round(stolen_share(), 3),
        },
        "command": " ".join(["cail", *(_plain(word) for word in sys.argv[1:])]),
    }


def _plain(word: str) -> str:
    """A word of the command line without the folders of this machine."""
    return Path(word).name if Path(word).is_absolute() else word
