"""Pick up the bottle, carry it around the obstacle, put it standing on the platform: `task` is what it is, `topics` how an arm's
topics show it."""

from cail_core.tasks.pick_place_avoid.task import (
    ACTION_NAMES,
    GRIPPER_ACTION,
    LENGTH_SCALE_M,
    OBSERVATION_NAMES,
    OBSERVATION_UNITS,
    TOOL_ORIGIN,
    Outcome,
    PickPlaceAvoid,
    PickPlaceAvoidConfig,
    Scene,
    Vec,
    gates,
    sensors,
    view,
)

__all__ = [
    "ACTION_NAMES",
    "GRIPPER_ACTION",
    "LENGTH_SCALE_M",
    "OBSERVATION_NAMES",
    "OBSERVATION_UNITS",
    "TOOL_ORIGIN",
    "Outcome",
    "PickPlaceAvoid",
    "PickPlaceAvoidConfig",
    "Scene",
    "Vec",
    "gates",
    "sensors",
    "view",
]
