"""The methods by name. A method is one file with `@method` in it, an entry point under `cail.methods` and a YAML file."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cail_core.algorithms import GROUP, method_names
from cail_core.algorithms.settings import MethodConfig
from cail_core.config import installed_config
from cail_core.errors import BadInput, CailError

if TYPE_CHECKING:
    import torch

    from cail_core.algorithms.trainers.base import Learner
    from cail_core.demos.demonstrations import Demonstrations
    from cail_core.tasks.base import Task

C = TypeVar("C", bound=MethodConfig)


@dataclass(frozen=True)
class Training(Generic[C]):
    """What a method is given to make its learner from. All randomness comes from `generator`."""

    task: Task
    demos: Demonstrations
    config: C
    seed: int
    generator: torch.Generator
    resumed: bool = False
    """A `restore` follows and brings all that is learned: nothing need be learned beforehand."""

    @property
    def horizon(self) -> int:
        """The time limit of an episode, in steps."""
        return self.task.spec.max_steps


@dataclass(frozen=True)
class Method:
    """A method of `cail train`."""

    name: str
    config: type[MethodConfig]
    make: Callable[[Any], Learner]
    offline: bool
    """Learns from the recorded data alone; its steps are gradient steps."""
    needs_ranking: bool
    file: Path | None
    """Its settings, where they lie beside its code; else they are among the installed ones."""

    @property
    def settings(self) -> Path | None:
        return self.file or installed_config(self.name)


_METHODS: dict[str, Method] = {}


def method(name: str, config: type[C], *, offline: bool = False,
           needs_ranking: bool = False) -> Callable[[Callable[[Training[C]], Learner]], Callable[[Training[C]], Learner]]:
    """Makes a function from `Training` to a learner the method `name`. Its settings may lie beside it as `<name>.yaml`."""
    def register(make: Callable[[Training[C]], Learner]) -> Callable[[Training[C]], Learner]:
        beside = Path(inspect.getfile(make)).with_name(f"{name}.yaml")
        _METHODS[name] = Method(name, config, make, offline, needs_ranking, beside if beside.is_file() else None)
        return make

    return register


def get_method(name: str) -> Method:
    """The installed method called `name`."""
    if name in _METHODS:
        return _METHODS[name]
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            entry.load()
            if name not in _METHODS:
                raise CailError(f"method '{name}' ({entry.value}): its file has no @method(\"{name}\", …)")
            return _METHODS[name]
    raise BadInput(f"expected a method out of {', '.join(method_names()) or 'none: install cail again'}, given '{name}'")
