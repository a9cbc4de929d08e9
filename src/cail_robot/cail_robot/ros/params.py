"""Parameters of the arm's node: limits as ROS parameters, ROS parameter files, and all that is wrong with either. No ROS here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from cail_core.config import build
from cail_core.errors import BadInput, ConfigError, listed
from cail_robot.safety.limits import Limits

LIMITS = tuple(field.name for field in fields(Limits))
OTHERS = ("publish_rate_hz", "robot_description", "seed", "start_type_description_service", "use_sim_time")
"""What the arms' nodes have beside the limits."""
ROS_FORM = "expected `/**: {ros__parameters: {max_linear_speed: 0.1}}` or the like"


def flat(value: Any) -> Any:
    """A limit as a ROS parameter: numbers, or a list of numbers (keep-out boxes one after the other)."""
    if isinstance(value, tuple):
        return [float(n) for item in value for n in (item if isinstance(item, tuple) else (item,))]
    return value


def limits_from(values: Mapping[str, Any]) -> Limits:
    """Limits from ROS parameters; ConfigError lists every fault."""
    plain: dict[str, Any] = {name: value if isinstance(value, float) else list(value) for name, value in values.items()}
    boxes = plain["keep_out"]
    plain["keep_out"] = [boxes[i : i + 6] for i in range(0, len(boxes), 6)]
    return build(Limits, plain, "parameters of the arm node")


def limits_with(limits: Limits, changed: Mapping[str, Any], what: str = "parameters of the arm node") -> Limits:
    """`limits` with what parameters say in their place; a whole number counts as one with a point. Every fault is listed."""
    values = {name: flat(getattr(limits, name)) for name in LIMITS}
    faults = []
    for name, value in changed.items():
        try:
            values[name] = number(value) if isinstance(values[name], float) else [number(one) for one in numbers(value)]
        except ValueError as fault:
            faults.append(f"{name}: {fault}")
    unchecked = object.__new__(Limits)
    boxes = values["keep_out"]
    for name in LIMITS:
        value = tuple(tuple(boxes[i : i + 6]) for i in range(0, len(boxes), 6)) if name == "keep_out" else values[name]
        object.__setattr__(unchecked, name, tuple(value) if isinstance(value, list) else value)
    if faults := [*faults, *unchecked.faults()]:
        raise ConfigError(listed(what, faults))
    return limits_from(values)


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"expected a number, given {value!r}")
    return float(value)


def numbers(value: Any) -> list[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
        raise ValueError(f"expected a list of numbers, given {value!r}")
    return list(value)


def nearest(name: str) -> str:
    """Advice for a name that no parameter has."""
    near = difflib.get_close_matches(name, (*LIMITS, *OTHERS), 1)
    return f"did you mean {near[0]}?" if near else "`ros2 param list` names them"


def with_params_file(limits: Limits, path: str | None, node: str) -> Limits:
    """The limits that a node such as /arm/arm_node starts with when it gets this ROS parameter file."""
    if path is None:
        return limits
    said = dict(read_params_file(Path(path), node))
    return limits_with(limits, {name: value for name, value in said.items() if name in LIMITS}, path)


def read_params_file(path: Path, node: str) -> Iterator[tuple[str, Any]]:
    """What a ROS parameter file says to a node, in its order; BadInput where it is none, or names what the node has not."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as fault:
        raise BadInput(f"{path}: cannot be read ({getattr(fault, 'strerror', fault)}); give a ROS parameter file") from None
    except yaml.YAMLError as fault:
        raise BadInput(f"{path}: not YAML ({str(fault).splitlines()[0]}); {ROS_FORM}") from None
    faults: list[str] = []
    for pattern, values in _sections(content, "", path):
        if not re.fullmatch(_regex(pattern), node):
            continue
        if "*" not in pattern:  # one for all nodes may well hold what others have
            unknown = [name for name in values if name not in (*LIMITS, *OTHERS)]
            faults += [f"{name}: no parameter of {node}; {nearest(name)}" for name in unknown]
        yield from values.items()
    if faults:
        raise BadInput(listed(str(path), faults))


def _sections(content: Any, name: str, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Node name or pattern -> its parameters; namespaces may be nested."""
    if not isinstance(content, dict):
        raise BadInput(f"{path}: not a ROS parameter file, found {content!r} outside of ros__parameters; {ROS_FORM}")
    for key, value in content.items():
        if key == "ros__parameters":
            if not isinstance(value, dict):
                raise BadInput(f"{path}: ros__parameters holds {value!r}; {ROS_FORM}")
            yield name, value
        else:
            yield from _sections(value, f"{name}/{str(key).strip('/')}", path)


def _regex(pattern: str) -> str:
    """ROS's wildcards: ** is any number of names, * is one."""
    words = [{"**": "(/[^/]+)*", "*": "/[^/]+"}.get(word, "/" + re.escape(word)) for word in pattern.strip("/").split("/")]
    return "".join(words)
