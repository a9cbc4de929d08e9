"""The errors a user can cause. The `cail` command prints their text on one line and exits with code 2."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Sequence

MOST_SHOWN = 50
WHEELS_END = {"sim": ("PyBullet", (3, 13)), "ur": ("ur-rtde", (3, 12)), "ray": ("Ray", (3, 13))}
"""What an extra brings, and the last Python with a ready-built wheel of it, as in pyproject.toml."""


class CailError(Exception):
    """Something the user can put right; the text says what was expected, what was given and the way out."""


class BadInput(CailError):
    """A value, file or option is not what the command takes."""


class ConfigError(CailError):
    """A configuration file does not fit the settings it is for."""


class DatasetError(CailError):
    """A dataset of demonstrations cannot be read, written or changed as asked."""


class MissingDependency(CailError):
    """An optional package is needed; the text has the command that adds it."""


class StorageFull(CailError):
    """The disk took no more bytes; what was saved before is intact."""


def listed(what: str, faults: Sequence[str]) -> str:
    """All faults of one thing in one text: a single fault on the same line, several as a list."""
    if len(faults) == 1:
        return f"{what}: {faults[0]}"
    shown = [f"  - {fault}" for fault in faults[:MOST_SHOWN]]
    if len(faults) > MOST_SHOWN:
        shown.append(f"  … and {len(faults) - MOST_SHOWN} more")
    return f"{what}: {len(faults)} faults\n" + "\n".join(shown)


PACKAGES = {
    "ros": "mcap mcap-ros2-support",
    "ur": "ur-rtde",
    "sim": f"{'pybullet' if sys.version_info < (3, 12) else 'pybullet-arm64'} imageio-ffmpeg",
    "mujoco": "mujoco imageio",
    "bench": "scipy",
    "ray": "ray",
    "tune": "optuna",
}
"""What each extra of the distribution brings beyond ROS 2 itself."""


def in_workspace() -> bool:
    """Whether a colcon workspace runs this: there is no distribution of all of cail then, and ROS 2 is the underlay's."""
    try:
        importlib.metadata.distribution("cail")
    except importlib.metadata.PackageNotFoundError:
        return True
    return False


def how_to_add(extra: str) -> str:
    """The command that installs an extra of this distribution; where there is nothing to install, why, and the way out. In a
    workspace the packages by name, so that no second ROS 2 and no second cail come with them."""
    what, last = WHEELS_END.get(extra, ("", (9, 9)))
    if extra == "sim" and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        last = (3, 11)  # PyBullet's own wheels
    if sys.version_info[:2] > last:
        newest = ".".join(map(str, last))
        return (f"{what} has no ready-built wheel for Python {platform.python_version()}, the last is {newest}: "
                f"make install PYTHON=python{newest}")
    if in_workspace():
        return f"pip install {PACKAGES[extra]}"
    return f"in cail's source folder: pip install -c constraints.txt -e '.[{extra}]'"
