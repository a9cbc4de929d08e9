"""Settings in layers, each over the one before: method ← task ← file ← --set; and where every value comes from."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import yaml

from cail_core.config import build, find_config, merged, parse_yaml, read_yaml, to_dict
from cail_core.errors import BadInput

T = TypeVar("T")
DEFAULT, METHOD, TASK, FILE, SET = "default", "method", "task", "file", "--set"
WIDTH = 46
"""Column of the origins in `text`, where a value leaves room for it."""


@dataclass(frozen=True)
class Layer:
    """Some settings, nested as in a YAML file, and where they stand."""

    name: str
    where: str
    values: Any


@dataclass(frozen=True)
class Layered(Generic[T]):
    """A config made of layers."""

    config: T
    layers: tuple[Layer, ...]

    def origin(self, key: str) -> str:
        """The layer that decided the setting `key` ("ppo.gamma"): the last one that names it."""
        for layer in reversed(self.layers):
            if key in flat(layer.values):
                return layer.name
        return DEFAULT

    def differing(self, *names: str) -> dict[str, Any]:
        """What the layers of these names say together."""
        values: dict[str, Any] = {}
        for layer in self.layers:
            if layer.name in names:
                values = merged(values, layer.values)
        return values

    def text(self) -> str:
        """Every value as YAML, which `--config` takes again, with its layer behind it."""
        lines = [f"# {layer.name}: {layer.where}" for layer in self.layers if layer.name != SET or layer.values]
        return "\n".join([*lines, *self._lines(to_dict(self.config), "", "")])

    def _lines(self, values: Mapping[str, Any], prefix: str, indent: str) -> Iterable[str]:
        for key, value in values.items():
            if isinstance(value, dict):
                yield f"{indent}{key}:"
                yield from self._lines(value, f"{prefix}{key}.", indent + "  ")
            else:
                yield f"{f'{indent}{key}: {_inline(value)}':<{WIDTH}}  # {self.origin(prefix + key)}"


def layered(cls: type[T], layers: Sequence[Layer]) -> Layered[T]:
    """A `cls` of all layers. Each is checked alone first, so that a fault names the file in which it stands."""
    values: dict[str, Any] = {}
    for layer in layers:
        build(cls, layer.values, layer.where)
        values = merged(values, layer.values)
    return Layered(build(cls, values, ", ".join(layer.where for layer in layers)), tuple(layers))


def file_layer(name: str) -> Layer:
    """The settings of a file, or of an installed config of that name."""
    path = find_config(name)
    return Layer(FILE, str(path), read_yaml(path) or {})


def set_layer(words: Sequence[str]) -> Layer:
    """What `--set key=value` says, one or more times; where a key is given twice the last one counts."""
    values: dict[str, Any] = {}
    for word in words:
        key, found, value = word.partition("=")
        path = key.strip().split(".")
        if not found or not all(path):
            raise BadInput(f"expected --set KEY=VALUE, such as --set ppo.gamma=0.99, given '{word}'")
        values = merged(values, nested(path, parse_yaml(value, f"--set {word}")))
    return Layer(SET, " ".join(f"--set {word}" for word in words), values)


def changes_layer(changes: Mapping[str, Any]) -> Layer:
    """The same from {"ppo.gamma": 0.99}, for programs."""
    values: dict[str, Any] = {}
    for key, value in changes.items():
        values = merged(values, nested(key.split("."), value))
    return Layer(SET, ", ".join(changes) or "no changes", values)


def nested(path: Sequence[str], value: Any) -> Any:
    """{"a": {"b": value}} for the path a, b."""
    for key in reversed(path):
        value = {key: value}
    return value


def flat(values: Any, prefix: str = "") -> dict[str, Any]:
    """Nested values as one level: {"ppo.gamma": 0.995}."""
    if not isinstance(values, dict):
        return {prefix.removesuffix("."): values}
    made: dict[str, Any] = {}
    for key, value in values.items():
        made |= flat(value, f"{prefix}{key}.")
    return made


def known_part(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Of nested values those that `cls` has a setting for."""
    kinds = {field.name: field for field in dataclasses.fields(cls)}
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key in kinds:
            section = kinds[key].default_factory
            inside = isinstance(value, dict) and isinstance(section, type) and dataclasses.is_dataclass(section)
            found[key] = known_part(section, value) if inside else value
    return found


def add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    """--config and --set, as all commands that learn have them."""
    parser.add_argument("--config", metavar="FILE.yaml",
                        help="settings that differ from those of the method and the task; all others stay as they are")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="set",
                        help="one setting, over those of --config: --set ppo.gamma=0.99; may be given several times")


def write_yaml(values: Mapping[str, Any], head: str) -> bytes:
    """A settings file with a comment above it."""
    return f"# {head}\n{yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)}".encode()


def _inline(value: Any) -> str:
    """One value as YAML on one line."""
    if isinstance(value, float):
        return yaml.safe_dump(value).split("\n")[0]
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, tuple, bool, int)) else _plain(value)


def _plain(value: Any) -> str:
    text: str = yaml.safe_dump(value, allow_unicode=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")


def beside(module_file: str | None, name: str) -> Path | None:
    """A config file that a package from outside has next to its code."""
    path = Path(module_file).parent / f"{name}.yaml" if module_file else None
    return path if path is not None and path.is_file() else None
