"""Pictures of the MuJoCo tasks, drawn without a window."""

from __future__ import annotations

import importlib
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cail_core.video import CannotRender

WIDTH, HEIGHT = 480, 360


class Camera:
    """Draws one MuJoCo model into memory through EGL, OSMesa or a hidden GLFW window, whichever this machine has."""

    def __init__(self, mujoco: Any, model: Any) -> None:
        self._mujoco, self._model = mujoco, model
        self._context = _context()
        self._context.make_current()
        self._drawing = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._drawing)
        self._scene = mujoco.MjvScene(model, 1000)
        self._view, self._option = mujoco.MjvCamera(), mujoco.MjvOption()
        mujoco.mjv_defaultFreeCamera(model, self._view)
        self._frame = mujoco.MjrRect(0, 0, WIDTH, HEIGHT)

    def __enter__(self) -> Camera:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._drawing.free()
        self._context.free()

    def picture(self, data: Any, follow: NDArray[np.float64]) -> NDArray[np.uint8]:
        """What the model looks like now, with the camera turned to the point `follow`."""
        self._view.lookat[:] = follow
        everything = self._mujoco.mjtCatBit.mjCAT_ALL.value
        self._mujoco.mjv_updateScene(self._model, data, self._option, None, self._view, everything, self._scene)
        self._mujoco.mjr_render(self._frame, self._scene, self._drawing)
        pixels = np.empty((HEIGHT, WIDTH, 3), np.uint8)
        self._mujoco.mjr_readPixels(pixels, None, self._frame, self._drawing)
        return pixels[::-1]  # OpenGL counts rows from the bottom


def _context() -> Any:
    faults = []
    for name in ("egl", "osmesa", "glfw"):
        try:
            return importlib.import_module(f"mujoco.{name}").GLContext(WIDTH, HEIGHT)
        except Exception as fault:  # each library fails in its own way where there is no driver
            faults.append(f"{name}: {str(fault).splitlines()[0] if str(fault) else type(fault).__name__}")
    raise CannotRender(f"no OpenGL to draw with ({'; '.join(faults)}); on Debian or Ubuntu: apt install libegl1 libgl1-mesa-dri")
