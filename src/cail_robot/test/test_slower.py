"""A slower arm goes the same way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cail_robot.control.speed_scaling import Slower
from cail_robot.safety.limits import Limits, paced

SPEED, ACCELERATION, JERK, PERIOD = 0.5, 4.0, 200.0, 0.02


def way(share: float, acceleration: float = ACCELERATION, jerk: float = JERK) -> np.ndarray:
    """The path of an arm that follows at once, steered around a corner by where it is."""
    slower = Slower(share, SPEED, acceleration, jerk, PERIOD)
    slower.begin()
    place, path = np.zeros(3), [np.zeros(3)]
    while place[1] < 0.2:
        wish = (0.4, 0.0, 0.0) if place[0] < 0.24 else (-0.02, 0.3, 0.0)
        place = place + PERIOD * np.array(slower.twist((*wish, 0.0, 0.0, 0.0))[:3])
        path.append(place)
    return np.array(path)


def from_way(path: np.ndarray, point: np.ndarray) -> float:
    """How far a point lies from the straight pieces of a path."""
    piece = np.diff(path, axis=0)
    along = np.clip(((point - path[:-1]) * piece).sum(1) / np.maximum((piece**2).sum(1), 1e-12), 0.0, 1.0)
    return float(np.linalg.norm(path[:-1] + along[:, None] * piece - point, axis=1).min())


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_a_slower_arm_takes_the_same_path(share: float) -> None:
    """Beside that of the trained speed; what is left is a decision's way, before which no policy sees the corner."""
    fast = way(0.999999)  # below 1 it smooths by itself
    assert max(from_way(fast, point) for point in way(share)) < 0.5 * 0.4 * PERIOD
    assert len(way(share)) == pytest.approx(len(fast) / share, rel=0.05)


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_with_the_trained_acceleration_it_would_cut_the_corner(share: float) -> None:
    fast, sharp = way(0.999999), way(share, ACCELERATION / share**2, JERK / share**3)
    assert max(from_way(fast, point) for point in sharp) > 2 * max(from_way(fast, point) for point in way(share))


def test_the_norm_is_cut_and_the_direction_kept() -> None:
    x, y, z, *_ = Slower(0.5, SPEED, 0.0, 0.0, PERIOD).twist((0.5, 0.5, 0.5, 0.0, 0.0, 0.0))
    assert math.sqrt(x * x + y * y + z * z) == pytest.approx(0.25)
    assert x == y == z


def test_at_the_trained_speed_nothing_is_changed() -> None:
    wish = (0.3, -0.2, 0.1, 0.0, 0.0, 0.4)
    assert Slower(1.0, SPEED, ACCELERATION, JERK, PERIOD).twist(wish) == wish


def test_a_wish_that_is_no_number_stays_one_for_the_filter_to_refuse() -> None:
    slower = Slower(0.5, SPEED, ACCELERATION, JERK, PERIOD)
    assert math.isnan(slower.twist((math.nan, 0.0, 0.0, 0.0, 0.0, 0.0))[0])
    assert slower.twist((0.1, 0.0, 0.0, 0.0, 0.0, 0.0))[0] > 0.0, "and the next one is followed again"


def test_paced_limits_are_powers_of_the_share() -> None:
    limits = paced(Limits(), 0.5, 1.0)
    assert limits.max_linear_speed == pytest.approx(0.125)
    assert limits.max_linear_acceleration == pytest.approx(2.5 / 4)
    assert limits.max_linear_jerk == pytest.approx(50.0 / 8)
    assert paced(Limits(), 1.0, 10.0).linear_deceleration == pytest.approx(25.0), "braking is never weaker than speeding up"
