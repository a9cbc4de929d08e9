"""Pictures and films of the simulated arm, with or without a display: the scene, the tool's path, and what is going on."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from cail_core import durable
from cail_core.errors import BadInput, how_to_add
from cail_core.tasks import Policy
from cail_core.tasks.base import Array
from cail_core.tasks.pick_place_avoid import LENGTH_SCALE_M, OBSERVATION_NAMES, TOOL_ORIGIN, Outcome, Vec
from cail_sim.bullet.engine import quiet
from cail_sim.bullet.world import Start, World
from cail_sim.tasks.env import PickPlaceAvoidEnv
from cail_sim.tasks.panda import Panda

Frame = NDArray[np.uint8]
Colour = tuple[int, int, int]

EYE, LOOK_AT, FIELD_OF_VIEW = (1.3, -0.95, 0.9), (0.4, -0.1, 0.22), 42.0
REACHING, CARRYING = (70, 110, 190), (240, 140, 20)
DISTRUSTED, TRUSTED = (205, 45, 45), (30, 150, 75)
END_S = 0.8
"""How long the last picture stays."""


class Camera:
    """Looks at a world from the front and above. EGL draws if this machine can, otherwise PyBullet's own renderer."""

    def __init__(self, world: World, width: int = 640, height: int = 480) -> None:
        p = self._p = world.engine
        self._world, self.width, self.height = world, width, height
        self._view = p.computeViewMatrix(EYE, LOOK_AT, (0.0, 0.0, 1.0))
        self._projection = p.computeProjectionMatrixFOV(FIELD_OF_VIEW, width / height, 0.05, 5.0)
        self._through = np.array(self._projection).reshape(4, 4).T @ np.array(self._view).reshape(4, 4).T
        self._renderer = p.ER_BULLET_HARDWARE_OPENGL if world.egl else p.ER_TINY_RENDERER

    def take(self) -> Frame:
        """The picture of this moment, height × width × 3."""
        with quiet():
            *_, pixels, _, _ = self._p.getCameraImage(
                self.width, self.height, self._view, self._projection, lightDirection=(2.0, -1.3, 4.0), shadow=0,
                renderer=self._renderer, flags=self._p.ER_NO_SEGMENTATION_MASK, physicsClientId=self._world.client)
        return picture_of(pixels, self.width, self.height)

    def where(self, points: Sequence[Vec]) -> list[tuple[float, float]]:
        """The pixels at which points of the world are seen."""
        seen = np.c_[np.array(points).reshape(-1, 3), np.ones(len(points))] @ self._through.T
        x, y = seen[:, 0] / seen[:, 3], seen[:, 1] / seen[:, 3]
        return list(zip(((x + 1) * self.width / 2).tolist(), ((1 - y) * self.height / 2).tolist(), strict=True))


def picture_of(pixels: Any, width: int, height: int) -> Frame:
    """PyBullet's pixels without their alpha. A build of it without NumPy gives a tuple of a million numbers."""
    values = np.frombuffer(bytes(pixels), np.uint8) if isinstance(pixels, tuple) else np.asarray(pixels, np.uint8)
    picture: Frame = values.reshape(height, width, 4)[:, :, :3].copy()
    return picture


@dataclass
class Film:
    """An episode as pictures."""

    frames: list[Frame]
    fps: int
    outcome: Outcome | None
    total: float
    """The return."""
    decisions: int


def render_episode(task: Panda, policy: Policy, *, seed: int = 0, title: str = "", begin: Start | None = None,
                   confidence: Sequence[float] | None = None, fps: int = 25, size: tuple[int, int] = (640, 480),
                   progress: Callable[[int], None] = lambda decisions: None) -> Film:
    """Let `policy` act in one episode and film it.

    The path of the tool is drawn in the colour of `confidence` (one number for each decision, 1 = as trusted as the average)
    where that is known, otherwise by what the gripper does. `begin` gives the start in place of one drawn from `seed`.
    """
    env = task.one(visible=True)
    try:
        if begin is not None:
            env.start_at(begin)
        else:
            env.start(np.random.default_rng(seed))
        return _film(env, Camera(env.world, *size), policy, title, confidence, fps, progress)
    finally:
        env.close()


def _film(env: PickPlaceAvoidEnv, camera: Camera, policy: Policy, title: str, confidence: Sequence[float] | None, fps: int,
          progress: Callable[[int], None]) -> Film:
    per_s = 1.0 / env.world.task.decision_s
    every = max(1, round(per_s / fps))
    film = Film([], max(1, round(per_s / every)), None, 0.0, 0)
    path, colours = [env.scene.tool], list[Colour]()
    while True:
        if film.decisions % every == 0 or film.outcome is not None:
            film.frames.append(_drawn(camera, path, colours, _caption(title, film, env), film.outcome, confidence is not None))
        if film.outcome is not None or (confidence is not None and film.decisions >= len(confidence)):
            break
        reward, film.outcome = env.decide(policy(np.array(env.observe(), dtype=np.float32)).tolist())
        film.total += reward
        colours.append(trust_colour(confidence[film.decisions]) if confidence is not None
                       else CARRYING if env.task.closing else REACHING)
        path.append(env.scene.tool)
        film.decisions += 1
        progress(film.decisions)
    film.frames += [film.frames[-1]] * round(END_S * film.fps)
    return film


def trust_colour(confidence: float) -> Colour:
    """From red at 0 over yellow at 1 (the average) to green at 2 and more."""
    share = min(1.0, max(0.0, confidence / 2.0))
    middle = (225, 180, 40)
    low, high, k = (DISTRUSTED, middle, 2 * share) if share < 0.5 else (middle, TRUSTED, 2 * share - 1)
    r, g, b = (round(a + (b - a) * k) for a, b in zip(low, high, strict=True))
    return r, g, b


def _caption(title: str, film: Film, env: PickPlaceAvoidEnv) -> str:
    ended = f"   {film.outcome.value}" if film.outcome else ""
    return f"{title}   {film.decisions * env.world.task.decision_s:4.1f} s   return {film.total:.1f}{ended}".strip()


def _drawn(camera: Camera, path: Sequence[Vec], colours: Sequence[Colour], caption: str, outcome: Outcome | None,
           trust: bool) -> Frame:
    picture = Image.fromarray(camera.take())
    draw = ImageDraw.Draw(picture, "RGBA")
    seen = camera.where(path)
    for a, b, colour in zip(seen, seen[1:], colours, strict=False):
        draw.line([a, b], fill=(*colour, 235), width=4)
    x, y = seen[-1]
    draw.ellipse([x - 4, y - 4, x + 4, y + 4], fill=(255, 255, 255, 235))
    font = ImageFont.load_default(size=max(12, camera.height // 28))
    line = camera.height // 14
    draw.rectangle([0, 0, camera.width, line], fill=(20, 24, 30, 190))
    good = outcome is Outcome.SUCCESS
    draw.text((10, line // 5), caption, font=font, fill="white" if outcome is None else "#7ee2a8" if good else "#ff9c8f")
    if trust:
        _legend(draw, camera, font)
    return np.asarray(picture, dtype=np.uint8)


def _legend(draw: ImageDraw.ImageDraw, camera: Camera, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> None:
    left, top = 12, camera.height - camera.height // 12
    draw.rectangle([0, top - 8, 330, camera.height], fill=(20, 24, 30, 170))
    for i in range(100):
        draw.line([(left + i, top), (left + i, top + 12)], fill=trust_colour(i / 50))
    draw.text((left + 110, top - 4), "confidence: low to high", font=font, fill="white")


def save_film(film: Film, out: Path) -> tuple[Path, str]:
    """Write `out` (.mp4 or .gif), whole or not at all; where MP4 cannot be made, a GIF beside it. Gives the file and a remark."""
    if out.suffix.lower() not in (".mp4", ".gif"):
        raise BadInput(f"expected a file that ends in .mp4 or .gif, given '{out}'")
    durable.make_folder(out.absolute().parent)
    if out.suffix.lower() == ".gif":
        return _save_gif(film, out), ""
    try:
        ffmpeg = importlib.import_module("imageio_ffmpeg")
        with durable.new_file(out) as building:
            height, width = film.frames[0].shape[:2]
            writer = ffmpeg.write_frames(str(building), (width, height), fps=film.fps, codec="libx264", quality=7,
                                         macro_block_size=2, output_params=["-f", "mp4", "-movflags", "+faststart"])
            writer.send(None)
            for frame in film.frames:
                writer.send(np.ascontiguousarray(frame))
            writer.close()
    except (ImportError, RuntimeError, OSError) as fault:
        why = " ".join(str(fault).split())[:200]
        return _save_gif(film, out.with_suffix(".gif")), f"no MP4 here ({why}), so a GIF; for MP4 {how_to_add('sim')}"
    return out, ""


def _save_gif(film: Film, out: Path) -> Path:
    """Half the pictures, as a GIF can show no more than some 50 a second and grows fast."""
    step = max(1, film.fps // 13)
    pictures = [Image.fromarray(frame).quantize(128) for frame in film.frames[::step]]
    with durable.new_file(out) as building:
        pictures[0].save(building, format="GIF", save_all=True, append_images=pictures[1:], loop=0,
                         duration=round(1000 * step / film.fps))
    return out


def observed_start(task: Panda, observation: Array) -> Start:
    """Where an episode began, read back from its first observation."""
    o: list[float] = observation.tolist()
    at = {name: o[i] * LENGTH_SCALE_M for i, name in enumerate(OBSERVATION_NAMES)}
    x, y, z = (origin + at[f"tool_{axis}"] for origin, axis in zip(TOOL_ORIGIN, "xyz", strict=True))
    bottle = x + at["neck_from_tool_x"], y + at["neck_from_tool_y"]  # it stands upright
    target = bottle[0] - at["bottle_from_target_x"], bottle[1] - at["bottle_from_target_y"]
    return Start(bottle, target, None if task.grasped else (x, y, z))
