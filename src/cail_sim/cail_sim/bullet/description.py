"""The simulated Panda as URDF, for RViz and robot_state_publisher."""

from __future__ import annotations

from pathlib import Path

from cail_sim.bullet.arm import PANDA
from cail_sim.bullet.engine import data_file


def panda_urdf() -> str:
    """PyBullet's own file. Its meshes lie beside it, where a viewer finds them on this machine alone."""
    file = Path(data_file(PANDA.urdf))
    return file.read_text(encoding="utf-8").replace("package://meshes/", f"file://{file.parent}/meshes/")
