"""The settings of a method in their layers: method ← task ← file ← --set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cail_core.algorithms import method_names
from cail_core.algorithms.registry import get_method
from cail_core.algorithms.settings import MethodConfig
from cail_core.config import installed_config, merged, read_yaml
from cail_core.errors import ConfigError
from cail_core.layers import METHOD, TASK, Layer, Layered, beside, changes_layer, file_layer, flat, known_part, layered, set_layer

ALL, LIKE = "all", "like"
"""In a task's file: the section for every method, and the name of a task whose file comes first."""


def method_config(method: str, task: str = "", changes: Mapping[str, Any] | None = None) -> Any:
    """The installed settings of a method, with what `<task>-learning.yaml` changes in them for a task, and with `changes` such
    as {"ppo.gamma": 0.99}. Of the class that the method has: each reads other settings."""
    found = _installed(method, task)
    return layered(get_method(method).config, [*found, changes_layer(changes)] if changes else found).config


def method_settings(method: str, task: str = "", file: str | None = None, changes: Sequence[str] = ()) -> Layered[MethodConfig]:
    """The same in layers, with a `file` that names only what differs and with `changes` in the form key=value."""
    layers = _installed(method, task)
    if file is not None:
        layers.append(file_layer(file))
    if changes:
        layers.append(set_layer(changes))
    return layered(get_method(method).config, layers)


def read_part(method: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Of `changes` those that the method reads."""
    cls = get_method(method).config
    return {key: value for key, value in changes.items() if flat(known_part(cls, changes_layer({key: value}).values))}


def _installed(method: str, task: str) -> list[Layer]:
    found = get_method(method)
    layers = [Layer(METHOD, str(found.settings), read_yaml(found.settings) or {})] if found.settings is not None else []
    return layers + (_of_task(method, task) if task else [])


def _of_task(method: str, task: str) -> list[Layer]:
    """What `<task>-learning.yaml` says for a method. What `all` says counts for those that read it."""
    path = learning_file(task)
    if path is None:
        return []
    sections = read_yaml(path) or {}
    unknown = sorted(set(sections) - {ALL, LIKE, *method_names()})
    if unknown:
        raise ConfigError(f"{path}: expected the sections all, like or a method, given {', '.join(unknown)}")
    values = merged(known_part(get_method(method).config, _checked(path, sections.get(ALL) or {})), sections.get(method) or {})
    first = _of_task(method, str(sections[LIKE])) if sections.get(LIKE) else []
    return [*first, Layer(TASK, str(path), values)] if values or not first else first


def _checked(path: Path, values: Any) -> dict[str, Any]:
    """The section `all`, each of whose keys some method must read."""
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected keys and values in the section all, given {values!r}")
    read: set[str] = set()
    for name in method_names():
        read |= flat(known_part(get_method(name).config, values)).keys()
    if unread := sorted(flat(values).keys() - read):
        raise ConfigError(f"{path}: no method reads {', '.join(unread)} (section all)")
    return values


def learning_file(task: str) -> Path | None:
    """`<task>-learning.yaml`, among the installed configs or beside the code of a task from another package."""
    name = f"{'own' if ':' in task else task}-learning"  # gym:ID and data:NAME, which no package brings
    if (installed := installed_config(name)) is not None:
        return installed
    for entry in entry_points(group="cail.tasks"):
        if entry.name == task and (spec := find_spec(entry.module)) is not None:
            return beside(spec.origin, name)
    return None
