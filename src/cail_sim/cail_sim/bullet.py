"""PyBullet, imported where it is used."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from cail_core.errors import MissingDependency, how_to_add


def load_pybullet() -> ModuleType:
    """The module `pybullet`; its build date, which importing it prints, is swallowed."""
    try:
        with quiet():
            return importlib.import_module("pybullet")
    except ImportError as fault:
        raise MissingDependency(f"the simulated arms need PyBullet ({fault}); {how_to_add('sim')}") from None


def data_file(name: str) -> str:
    """A model file of this package, or else one that comes with PyBullet."""
    if (ours := Path(__file__).with_name("data") / name).exists():
        return str(ours)
    load_pybullet()
    folder: str = importlib.import_module("pybullet_data").getDataPath()
    return os.path.join(folder, name)


@contextmanager
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
        for fd, copy in kept:
            os.dup2(copy, fd)
            os.close(copy)
        os.close(nowhere)
