"""The UR5e's kinematics against numbers worked out by hand and by plain Denavit-Hartenberg matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cail_robot.robots.ur5e import kinematics as ur

# a, d, alpha of the six links, as Universal Robots publishes them.
TABLE = [
    (0.0, 0.1625, math.pi / 2),
    (-0.425, 0.0, 0.0),
    (-0.3922, 0.0, 0.0),
    (0.0, 0.1333, math.pi / 2),
    (0.0, 0.0997, -math.pi / 2),
    (0.0, 0.0996, 0.0),
]


def by_matrices(q: np.ndarray) -> np.ndarray:
    """Product of the six homogeneous DH matrices: the independent way."""
    total = np.eye(4)
    for angle, (a, d, alpha) in zip(q, TABLE, strict=True):
        c, s, ca, sa = math.cos(angle), math.sin(angle), math.cos(alpha), math.sin(alpha)
        total = total @ np.array([[c, -s * ca, s * sa, a * c], [s, c * ca, -c * sa, a * s], [0, sa, ca, d], [0, 0, 0, 1]])
    return total


def joints(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-math.pi, math.pi, (n, 6))


def test_stretched_arm_by_hand():
    # All joints at zero: the arm lies along -x; the tool looks along -y, at -(d4 + d6), d5 below the shoulder.
    frame = ur.forward([0.0] * 6)
    assert frame.origin == pytest.approx((-0.425 - 0.3922, -(0.1333 + 0.0996), 0.1625 - 0.0997), abs=1e-12)
    assert frame.rotation == pytest.approx((1, 0, 0, 0, 0, -1, 0, 1, 0), abs=1e-12)


def test_home_by_hand():
    # Upper arm straight up (0.425); q2 + q3 = -180° and a3 < 0, so the forearm (0.3922) points along +x, d5 too; d6 down.
    pose = ur.pose_of(ur.forward(ur.HOME))
    assert pose[:3] == pytest.approx((0.3922 + 0.0997, -0.1333, 0.1625 + 0.425 - 0.0996), abs=1e-12)
    assert ur.rotate(ur.forward(ur.HOME).rotation, (0, 0, 1)) == pytest.approx((0, 0, -1), abs=1e-12)


def test_forward_equals_the_product_of_dh_matrices():
    for q in joints(0, 500):
        frame, wanted = ur.forward(q), by_matrices(q)
        assert np.allclose(np.reshape(frame.rotation, (3, 3)), wanted[:3, :3], atol=1e-12)
        assert np.allclose(frame.origin, wanted[:3, 3], atol=1e-12)


def test_a_tool_is_a_further_frame():
    tool = (0.01, -0.02, 0.15, 0.1, 0.2, -0.3)
    for q in joints(1, 50):
        offset = np.eye(4)
        offset[:3, :3] = np.reshape(ur.rotation_from_vector(*tool[3:]), (3, 3))
        offset[:3, 3] = tool[:3]
        wanted = by_matrices(q) @ offset
        assert np.allclose(ur.forward(q, tool).origin, wanted[:3, 3], atol=1e-12)


def test_rotation_vectors_go_round():
    rng = np.random.default_rng(2)
    for _ in range(500):
        axis = rng.standard_normal(3)
        vector = axis / np.linalg.norm(axis) * rng.choice([rng.uniform(0, math.pi), 1e-9, 1e-5, math.pi - 1e-9])
        m = np.reshape(ur.rotation_from_vector(*vector), (3, 3))
        assert np.allclose(m @ m.T, np.eye(3), atol=1e-12)
        assert ur.vector_from_rotation(tuple(m.ravel())) == pytest.approx(tuple(vector), abs=1e-7)


def test_half_turn_has_a_rotation_vector():
    assert ur.vector_from_rotation((1, 0, 0, 0, -1, 0, 0, 0, -1)) == pytest.approx((math.pi, 0, 0))


def test_compose_and_invert_cancel():
    for q in joints(3, 50):
        frame = ur.forward(q)
        back = ur.compose(frame, ur.invert(frame))
        assert back.rotation == pytest.approx(ur.IDENTITY, abs=1e-12)
        assert back.origin == pytest.approx((0, 0, 0), abs=1e-12)


@pytest.mark.parametrize("tool", [ur.NO_TOOL, (0.0, 0.03, 0.15, 0.3, 0.0, 0.1)])
def test_jacobian_equals_finite_differences(tool: tuple[float, ...]):
    h = 1e-6
    for q in joints(4, 100):
        wanted = np.zeros((6, 6))
        for j in range(6):
            step = np.zeros(6)
            step[j] = h
            plus, minus = ur.pose_of(ur.forward(q + step, tool)), ur.pose_of(ur.forward(q - step, tool))
            wanted[:, j] = np.array(ur.wrapped_difference(plus, minus)[0]) / (2 * h)
        assert np.allclose(ur.jacobian(q, tool), wanted, atol=1e-7)


@pytest.mark.parametrize("tool", [ur.NO_TOOL, (0.0, 0.03, 0.15, 0.3, 0.0, 0.1)])
def test_inverse_finds_the_way_back(tool: tuple[float, ...]):
    for q in joints(5, 1000):
        pose = ur.pose_of(ur.forward(q, tool))
        found = ur.inverse(pose, q, tool)
        assert found is not None
        assert found == pytest.approx(tuple(q), abs=1e-5)  # acos loses half the digits at its ends


def test_every_solution_reaches_the_pose():
    counts = []
    for q in joints(6, 300):
        wanted = ur.forward(q)
        found = ur.solutions(wanted, q)
        counts.append(len(found))
        for other in found:
            reached = ur.forward(other)
            assert np.allclose(reached.origin, wanted.origin, atol=1e-6)
            assert np.allclose(reached.rotation, wanted.rotation, atol=1e-6)
            assert all(abs(angle) <= ur.JOINT_LIMIT for angle in other)
    assert max(counts) == 8


def test_inverse_takes_the_turn_nearest_to_the_joints():
    q = np.array([3.5, -1.0, 1.2, -4.0, 1.0, -5.5])
    assert ur.inverse(ur.pose_of(ur.forward(q)), q) == pytest.approx(tuple(q), abs=1e-7)


def test_inverse_over_the_table_top():
    """A grid over the workspace with the tool down: reached, and the tool is there."""
    for x in np.linspace(-0.7, 0.7, 15):
        for y in np.linspace(-0.7, 0.7, 15):
            if not 0.3 < math.hypot(x, y) < 0.75:
                continue
            pose = (x, y, 0.2, math.pi, 0.0, 0.0)
            q = ur.inverse(pose, ur.HOME)
            assert q is not None, pose
            difference, angle = ur.wrapped_difference(ur.pose_of(ur.forward(q)), pose)
            assert np.allclose(difference[:3], 0, atol=1e-9)
            assert angle < 1e-7


def test_no_inverse_outside_the_reach():
    assert ur.inverse((1.2, 0.0, 0.3, math.pi, 0.0, 0.0), ur.HOME) is None
    assert ur.inverse((0.0, 0.05, 0.3, math.pi, 0.0, 0.0), ur.HOME) is None  # inside the column


def test_joint_speeds_make_the_twist():
    rng = np.random.default_rng(7)
    for q in joints(8, 200):
        _, columns = ur.jacobian_columns(q)
        if abs(np.linalg.det(np.array(columns))) < ur.SINGULAR_BELOW:
            continue
        twist = rng.standard_normal(6)
        assert ur.twist_of(columns, ur.joint_speeds(columns, twist)) == pytest.approx(tuple(twist), abs=1e-9)


def test_joint_speeds_stay_bounded_at_a_singularity():
    _, columns = ur.jacobian_columns([0.0] * 6)
    assert max(map(abs, ur.joint_speeds(columns, (0.1, 0.0, 0.0, 0.0, 0.0, 0.0)))) < 3.0
