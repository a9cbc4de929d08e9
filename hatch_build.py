"""Build hooks of the root distribution: what the three ament_python packages declare, pip installs too.

The entry points stand once, as literals in src/*/setup.py. Here they become the wheel's entry points, and each console
script also becomes an executable lib/<package>/<name>, where `ros2 run` and launch_ros look for it.
"""

from __future__ import annotations

import ast
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

# pip writes bin/<name> with the first line that the environment needs (venv, --user, --prefix), so hand over to it.
EXECUTABLE = '#!/bin/sh\nexec "$(dirname "$0")/../../bin/{name}" "$@"\n'


def declared(root: str) -> dict[str, dict[str, dict[str, str]]]:
    """package -> group -> name -> object reference, from the setup.py of each package."""
    found = {}
    for setup in sorted(Path(root).glob("src/*/setup.py")):
        literals = [
            node.value
            for node in ast.walk(ast.parse(setup.read_text(encoding="utf-8")))
            if isinstance(node, ast.keyword) and node.arg == "entry_points"
        ]
        if len(literals) != 1:
            raise ValueError(f"{setup}: expected one literal entry_points=..., found {len(literals)}")
        groups = ast.literal_eval(literals[0])
        found[setup.parent.name] = {group: dict(map(split, points)) for group, points in groups.items()}
    return found


def split(point: str) -> tuple[str, str]:
    name, _, target = point.partition("=")
    return name.strip(), target.strip()


class EntryPoints(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        merged: dict[str, dict[str, str]] = {"console_scripts": {}}
        for package, groups in declared(self.root).items():
            for group, points in groups.items():
                into = merged.setdefault(group, {})
                if twice := into.keys() & points.keys():
                    raise ValueError(f"src/{package}/setup.py: another package has {', '.join(sorted(twice))} in {group} too")
                into.update(points)
        metadata["scripts"] = merged.pop("console_scripts")
        metadata["entry-points"] = merged


class RosExecutables(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        for package, groups in declared(self.root).items():
            for name in groups.get("console_scripts", {}):
                script = Path(self._folder.name, package, name)
                script.parent.mkdir(exist_ok=True)
                script.write_text(EXECUTABLE.format(name=name), encoding="utf-8")
                script.chmod(0o755)
                build_data["shared_data"][str(script)] = f"lib/{package}/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._folder.cleanup()
