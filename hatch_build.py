"""Build hooks of the root distribution: what the three ament_python packages declare, pip installs too.

The entry points stand once, as literals in src/*/setup.py. Here they become the wheel's entry points, and each console
script also becomes an executable lib/<package>/<name>, where `ros2 run` and launch_ros look for it.
"""

from __future__ import annotations

import ast
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


def declared(root: str) -> dict[str, dict[str, list[str]]]:
    """package -> group -> entry points, from the setup.py of each package."""
    found = {}
    for setup in sorted(Path(root).glob("src/*/setup.py")):
        for node in ast.walk(ast.parse(setup.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "entry_points":
                found[setup.parent.name] = ast.literal_eval(node.value)
    if not found:
        raise RuntimeError(f"no entry_points found in {root}/src/*/setup.py")
    return found


def split(point: str) -> tuple[str, str]:
    name, _, target = point.partition("=")
    return name.strip(), target.strip()


class EntryPoints(MetadataHookInterface):
    def update(self, metadata: dict) -> None:
        scripts: dict[str, str] = {}
        groups: dict[str, dict[str, str]] = {}
        for points in declared(self.root).values():
            for group, entries in points.items():
                into = scripts if group == "console_scripts" else groups.setdefault(group, {})
                into.update(split(entry) for entry in entries)
        metadata["scripts"] = scripts
        metadata["entry-points"] = groups


class RosExecutables(BuildHookInterface):
    def initialize(self, version: str, build_data: dict) -> None:
        self._folder = tempfile.TemporaryDirectory()
        for package, points in declared(self.root).items():
            for entry in points.get("console_scripts", []):
                name, target = split(entry)
                module, _, function = target.partition(":")
                script = Path(self._folder.name, package, name)
                script.parent.mkdir(exist_ok=True)
                # The first line is rewritten to the environment's own Python when pip installs a `scripts` file only;
                # here /bin/sh finds it from the file's own place: <prefix>/lib/<package>/<name>.
                script.write_text(
                    "#!/bin/sh\n"
                    f"'''exec' \"$(dirname \"$0\")/../../bin/python3\" \"$0\" \"$@\"\n' '''\n"
                    f"import sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n",
                    encoding="utf-8",
                )
                script.chmod(0o755)
                build_data.setdefault("shared_data", {})[str(script)] = f"lib/{package}/{name}"

    def finalize(self, version: str, build_data: dict, artifact_path: str) -> None:
        self._folder.cleanup()
