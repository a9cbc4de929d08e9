"""PyBullet, imported where it is used."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import cail_robot
from cail_core import machine
from cail_core.errors import MissingDependency, how_to_add


def load_pybullet() -> ModuleType:
    """The module `pybullet`; its build date, which importing it prints, is swallowed."""
    if clash := _two_pybullets():
        raise MissingDependency(clash)
    try:
        with quiet():
            return importlib.import_module("pybullet")
    except ImportError as fault:
        raise MissingDependency(f"the simulated arms need PyBullet ({fault}); {how_to_add('sim')}") from None


@functools.cache
def _two_pybullets() -> str:
    return machine.two_pybullets()


def data_file(name: str) -> str:
    """A model file of ours, or else one that comes with PyBullet."""
    if (ours := Path(cail_robot.__file__).with_name("data") / name).exists():
        return str(ours)
    load_pybullet()
    folder: str = importlib.import_module("pybullet_data").getDataPath()
    return os.path.join(folder, name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps what C code prints off the terminal."""
    sys.stdout.flush()
    try:
        kept = [(fd, os.dup(fd)) for fd in (1, 2)]
    except OSError:  # no terminal at all
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for fd, _ in kept:
            os.dup2(nowhere, fd)
        yield
    finally:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).fflush(None)  # what C still holds back
        for fd, copy in kept:
            os.dup2(copy, fd)
            os.close(copy)
        os.close(nowhere)


def egl_plugin() -> str:
    """The file of PyBullet's EGL renderer, or nothing."""
    found = importlib.util.find_spec("eglRenderer")
    return found.origin if found is not None and found.origin else ""


@functools.cache
def egl_works() -> bool:
    """Whether EGL can draw here; tried in a process of its own, which the plugin ends on a machine without it."""
    plugin = egl_plugin()
    if not plugin:
        return False
    trial = (f"import pybullet as p; c = p.connect(p.DIRECT); assert p.loadPlugin({plugin!r}, '_eglRendererPlugin') >= 0; "
             "p.getCameraImage(16, 16); print('drawn')")
    try:
        tried = subprocess.run([sys.executable, "-c", trial], capture_output=True, timeout=20, text=True)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0 and "drawn" in tried.stdout
