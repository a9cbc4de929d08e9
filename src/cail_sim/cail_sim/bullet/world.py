"""The table with bottle, obstacle, platform and an arm, in PyBullet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType

from cail_core.config import setting
from cail_core.errors import BadInput
from cail_core.geometry import up_axis
from cail_core.tasks.pick_place_avoid import PickPlaceAvoidConfig, Scene, Vec
from cail_sim.bullet.arm import ArmModel, SimArm, drive_all
from cail_sim.bullet.engine import data_file, egl_plugin, egl_works, load_pybullet, quiet
from cail_sim.bullet.window import open_window

Quaternion = tuple[float, float, float, float]
Box = tuple[tuple[float, ...], ...]

GLASS, CAP, BRICK, STONE, WOOD = (
    (0.15, 0.55, 0.35, 1.0), (0.95, 0.75, 0.2, 1.0), (0.8, 0.25, 0.2, 1.0), (0.25, 0.45, 0.8, 1.0), (0.78, 0.72, 0.64, 1.0))


GRASPING_DECISIONS = 8
"""How long the hand takes to close around a bottle that it is placed at."""
POOLED_M = 0.0025
"""Grasped starts lie on a grid this fine, so that each world makes a grasp once and then restores it."""


@dataclass(frozen=True)
class WorldConfig:
    """The things on the table and the engine's settings. Lengths in m, masses in kg, in the arm's base frame."""

    solver_iterations: int = setting(20, "of the constraint solver per tick", low=1)
    bottle_mass: float = setting(0.3, "kg", low=0.01)
    bottle_radius_m: float = setting(0.032, "of its body", low=0.005)
    bottle_body_m: float = setting(0.105, "height of its body, below the neck", low=0.01)
    bottle_centre_m: float = setting(0.06, "height of its centre of mass above the base", low=0.0)
    friction: float = setting(1.0, "of bottle, fingers, platform and table", low=0.0)
    obstacle_half_m: tuple[float, ...] = setting((0.04, 0.04, 0.085), "half the obstacle's size along x, y, z")
    obstacle_mass: float = setting(1.0, "kg; it stands free, so that a touch moves it", low=0.01)
    obstacle_xy_m: tuple[float, ...] = setting((0.5, -0.165), "where it stands: on the straight way from bottle to target")
    platform_radius_m: float = setting(0.06, "of the target platform", low=0.01)
    bottle_start: Box = setting(((0.68, 0.72), (-0.05, 0.0)), "x and y from … to, where the bottle starts (the paper's)")
    target: Box = setting(((0.28, 0.32), (-0.32, -0.28)), "x and y from … to, where the target stands (the paper's)")
    tool_start: Box = setting(
        ((0.52, 0.62), (0.02, 0.12), (0.19, 0.24)), "x, y and z from … to, where the tool of an arm with an empty hand starts"
    )

    def widened(self, by: float) -> WorldConfig:
        """With start ranges that reach further by this on every side, m."""
        def wider(box: Box) -> Box:
            return tuple((low - by, high + by) for low, high in box)

        return replace(self, bottle_start=wider(self.bottle_start), target=wider(self.target), tool_start=wider(self.tool_start))


@dataclass(frozen=True)
class Start:
    """How an episode begins. `tool` None: the bottle stands grasped."""

    bottle: tuple[float, float]
    target: tuple[float, float]
    tool: Vec | None


class World:
    """One PyBullet world with one arm. `advance` lets some ticks pass in a single call of the engine.

    A tick is the world's own step. How many pass between two commands is the caller's affair and changes nothing else.
    """

    def __init__(self, model: ArmModel, config: WorldConfig, task: PickPlaceAvoidConfig, *, visible: bool = False,
                 window: bool = False) -> None:
        p = self._p = load_pybullet()
        self.config, self.task = config, task
        self.tick_s = 1.0 / task.ticks_per_s
        self._ticks = 0
        """Of the next call of the engine."""
        if window:
            with quiet():
                self.client = open_window(p)
        else:
            self.client = p.connect(p.DIRECT)
        if self.client < 0:
            raise BadInput("PyBullet cannot open a window here; watch into a file with --out FILE.mp4")
        p.setPhysicsEngineParameter(numSolverIterations=config.solver_iterations, deterministicOverlappingPairs=1,
                                    physicsClientId=self.client)
        self.take(1)  # what the engine is told of forces while things are made is meant for one tick
        p.setGravity(0.0, 0.0, -9.81, physicsClientId=self.client)
        if window:
            p.configureDebugVisualizer(p.COV_ENABLE_GUI, 0, physicsClientId=self.client)
            p.configureDebugVisualizer(p.COV_ENABLE_RENDERING, 0, physicsClientId=self.client)
        self.egl = visible and not window and egl_works()
        with quiet():
            if self.egl:  # before anything is there: it draws only what it was told of
                p.loadPlugin(egl_plugin(), "_eglRendererPlugin", physicsClientId=self.client)
            self.arm = SimArm(p, self.client, model, data_file(model.urdf), visible=visible)
        self._visible = visible
        self.table = self._fixed(self._shape(p.GEOM_BOX, WOOD, halfExtents=[0.55, 0.5, 0.05]), (0.4, 0.0, -0.05))
        self.bottle = self._make_bottle()
        half = list(config.obstacle_half_m)
        self.obstacle: int = self._body(config.obstacle_mass, self._shape(p.GEOM_BOX, BRICK, halfExtents=half))
        self.platform = self._fixed(
            self._shape(p.GEOM_CYLINDER, STONE, radius=config.platform_radius_m, height=task.platform_height_m), (0.0, 0.0, 0.0))
        rubbing = [(body, -1) for body in (self.bottle, self.platform, self.table)] + [(self.arm.body, f) for f in model.fingers]
        self._rubbing = rubbing
        self._matter = (0.0, 0.0)
        self._grasped: dict[tuple[float, float], int] = {}
        self.set_matter(1.0, 1.0)
        p.changeDynamics(self.bottle, -1, spinningFriction=0.002, rollingFriction=0.0005, physicsClientId=self.client)
        self.target: Vec = (0.0, 0.0, 0.0)
        # Every episode is put together from this state. Nothing may touch that does not touch at every start: a contact that the
        # state holds and the start does not would let the episode before shine through.
        self._set_up(spread(config, [0.5] * 7, grasped=False))
        self.take(task.ticks_per_decision)
        p.stepSimulation(self.client)
        self._blank: int = p.saveState(self.client)
        if window:
            p.configureDebugVisualizer(p.COV_ENABLE_RENDERING, 1, physicsClientId=self.client)

    @property
    def engine(self) -> ModuleType:
        """PyBullet; its calls take `client`."""
        return self._p

    def set_matter(self, friction: float, mass: float) -> None:
        """Friction of all that touches the bottle, and the bottle's mass, in times of what the settings say."""
        if (friction, mass) == self._matter:
            return
        self._matter, p = (friction, mass), self._p
        for kept in self._grasped.values():  # they were made with other friction
            p.removeState(kept, physicsClientId=self.client)
        self._grasped.clear()
        for body, link in self._rubbing:
            p.changeDynamics(body, link, lateralFriction=friction * self.config.friction, physicsClientId=self.client)
        if self.config.bottle_mass * mass != p.getDynamicsInfo(self.bottle, -1, physicsClientId=self.client)[0]:
            p.changeDynamics(self.bottle, -1, mass=mass * self.config.bottle_mass, physicsClientId=self.client)

    def begin(self, start: Start) -> Scene:
        """Put everything at its start; what was before leaves no trace, so the same start gives the same episode."""
        p = self._p
        kept = self._grasped.get(start.bottle) if start.tool is None else None
        p.restoreState(self._blank if kept is None else kept, physicsClientId=self.client)
        if kept is not None:
            self._put_target(start.target)
            self.arm.resume()
            return self.scene()
        self._set_up(start)
        return self.scene() if start.tool is not None else self._grasp(start.bottle)

    def _set_up(self, start: Start) -> None:
        self.put_things(start)
        if start.tool is not None:
            self.arm.put(start.tool, 1.0)

    def _put_target(self, at: tuple[float, float]) -> None:
        self.target = (*at, self.task.platform_height_m)
        self._place(self.platform, (*at, self.task.platform_height_m / 2))

    def put_things(self, start: Start) -> None:
        """Target, bottle and obstacle at their start; the arm is left alone."""
        self._put_target(start.target)
        self._place(self.bottle, (*start.bottle, self.config.bottle_centre_m))
        self._place(self.obstacle, (self.config.obstacle_xy_m[0], self.config.obstacle_xy_m[1], self.config.obstacle_half_m[2]))

    def _grasp(self, at: tuple[float, float]) -> Scene:
        """Let the hand close around the standing bottle, and keep the result for the next time."""
        self.arm.put((*at, self.task.neck_height_m), (self.task.neck_width_m + 0.004) / self.task.gripper_width_m)
        for _ in range(GRASPING_DECISIONS):
            self.advance((0.0, 0.0, 0.0), True)
        self._grasped[at] = self._p.saveState(self.client)
        self.arm.resume()
        return self.scene()

    def take(self, ticks: int) -> None:
        """Let the next calls of the engine last so many ticks."""
        if ticks != self._ticks:
            self._ticks = ticks
            self._p.setPhysicsEngineParameter(fixedTimeStep=ticks * self.tick_s, numSubSteps=ticks, physicsClientId=self.client)

    def advance(self, velocity: Vec, closing: bool, ticks: int | None = None) -> None:
        """So many ticks, by default a decision's: the tool is to move with `velocity` (m/s)."""
        advance_all([self], [velocity], [closing], ticks or self.task.ticks_per_decision)

    def replay(self, speeds: list[float], ticks: int) -> None:
        """So many ticks with motor speeds that were recorded (`SimArm.commanded`), and nothing else."""
        self.take(ticks)
        self.arm.send(speeds, ticks)
        self._p.stepSimulation(self.client)

    def scene(self) -> Scene:
        """What is seen now; the arm as it was read last."""
        p, client = self._p, self.client
        (cx, cy, cz), turned = p.getBasePositionAndOrientation(self.bottle, client)
        ux, uy, uz = up = up_axis(turned)
        obstacle, obstacle_turned = p.getBasePositionAndOrientation(self.obstacle, client)
        h = self.config.bottle_centre_m
        return Scene(self.arm.tool, (cx - h * ux, cy - h * uy, cz - h * uz), up, obstacle, up_axis(obstacle_turned), self.target,
                     self.arm.opening)

    def poses(self) -> list[tuple[Vec, Quaternion]]:
        """Where the bottle's base, the obstacle and the target are: position and orientation (x, y, z, w) of each."""
        p, client = self._p, self.client
        (cx, cy, cz), turned = p.getBasePositionAndOrientation(self.bottle, physicsClientId=client)
        ux, uy, uz = up_axis(turned)
        h = self.config.bottle_centre_m
        obstacle = p.getBasePositionAndOrientation(self.obstacle, physicsClientId=client)
        return [((cx - h * ux, cy - h * uy, cz - h * uz), turned), obstacle, (self.target, (0.0, 0.0, 0.0, 1.0))]

    def close(self) -> None:
        if self.client >= 0:
            with quiet():
                self._p.disconnect(self.client)
            self.client = -1

    def _make_bottle(self) -> int:
        """A body and a neck, both cylinders; the frame is at the base."""
        p, c = self._p, self.config
        lengths = [c.bottle_body_m, self.task.bottle_height_m - c.bottle_body_m]
        parts = {"shapeTypes": [p.GEOM_CYLINDER] * 2, "radii": [c.bottle_radius_m, self.task.neck_width_m / 2],
                 "halfExtents": [[0.0] * 3] * 2, "fileNames": [""] * 2, "meshScales": [[1.0] * 3] * 2,
                 "physicsClientId": self.client}
        places = [[0.0, 0.0, lengths[0] / 2 - c.bottle_centre_m], [0.0, 0.0, lengths[0] + lengths[1] / 2 - c.bottle_centre_m]]
        solid = p.createCollisionShapeArray(lengths=lengths, collisionFramePositions=places, planeNormals=[[0.0, 0.0, 1.0]] * 2,
                                            flags=[0, 0], **parts)
        seen = -1
        if self._visible:
            seen = p.createVisualShapeArray(lengths=lengths, visualFramePositions=places, rgbaColors=[GLASS, CAP], **parts)
        return self._body(c.bottle_mass, (solid, seen))

    def _shape(self, kind: int, colour: tuple[float, ...], **size: object) -> tuple[int, int]:
        p = self._p
        solid = p.createCollisionShape(kind, physicsClientId=self.client, **size)
        if "height" in size:
            size["length"] = size.pop("height")
        seen = p.createVisualShape(kind, rgbaColor=colour, physicsClientId=self.client, **size) if self._visible else -1
        return solid, seen

    def _body(self, mass: float, shape: tuple[int, int], at: Vec = (0.0, 0.0, 1.0)) -> int:
        made: int = self._p.createMultiBody(mass, *shape, basePosition=at, physicsClientId=self.client)
        return made

    def _fixed(self, shape: tuple[int, int], at: Vec) -> int:
        return self._body(0.0, shape, at)

    def _place(self, body: int, at: Vec) -> None:
        self._p.resetBasePositionAndOrientation(body, at, (0.0, 0.0, 0.0, 1.0), physicsClientId=self.client)
        self._p.resetBaseVelocity(body, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), physicsClientId=self.client)


def advance_all(worlds: Sequence[World], velocities: Sequence[Vec], closing: Sequence[bool], ticks: int) -> None:
    """`World.advance` for worlds of the same settings."""
    for world in worlds:
        world.take(ticks)
    drive_all([world.arm for world in worlds], velocities, closing, ticks * worlds[0].tick_s, ticks)
    for world in worlds:
        world.engine.stepSimulation(world.client)
    for world in worlds:
        world.arm.read()


def spread(config: WorldConfig, draws: list[float], *, grasped: bool) -> Start:
    """The start that seven numbers in [0, 1) pick out of the ranges of `config`."""
    ranges = (*config.bottle_start, *config.target, *config.tool_start)
    bx, by, gx, gy, *tool = (low + u * (high - low) for u, (low, high) in zip(draws, ranges, strict=True))
    if grasped:
        bx, by = (low + POOLED_M * round((v - low) / POOLED_M) for v, (low, _) in zip((bx, by), config.bottle_start, strict=True))
    return Start((bx, by), (gx, gy), None if grasped else (tool[0], tool[1], tool[2]))

