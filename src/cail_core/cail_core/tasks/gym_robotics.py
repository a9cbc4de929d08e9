"""Gymnasium-Robotics 1.4.2 beside MuJoCo 4: it asks `joint_type in (mjtJoint.mjJNT_HINGE, …)`, and since MuJoCo 4 a member of an
enumeration does not equal a NumPy integer any more when it stands on the left. Joint types given as plain integers do."""

from __future__ import annotations

import importlib
import types
from typing import Any

import numpy as np


def mend() -> None:
    """Nothing where the two fit each other."""
    mujoco, utils = importlib.import_module("mujoco"), importlib.import_module("gymnasium_robotics.utils.mujoco_utils")
    hinge = mujoco.mjtJoint.mjJNT_HINGE
    if np.int32(int(hinge)) in (hinge,) or not isinstance(utils.mujoco, types.ModuleType) or isinstance(utils.mujoco, _Mended):
        return
    vars(utils)["mujoco"] = _Mended(mujoco)


class _Mended(types.ModuleType):
    """MuJoCo with plain integers for the types of joints."""

    def __init__(self, mujoco: Any) -> None:
        super().__init__(mujoco.__name__)
        self._mujoco = mujoco
        self.mjtJoint = types.SimpleNamespace(**{name: int(kind) for name, kind in mujoco.mjtJoint.__members__.items()})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mujoco, name)
