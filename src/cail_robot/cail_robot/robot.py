"""What a robot is to the commands and launch files: one `RobotSpec` each, an entry point of the group `cail.arms`.

Launch files read the specs with the Python of `ros2 launch`, which may lack what cail needs: a module that holds one imports the
standard library and this module alone. What needs more is named by `bringup` and loaded when the robot is started.
"""

from __future__ import annotations

import argparse
import enum
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from cail_core.cli import whole_number
from cail_core.errors import BadInput, MissingDependency, in_workspace

if TYPE_CHECKING:
    from cail_robot.arm import Arm
    from cail_robot.safety.limits import Limits

GROUP = "cail.arms"
OPTIONS: dict[str, dict[str, Any]] = {
    "task": {"metavar": "T", "help": "which of its tasks stands on the table"},
    "seed": {"type": whole_number, "default": 0, "metavar": "S", "help": "of the scenes that `reset` begins (default: 0)"},
    "limits": {"metavar": "FILE", "help": "limits in place of the robot's own, such as `limits`: those of real arms"},
    "robot_ip": {"metavar": "ADDRESS", "help": "of the control box, in place of the settings' own"},
    "config": {"metavar": "FILE", "help": "settings in place of the installed ones"},
    "window": {"action": "store_true", "help": "show the simulator's window"},
}
"""Options that `record`, `deploy` and the launch files hand on to the robots that take them."""


class Resets(enum.Enum):
    """What the service `reset` of a robot's node puts back to the start of an episode."""

    NOTHING = "nothing"
    """A person puts the scene back, and the arm is driven to its start."""
    SCENE = "scene"
    """The things; the arm is driven to its start."""
    ALL = "all"
    """The things and the arm."""


@dataclass(frozen=True)
class RobotSpec:
    """The fixed facts of a robot."""

    name: str
    """Of `--robot`, of datasets and of policies' cards."""
    text: str
    """A line for people."""
    bringup: str
    """`package.module:Class`, a `Bringup`."""
    base_frame: str
    """`frame_id` of its poses and twists."""
    kind: str = ""
    """Which arm it is, simulated or not: what was learned on one of a kind runs on the others. Default: its name."""
    simulated: bool = False
    """No person is near it: episodes begin by themselves, and nobody needs to be able to take over."""
    resets: Resets = Resets.NOTHING
    task: str = ""
    """The task that is its own, where none is named."""
    options: tuple[str, ...] = ()
    """Which of `OPTIONS` it takes."""
    aliases: tuple[str, ...] = ()
    """Other names of it: in `cail up`, and the robot types of datasets and cards that count as its kind."""
    default: bool = False
    """Meant where no robot is named."""

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.options) - OPTIONS.keys()):
            raise ValueError(f"the robot '{self.name}' takes {', '.join(unknown)}; there are only {', '.join(OPTIONS)}")
        if not self.kind:
            object.__setattr__(self, "kind", self.name)

    def load(self) -> Bringup:
        """What starts it; the packages that this needs are imported here."""
        module, _, name = self.bringup.partition(":")
        made = getattr(importlib.import_module(module), name)(self)
        if not isinstance(made, Bringup):
            raise BadInput(f"the robot '{self.name}': {self.bringup} is no cail_robot.robot.Bringup")
        return made


class Bringup:
    """Starts a robot. One of your own gives `arm`, or `nodes` where its node does more than any arm's."""

    def __init__(self, spec: RobotSpec) -> None:
        self.spec = spec

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options of `cail up NAME`: those of the spec, and any that only this robot has."""
        parser.add_argument("--namespace", default="arm", help="of its topics (default: arm)")
        for option in self.spec.options:
            parser.add_argument(f"--{option.replace('_', '-')}", **OPTIONS[option])

    def limits(self, args: argparse.Namespace) -> Limits:
        """What the safety filter starts with; every robot that takes `limits` may be given others."""
        from cail_robot.safety.limits import load_limits

        return load_limits(getattr(args, "limits", None))

    def check(self, args: argparse.Namespace) -> None:
        """What can be known before the node starts; a CailError says what is missing."""

    def about(self, args: argparse.Namespace) -> str:
        """What it goes by beside its limits, such as a settings file; said when it starts."""
        return ""

    def description(self) -> str:
        """The robot as URDF; empty where there is none."""
        return ""

    def in_real_time(self, args: argparse.Namespace) -> bool:
        """Whether its time is that of the clock on the wall."""
        return True

    def arm(self, args: argparse.Namespace) -> Arm:
        """The arm behind the node; `nodes` asks for it."""
        raise BadInput(f"the robot '{self.spec.name}': expected {self.spec.bringup} to define arm or nodes (docs/extending.md)")

    def nodes(self, args: argparse.Namespace) -> Sequence[Any]:
        """The nodes to run: by default that of any arm."""
        from cail_robot.ros.arm_node import ArmNode

        self.check(args)
        arm = self.arm(args)
        if not hasattr(arm, "simulated"):
            arm.simulated = self.spec.simulated
        return [ArmNode(arm, self.limits(args), namespace=args.namespace)]


def robot_names() -> list[str]:
    """All installed robots; none is loaded."""
    return sorted(_entries())


def find_robot(name: str) -> RobotSpec:
    """The installed robot of this name or alias."""
    if (spec := _found(name)) is not None:
        return spec
    way = "; the package cail_sim has simulated ones: colcon build, and source the workspace again" if in_workspace() else ""
    raise MissingDependency(f"expected an installed robot ({', '.join(robot_names()) or 'there is none'}), given '{name}'{way}")


def robot_or_unknown(name: str) -> RobotSpec:
    """The installed robot; one that is not installed here counts as real, with a person beside it."""
    return _found(name) or RobotSpec(name, "a robot whose node runs elsewhere", "", "")


def kind_of(robot: str) -> str:
    """Which arm a robot type of a dataset or card is; one that nobody has installed stands for itself."""
    return robot_or_unknown(robot).kind


def default_robot() -> str:
    """The robot that is meant where none is named; empty where no installed one offers itself."""
    return next((spec.name for spec in _loadable() if spec.default), "")


def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _found(name: str) -> RobotSpec | None:
    entries = _entries()
    if name in entries:
        return _spec(entries[name])
    return next((spec for spec in _loadable() if name in spec.aliases), None)


def _loadable() -> list[RobotSpec]:
    """All robots whose spec can be read; a broken package hides its own robots and no other."""
    found = []
    for name in robot_names():
        try:
            found.append(_spec(_entries()[name]))
        except (BadInput, MissingDependency):
            continue
    return found


def _spec(entry: EntryPoint) -> RobotSpec:
    try:
        spec = entry.load()
    except (ImportError, AttributeError, ValueError) as fault:
        raise MissingDependency(f"the robot '{entry.name}' ({entry.value}) cannot be loaded: {fault}") from None
    if not isinstance(spec, RobotSpec):
        raise BadInput(f"the robot '{entry.name}': {entry.value} is no cail_robot.robot.RobotSpec: see docs/extending.md")
    if spec.name != entry.name:
        raise BadInput(f"the robot '{entry.name}' calls itself '{spec.name}': the entry point and its spec need one name")
    return spec
