"""The robot task without a robot: rewards and endings worked out by hand, the gripper's reflex, the observation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cail_core.policy import Gates
from cail_core.tasks.pick_place_avoid import OBSERVATION_NAMES, Outcome, PickPlaceAvoid, PickPlaceAvoidConfig, Scene, gates

CONFIG = PickPlaceAvoidConfig()
NECK = CONFIG.neck_height_m
UP = (0.0, 0.0, 1.0)
HELD = CONFIG.neck_width_m / CONFIG.gripper_width_m
START = Scene(tool=(0.5, 0.1, 0.2), bottle=(0.7, 0.0, 0.0), bottle_up=UP, obstacle=(0.5, -0.165, 0.085), obstacle_up=UP,
              target=(0.3, -0.3, 0.04), opening=1.0)
GRASPED = replace(START, tool=(0.7, 0.0, NECK), opening=HELD)
PLACED = replace(START, tool=(0.3, -0.3, 0.04 + NECK), bottle=(0.3, -0.3, 0.04), opening=HELD)
STILL = (0.0, 0.0, 0.0)


def episode(scene: Scene = START, *, closing: bool = False, max_ticks: int = 2000) -> PickPlaceAvoid:
    task = PickPlaceAvoid(CONFIG, max_ticks)
    task.begin(scene, closing=closing)
    return task


def test_a_decision_costs_ten_ticks_of_energy_and_distance() -> None:
    # d_init² = 0.4² + 0.3² + 0.04² = 0.2516, ‖a‖ = 0.5, afterwards d = ‖(0.2, 0.15, 0)‖ = 0.25
    moved = replace(GRASPED, bottle=(0.5, -0.15, 0.04), tool=(0.5, -0.15, 0.04 + NECK))
    reward, outcome = episode(GRASPED, closing=True).advance(moved, (0.3, 0.0, 0.4))
    assert outcome is None
    assert reward == pytest.approx(-10 * (0.02 * 0.5 / 0.2516 + 0.05 * 0.25))


def test_doing_nothing_pays_for_the_distance_alone() -> None:
    reward, _ = episode().advance(START, STILL)
    assert reward == pytest.approx(-10 * 0.05 * 0.2516**0.5)


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"obstacle": (0.504, -0.165, 0.085)}, None),
        ({"obstacle": (0.506, -0.165, 0.085)}, Outcome.COLLIDED),
        ({"obstacle_up": (0.1, 0.0, 0.995)}, Outcome.COLLIDED),
        ({"bottle_up": (0.3, 0.0, 0.954)}, None),
        ({"bottle_up": (0.5, 0.0, 0.866)}, Outcome.DROPPED),
        ({"bottle": (0.9, 0.0, 0.0)}, None),  # pushed, but never held and still standing
    ],
)
def test_what_counts_as_collided_and_dropped(change: dict[str, tuple[float, float, float]], outcome: Outcome | None) -> None:
    reward, found = episode().advance(replace(START, **change), STILL)  # type: ignore[arg-type]
    assert found is outcome
    assert (reward < -1990) == (outcome is not None)


def test_a_bottle_that_slips_out_of_the_hand_is_dropped() -> None:
    task = episode(GRASPED, closing=True)
    assert task.held
    lifted = replace(GRASPED, tool=(0.7, 0.0, NECK + 0.029))
    assert task.advance(lifted, STILL)[1] is None
    assert task.advance(replace(GRASPED, tool=(0.7, 0.0, NECK + 0.031)), STILL)[1] is Outcome.DROPPED


def test_a_bottle_left_standing_on_the_table_is_dropped_and_on_the_platform_not() -> None:
    away = (0.0, 0.0, 0.4)
    for scene, outcome in ((GRASPED, Outcome.DROPPED), (PLACED, None)):
        task = episode(GRASPED, closing=True)
        task.advance(scene, STILL)
        task.gripper(scene, 1.0)
        assert task.advance(replace(scene, tool=away, opening=1.0), STILL)[1] is outcome


def test_the_reflex_closes_around_the_neck_and_nowhere_else() -> None:
    for tool, closes in (((0.7, 0.0, NECK), True), ((0.711, -0.011, NECK + 0.011), True), ((0.7, 0.013, NECK), False),
                         ((0.7, 0.0, NECK + 0.013), False)):
        assert episode().gripper(replace(START, tool=tool)) is closes


def test_the_reflex_opens_where_the_bottle_touches_the_platform() -> None:
    for bottle, closed in (((0.3, -0.3, 0.043), False), ((0.3, -0.3, 0.046), True), ((0.345, -0.3, 0.04), True)):
        scene = replace(PLACED, bottle=bottle, tool=(bottle[0], bottle[1], bottle[2] + NECK))
        task = episode(GRASPED, closing=True)
        task.advance(scene, STILL)
        assert task.gripper(scene) is closed
        if not closed:
            assert task.gripper(scene) is False  # and does not close on it again


def test_the_reflex_opens_after_closing_on_nothing() -> None:
    task = episode()
    assert task.gripper(replace(START, tool=(0.7, 0.0, NECK)))
    assert not task.gripper(replace(START, opening=0.0))


def test_explicit_control_overrides_the_reflex() -> None:
    task = episode()
    assert task.gripper(START, -1.0)
    assert not task.gripper(replace(START, tool=(0.7, 0.0, NECK)), 1.0)


def test_success_needs_the_bottle_to_stand_released_for_a_while() -> None:
    task = episode(GRASPED, closing=True)
    task.advance(PLACED, STILL)  # moving: the bottle came from afar
    assert all(task.advance(PLACED, STILL)[1] is None for _ in range(50)), "held is not placed"
    released = replace(PLACED, opening=1.0)
    assert not task.gripper(PLACED)
    outcomes = [task.advance(released, STILL)[1] for _ in range(18)]
    assert outcomes == [None] * 17 + [Outcome.SUCCESS]  # 18 × 0.02 s is the first time past 0.35 s


def test_a_bottle_that_falls_over_while_it_is_released_is_no_success() -> None:
    task = episode(GRASPED, closing=True)
    task.advance(PLACED, STILL)
    task.gripper(PLACED)
    leaning = replace(PLACED, opening=1.0, bottle_up=(0.25, 0.0, 0.968))
    assert {task.advance(leaning, STILL)[1] for _ in range(40)} == {None}


def test_time_runs_out() -> None:
    task = episode(max_ticks=30)
    assert [task.advance(START, STILL)[1] for _ in range(3)] == [None, None, Outcome.TIMEOUT]


def test_the_observation_counts_from_the_right_places() -> None:
    seen = dict(zip(OBSERVATION_NAMES, episode().observe(START), strict=True))
    assert seen["neck_from_tool_x"] == pytest.approx(1.0)  # 0.2 m
    assert seen["bottle_from_target_z"] == pytest.approx(-0.2)
    assert seen["bottle_from_obstacle_y"] == pytest.approx(0.165 / 0.2)
    assert (seen["tool_x"], seen["tool_y"], seen["tool_z"]) == pytest.approx((0.0, 1.25, 0.0))
    assert (seen["gripper_opening"], seen["gripper_closing"]) == (1.0, 0.0)


def test_in_the_hand_a_policy_does_not_see_how_the_bottle_sits_in_it() -> None:
    config = PickPlaceAvoidConfig()
    hidden = Gates(gates(config), OBSERVATION_NAMES)
    seen = np.full(len(OBSERVATION_NAMES), 0.3, np.float32)
    place = {name: i for i, name in enumerate(OBSERVATION_NAMES)}
    seen[place["gripper_closing"]], seen[place["gripper_opening"]] = 1.0, config.neck_width_m / config.gripper_width_m
    shown = dict(zip(OBSERVATION_NAMES, hidden.hide(seen, seen).tolist(), strict=True))
    assert [name for name, value in shown.items() if value == 0.0] == [
        "neck_from_tool_x", "neck_from_tool_y", "neck_from_tool_z", "bottle_lean_x", "bottle_lean_y", "gripper_opening"]
    for name, value in (("gripper_closing", 0.0), ("gripper_opening", 0.9)):
        before = seen.copy()
        before[place[name]] = value
        assert (hidden.hide(before, before) == before).all(), "while it reaches, and while the fingers close"
