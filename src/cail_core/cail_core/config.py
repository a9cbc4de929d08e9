"""YAML files mapped 1:1 onto documented dataclasses; an unknown key or a wrong type is an error, all listed at once."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import difflib
import importlib.util
import os
import sys
import sysconfig
import types
import typing
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

import yaml

from cail_core.errors import ConfigError, listed

T = TypeVar("T")


def setting(
    default: Any, help: str, *, low: float | None = None, high: float | None = None, choices: tuple[Any, ...] | None = None
) -> Any:
    """A documented field of a config dataclass: its default, one line of why, its bounds (inclusive)."""
    metadata = {"help": help, "low": low, "high": high, "choices": choices}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
    if dataclasses.is_dataclass(default) and isinstance(default, type):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def config_folders() -> list[Path]:
    """Where installed config files lie: a colcon or ROS prefix, a pip prefix, and an editable source tree."""
    prefixes = [p for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    prefixes += [sysconfig.get_path("data"), sys.prefix, sysconfig.get_path("data", f"{os.name}_user")]
    folders = [Path(prefix) / "share" / "cail_robot" / "config" for prefix in prefixes]
    source = Path(__file__).resolve().parents[3]
    if (source / "hatch_build.py").exists():  # an editable install: the tree itself, so that edits act at once
        folders.insert(0, source / "config")
    return [f for f in dict.fromkeys([*folders, *package_folders()]) if f.is_dir()]


def package_folders() -> list[Path]:
    """The folder `config` of every package that brings a task, a robot or a method. Ours come first: a package adds files and
    replaces none."""
    found = []
    for group in ("cail.tasks", "cail.arms", "cail.methods"):
        for entry in entry_points(group=group):
            with contextlib.suppress(ImportError, ValueError):  # a package that is broken has no files
                spec = importlib.util.find_spec(entry.module.partition(".")[0])
                found += [Path(place) / "config" for place in (spec and spec.submodule_search_locations) or ()]
    return sorted(dict.fromkeys(found))


def installed_config(name: str) -> Path | None:
    """The installed config `name`.yaml, if there is one."""
    file = name if Path(name).suffix in (".yaml", ".yml") else f"{name}.yaml"
    return next((folder / file for folder in config_folders() if (folder / file).exists()), None)


def find_config(name: str) -> Path:
    """The file `name`, or the installed config `name`.yaml."""
    given = Path(name)
    if given.suffix in (".yaml", ".yml") and given.exists():
        return given
    if (installed := installed_config(name)) is not None:
        return installed
    have = sorted({p.stem for folder in config_folders() for p in folder.glob("*.yaml")})
    raise ConfigError(f"expected a YAML file or one of the installed configs ({', '.join(have) or 'none found'}), given '{name}'")


class _Loader(yaml.SafeLoader):
    """Refuses a key that is given twice, which YAML itself lets the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"given twice: {', '.join(twice)}", node.start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """The content of a YAML file; a missing or malformed one is a ConfigError."""
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: expected a YAML file, found a folder") from None
    except UnicodeDecodeError as fault:
        raise ConfigError(f"{path}: not valid YAML: {fault}") from None


def parse_yaml(text: str, where: str) -> Any:
    """The content of some YAML; `where` names it in the error."""
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except (ValueError, RecursionError, yaml.YAMLError) as fault:
        said = str(fault).replace("\n", " ")
        raise ConfigError(f"{where}: not valid YAML: {said}") from None


def load_config(cls: type[T], path: Path) -> T:
    """Read `path` into the dataclass `cls`; every unknown key and wrong value is listed in one ConfigError."""
    return build(cls, read_yaml(path) or {}, str(path))


def merged(values: Any, changes: Any) -> Any:
    """`values` with `changes` put over them, key by key."""
    if not (isinstance(values, dict) and isinstance(changes, dict)):
        return changes
    return {**values, **{key: merged(values.get(key), change) for key, change in changes.items()}}


def build(cls: type[T], values: Any, where: str) -> T:
    """Make a `cls` from a mapping as a YAML file gives it; `where` names the source in the error."""
    faults: list[str] = []
    made = _build(cls, values, "", faults)
    if faults:
        raise ConfigError(listed(where, faults))
    return typing.cast(T, made)


def to_dict(config: Any) -> dict[str, Any]:
    """The config as plain values, for `config.yaml` of a run."""
    return dataclasses.asdict(config)


def _build(cls: Any, values: Any, prefix: str, faults: list[str]) -> Any:
    if not isinstance(values, dict):
        faults.append(f"{prefix or 'top level'}: expected keys and values, given {values!r}")
        return None
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in values:
        if key not in fields:
            faults.append(_unknown(cls, prefix, str(key), list(fields)))
    made = {}
    for name, field in fields.items():
        if name in values:
            made[name] = _convert(hints[name], values[name], field.metadata, prefix + name, faults)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            faults.append(f"key '{prefix}{name}' is missing")
    return None if faults else cls(**made)


def _unknown(cls: Any, prefix: str, key: str, known: list[str]) -> str:
    """What to say of a key that `cls` has not. Its table RENAMED, where it has one, tells what became of older keys."""
    if key in getattr(cls, "RENAMED", {}):
        return f"unknown key '{prefix}{key}', which is now: {cls.RENAMED[key]}"
    close = difflib.get_close_matches(key, known, 1)
    hint = f"; did you mean {prefix}{close[0]}?" if close else ""
    return f"unknown key '{prefix}{key}', expected one of: {', '.join(known)}{hint}"


def _convert(kind: Any, value: Any, bounds: typing.Mapping[str, Any], name: str, faults: list[str]) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        kind = next(a for a in args if a is not type(None))
        origin, args = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _build(kind, value, f"{name}.", faults)
    if origin in (list, tuple):
        if not isinstance(value, (list, tuple)):
            faults.append(f"{name}: expected a list, given {value!r}")
            return None
        items = [_convert(args[0], item, bounds, f"{name}[{i}]", faults) for i, item in enumerate(value)]
        return items if origin is list else tuple(items)
    if origin is dict:
        if not isinstance(value, dict):
            faults.append(f"{name}: expected keys and values, given {value!r}")
            return None
        faults += [f"{name}: expected text as a key, given {key!r}" for key in value if not isinstance(key, args[0])]
        return {key: _convert(args[1], item, bounds, f"{name}.{key}", faults) for key, item in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is float and isinstance(value, str):  # YAML 1.1 reads 3e-4 (no dot) as text
        with contextlib.suppress(ValueError):
            value = float(value)
    if kind in (bool, int, float, str) and type(value) is not kind:
        faults.append(f"{name}: expected {kind.__name__}, given {value!r}")
        return None
    low, high, choices = bounds.get("low"), bounds.get("high"), bounds.get("choices")
    if choices is not None and value not in choices:
        faults.append(f"{name}: expected one of {', '.join(map(str, choices))}, given {value!r}")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and ((low is not None and not value >= low) or (high is not None and not value <= high)):
        allowed = f"{'any' if low is None else low} … {'any' if high is None else high}"
        faults.append(f"{name}: expected {allowed}, given {value!r}")
    return value
