"""Pick up the bottle, carry it around the obstacle, put it standing on the platform: the paper's robot task, without a robot.

Simulator, ROS environment, recorder and policy runner describe what they see as a `Scene` and call the same `PickPlaceAvoid`:
what the policy observes, what a moment costs, when the gripper acts by reflex, and how an episode ends.

    reward per tick = −0.02 ‖a‖ / d_init² − 0.05 d

with a the executed velocity of the end-effector in m/s, d the distance from bottle to target and d_init the first d, in m. A drop
or a moved obstacle costs 2000 and ends the episode; a standing bottle on the platform ends it too. A tick is the paper's
interaction step. A decision holds for `ticks_per_decision` ticks and pays them all at the distance that it led to.

The first term sums to path length × tick rate and the second to time × tick rate, so returns scale with `ticks_per_s`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from cail_core.config import setting
from cail_core.tasks.base import Axis, Gate, Sensor, Thing, View

Vec = tuple[float, float, float]

OBSERVATION_NAMES = (
    "tool_x", "tool_y", "tool_z",
    "neck_from_tool_x", "neck_from_tool_y", "neck_from_tool_z",
    "bottle_from_target_x", "bottle_from_target_y", "bottle_from_target_z",
    "bottle_from_obstacle_x", "bottle_from_obstacle_y",
    "bottle_lean_x", "bottle_lean_y",
    "gripper_opening", "gripper_closing",
)
"""What a policy sees. The velocity is not in it: it tells so much about the next action of a demonstrator that a cloned policy
goes on with whatever it did before and steers no more. Lengths are divided by `LENGTH_SCALE_M`, the tool is counted from
`TOOL_ORIGIN`, the rest is of order 1."""

LENGTH_SCALE_M = 0.2
LEAN_SCALE = 0.1
TOOL_ORIGIN: Vec = (0.5, -0.15, 0.2)
OBSERVATION_UNITS = f"lengths / {LENGTH_SCALE_M} m, the tool from {TOOL_ORIGIN}, leans / {LEAN_SCALE}"
ACTION_NAMES = ("velocity_x", "velocity_y", "velocity_z")
GRIPPER_ACTION = "gripper"


@dataclass(frozen=True)
class PickPlaceAvoidConfig:
    """What counts as held, dropped, moved and standing, and the rates that returns depend on."""

    ticks_per_s: int = setting(500, "interaction steps of the paper per second", low=1)
    ticks_per_decision: int = setting(10, "ticks for which a decision of the policy holds", low=1)
    max_speed: float = setting(0.5, "what an action of 1 means, m/s along each axis", low=0.01, high=1.0)
    energy_weight: float = setting(0.02, "the paper's weight of ‖a‖ / d_init²", low=0.0)
    distance_weight: float = setting(0.05, "the paper's weight of the distance d", low=0.0)
    failure_reward: float = setting(-2000.0, "the paper's reward for a drop or a moved obstacle", high=0.0)

    bottle_height_m: float = setting(0.165, "bottle, from its base to its top", low=0.05)
    neck_height_m: float = setting(0.135, "where the neck is grasped, above the base", low=0.02)
    neck_width_m: float = setting(0.032, "diameter of the neck, which tells a grasp from an empty hand", low=0.005)
    gripper_width_m: float = setting(0.08, "distance of the fingers when the gripper is open", low=0.01)
    platform_height_m: float = setting(0.04, "top of the target platform above the table", low=0.0)

    grasp_across_m: float = setting(0.012, "reflex closes: the neck is at most this far from the tool in x and in y", low=0.001)
    grasp_along_m: float = setting(0.012, "reflex closes: the tool is at most this far above or below the neck's mark", low=0.001)
    width_tolerance_m: float = setting(0.008, "held: the fingers stopped at the neck's width within this", low=0.001)
    slip_m: float = setting(0.03, "dropped: once held, now further from the tool than this and not on the platform", low=0.005)
    upright: float = setting(0.9, "dropped: the cosine of the bottle's lean falls below this", low=0.0, high=1.0)
    obstacle_moved_m: float = setting(0.005, "collided: the obstacle is displaced by more than this", low=0.0)
    obstacle_tilt: float = setting(0.9962, "collided: the cosine of the obstacle's tilt falls below this (5 degrees)", high=1.0)
    place_radius_m: float = setting(0.04, "on the platform: the base's centre is within this of the target", low=0.001)
    touch_m: float = setting(0.004, "reflex opens: the base is at most this far above the platform", low=0.0)
    standing_height_m: float = setting(0.01, "standing: the base is this close to the platform's top", low=0.001)
    standing_upright: float = setting(0.98, "standing: the cosine of the lean is above this", low=0.0, high=1.0)
    standing_speed: float = setting(0.05, "standing: slower than this, m/s", low=0.0)
    standing_s: float = setting(0.35, "success: the bottle has stood with the gripper open for this long", low=0.0)

    @property
    def decision_s(self) -> float:
        return self.ticks_per_decision / self.ticks_per_s


def view(config: PickPlaceAvoidConfig, bottle_radius_m: float, obstacle_radius_m: float, obstacle_height_m: float) -> View:
    """Where tool, target and obstacle are, read back from the observation: `observe` turned around."""
    tool, bottle = [], []
    for i, axis in enumerate("xyz"):
        at = {"1": TOOL_ORIGIN[i], f"tool_{axis}": LENGTH_SCALE_M}
        below = {"1": at["1"] - config.neck_height_m}
        lean = below if axis == "z" else {f"bottle_lean_{axis}": -config.neck_height_m * LEAN_SCALE}
        tool.append(at)
        bottle.append({**at, f"neck_from_tool_{axis}": LENGTH_SCALE_M, **lean})
    target = tuple({**at, f"bottle_from_target_{axis}": -LENGTH_SCALE_M} for at, axis in zip(bottle, "xyz", strict=True))
    obstacle: list[Axis] = [{**bottle[i], f"bottle_from_obstacle_{axis}": -LENGTH_SCALE_M} for i, axis in enumerate("xy")]
    return View(
        moves="tool",
        position=tuple(tool),
        things=(Thing("target", target, config.place_radius_m),
                Thing("obstacle", (*obstacle, {"1": obstacle_height_m / 2}), obstacle_radius_m, keep_clear=True)),
        radius_m=bottle_radius_m,
    )


def gates(config: PickPlaceAvoidConfig) -> tuple[Gate, ...]:
    """How the neck lies to the tool says where to go before the grasp. In the hand it is what the grasp happened to be, as is how
    far exactly the fingers are apart, which differs from gripper to gripper."""
    neck, tolerance = config.neck_width_m / config.gripper_width_m, config.width_tolerance_m / config.gripper_width_m
    hidden = tuple(name for name in OBSERVATION_NAMES if name.startswith(("neck_from_tool", "bottle_lean", "gripper_opening")))
    return (Gate(hidden, {"gripper_closing": (0.5, 1.5), "gripper_opening": (neck - tolerance, neck + tolerance)}),)


POSITION_ERROR_M, LEAN_ERROR, OPENING_ERROR = 0.002, 0.03, 0.03
"""What a calibrated arm, a tracker of tags and a gripper's own measure may be wrong by."""


def sensors() -> tuple[Sensor, ...]:
    """Where tool and things are said to be, axis by axis."""
    made, s = [Sensor("opening", "", OPENING_ERROR, {"gripper_opening": 1.0})], 1.0 / LENGTH_SCALE_M
    for axis in "xyz":
        flat = axis != "z"
        made.append(Sensor(f"tool {axis}", "m", POSITION_ERROR_M, {f"tool_{axis}": s, f"neck_from_tool_{axis}": -s}))
        bottle = {f"neck_from_tool_{axis}": s, f"bottle_from_target_{axis}": s}
        bottle |= {f"bottle_from_obstacle_{axis}": s} if flat else {}
        made.append(Sensor(f"bottle {axis}", "m", POSITION_ERROR_M, bottle))
        made.append(Sensor(f"target {axis}", "m", POSITION_ERROR_M, {f"bottle_from_target_{axis}": -s}))
        if flat:
            made.append(Sensor(f"obstacle {axis}", "m", POSITION_ERROR_M, {f"bottle_from_obstacle_{axis}": -s}))
            made.append(Sensor(f"lean {axis}", "", LEAN_ERROR, {f"bottle_lean_{axis}": 1 / LEAN_SCALE}))
    return tuple(made)


class Outcome(Enum):
    """How an episode ended; the values are those of recorded demonstrations."""

    SUCCESS = "success"
    DROPPED = "dropped"
    COLLIDED = "collided"
    TIMEOUT = "timeout"


@dataclass
class Scene:
    """What is seen at one moment, in the arm's base frame, m. A tracker on the real arm gives the same."""

    tool: Vec
    bottle: Vec
    """The centre of the bottle's base."""
    bottle_up: Vec
    """The unit vector along the bottle's axis."""
    obstacle: Vec
    obstacle_up: Vec
    target: Vec
    """The centre of the platform's top."""
    opening: float
    """The gripper, 0 closed … 1 open."""


class PickPlaceAvoid:
    """One episode after another: `begin`, then for every decision `gripper`, the robot moves, `advance`, `observe`."""

    def __init__(self, config: PickPlaceAvoidConfig, max_ticks: int) -> None:
        self.config = config
        self.max_ticks = max_ticks
        self.closing = False
        self.held = False

    def begin(self, scene: Scene, *, closing: bool = False) -> None:
        """An episode starts as `scene` shows it; `closing`: with the gripper closed around the bottle."""
        self.closing = closing
        self.held = False
        self._once_held = False
        self._ticks = 0
        self._stood_s = 0.0
        self._first_obstacle = scene.obstacle
        self._last_bottle = scene.bottle
        self._energy = self.config.energy_weight / max(math.dist(scene.bottle, scene.target), 1e-6) ** 2
        self._look(scene)

    def observe(self, scene: Scene) -> list[float]:
        """The numbers of `OBSERVATION_NAMES`."""
        tx, ty, tz = scene.tool
        bx, by, bz = scene.bottle
        ux, uy, uz = scene.bottle_up
        gx, gy, gz = scene.target
        ox, oy, _ = scene.obstacle
        s, neck = 1.0 / LENGTH_SCALE_M, self.config.neck_height_m
        return [
            (tx - TOOL_ORIGIN[0]) * s, (ty - TOOL_ORIGIN[1]) * s, (tz - TOOL_ORIGIN[2]) * s,
            (bx + neck * ux - tx) * s, (by + neck * uy - ty) * s, (bz + neck * uz - tz) * s,
            (bx - gx) * s, (by - gy) * s, (bz - gz) * s,
            (bx - ox) * s, (by - oy) * s,
            ux / LEAN_SCALE, uy / LEAN_SCALE,
            scene.opening, 1.0 if self.closing else 0.0,
        ]  # fmt: skip

    def gripper(self, scene: Scene, wish: float | None = None) -> bool:
        """Whether the gripper closes (True) or opens during the next decision: as `wish` says (> 0 opens), else by reflex.

        The reflex closes when the neck is between the fingers, opens when the bottle's base touches the platform with its centre
        inside, and opens after closing on nothing.
        """
        c = self.config
        if wish is not None:
            self.closing = wish <= 0.0
        elif self.closing:
            empty = scene.opening * c.gripper_width_m < c.neck_width_m - c.width_tolerance_m
            self.closing = not (empty or (self.held and self._over_platform(scene, c.touch_m)))
        else:
            nx, ny, nz = self._neck_from_tool(scene)
            between = max(abs(nx), abs(ny)) <= c.grasp_across_m and abs(nz) <= c.grasp_along_m
            self.closing = between and not self._over_platform(scene, c.standing_height_m)
        return self.closing

    def advance(self, scene: Scene, executed: Vec, ticks: int = 0) -> tuple[float, Outcome | None]:
        """The reward of a decision that executed this velocity (m/s) and led to `scene`, and how the episode ended, if it did.

        `ticks`: how long it held, by default as long as decisions do.
        """
        c = self.config
        ticks = ticks or c.ticks_per_decision
        held_s = ticks / c.ticks_per_s
        self._ticks += ticks
        self._look(scene)
        speed = math.dist(scene.bottle, self._last_bottle) / held_s
        self._last_bottle = scene.bottle
        standing = (
            not self.closing
            and self._over_platform(scene, c.standing_height_m)
            and scene.bottle_up[2] > c.standing_upright
            and speed < c.standing_speed
        )
        self._stood_s = self._stood_s + held_s if standing else 0.0
        reward = -ticks * (
            self._energy * math.hypot(*executed) + c.distance_weight * math.dist(scene.bottle, scene.target)
        )
        outcome = self._outcome(scene)
        if outcome in (Outcome.DROPPED, Outcome.COLLIDED):
            reward += c.failure_reward
        return reward, outcome

    def _look(self, scene: Scene) -> None:
        c = self.config
        nx, ny, nz = self._neck_from_tool(scene)
        gap = abs(scene.opening * c.gripper_width_m - c.neck_width_m)
        self.held = self.closing and gap < c.width_tolerance_m and nx * nx + ny * ny + nz * nz < c.slip_m**2
        self._once_held = self._once_held or self.held

    def _outcome(self, scene: Scene) -> Outcome | None:
        c = self.config
        if math.dist(scene.obstacle, self._first_obstacle) > c.obstacle_moved_m or scene.obstacle_up[2] < c.obstacle_tilt:
            return Outcome.COLLIDED
        if scene.bottle_up[2] < c.upright or (self._once_held and not self.held and self._lost(scene)):
            return Outcome.DROPPED
        if self._stood_s >= c.standing_s - 1e-9:
            return Outcome.SUCCESS
        return Outcome.TIMEOUT if self._ticks >= self.max_ticks else None

    def _lost(self, scene: Scene) -> bool:
        nx, ny, nz = self._neck_from_tool(scene)
        away = nx * nx + ny * ny + nz * nz > self.config.slip_m**2
        return away and not self._over_platform(scene, self.config.standing_height_m)

    def _over_platform(self, scene: Scene, height_m: float) -> bool:
        """The base's centre lies over the platform, at most `height_m` above or below its top."""
        (bx, by, bz), (gx, gy, gz) = scene.bottle, scene.target
        return abs(bz - gz) <= height_m and (bx - gx) ** 2 + (by - gy) ** 2 <= self.config.place_radius_m**2

    def _neck_from_tool(self, scene: Scene) -> Vec:
        (tx, ty, tz), (bx, by, bz), (ux, uy, uz) = scene.tool, scene.bottle, scene.bottle_up
        neck = self.config.neck_height_m
        return bx + neck * ux - tx, by + neck * uy - ty, bz + neck * uz - tz
