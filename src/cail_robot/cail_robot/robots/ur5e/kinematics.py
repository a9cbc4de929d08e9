"""Kinematics of the UR5e from its published Denavit-Hartenberg parameters: forward, Jacobian, inverse.

Standard DH, metres and radians, nominal values: a real arm's calibration differs from them by up to a few millimetres.
Poses are written as Universal Robots writes them: position and rotation vector `(x, y, z, rx, ry, rz)` in the base frame.
Plain floats throughout: at 500 Hz the small arrays of NumPy cost more than the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

D1, D4, D5, D6 = 0.1625, 0.1333, 0.0997, 0.0996
A2, A3 = -0.425, -0.3922

JOINTS = ("shoulder_pan", "shoulder_lift", "elbow", "wrist_1", "wrist_2", "wrist_3")
JOINT_LIMIT = 2.0 * math.pi
"""Every joint turns this far either way."""
JOINT_SPEED_LIMIT = math.pi
"""rad/s of every joint, data sheet of the UR5e: 180 °/s."""
JOINT_DECELERATION = (13.1, 6.0, 19.5, 19.5, 19.5, 19.5)
"""rad/s², from published stops of category 0 from 183 °/s, fully stretched, with 5 kg: 244, 530 and 164 ms of base, shoulder and
elbow (UR5, user manual 3.4.5, appendix A.1; the UR5e's manual has graphs only). Of the wrists nothing is published: as the elbow.
"""
HOME = (0.0, -math.pi / 2, -math.pi / 2, -math.pi / 2, math.pi / 2, 0.0)
"""Upper arm upright, forearm level, tool pointing down."""

Vector = tuple[float, ...]
Rotation = tuple[float, float, float, float, float, float, float, float, float]
"""Row by row."""
IDENTITY: Rotation = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
NO_TOOL = (0.0,) * 6


class Frame(NamedTuple):
    """A rotation and an origin in the base frame."""

    rotation: Rotation
    origin: tuple[float, float, float]


def rotation_from_vector(rx: float, ry: float, rz: float) -> Rotation:
    """Rodrigues: the rotation by |r| about r."""
    angle = math.sqrt(rx * rx + ry * ry + rz * rz)
    if angle < 1e-12:
        return (1.0, -rz, ry, rz, 1.0, -rx, -ry, rx, 1.0)
    x, y, z = rx / angle, ry / angle, rz / angle
    c, s = math.cos(angle), math.sin(angle)
    k = 1.0 - c
    return (
        c + x * x * k, x * y * k - z * s, x * z * k + y * s,
        y * x * k + z * s, c + y * y * k, y * z * k - x * s,
        z * x * k - y * s, z * y * k + x * s, c + z * z * k,
    )  # fmt: skip


def vector_from_rotation(m: Rotation) -> tuple[float, float, float]:
    """The rotation vector of a rotation, its angle in [0, π]; through the quaternion, which stays exact near π."""
    r11, r12, r13, r21, r22, r23, r31, r32, r33 = m
    if (trace := r11 + r22 + r33) > 0.0:
        w, x, y, z = 1.0 + trace, r32 - r23, r13 - r31, r21 - r12
    elif r11 >= r22 and r11 >= r33:
        w, x, y, z = r32 - r23, 1.0 + r11 - r22 - r33, r12 + r21, r13 + r31
    elif r22 >= r33:
        w, x, y, z = r13 - r31, r12 + r21, 1.0 + r22 - r11 - r33, r23 + r32
    else:
        w, x, y, z = r21 - r12, r13 + r31, r23 + r32, 1.0 + r33 - r11 - r22
    if w < 0.0:
        w, x, y, z = -w, -x, -y, -z
    sine = math.sqrt(x * x + y * y + z * z)
    if sine < 1e-12 * w:
        return (2.0 * x / w, 2.0 * y / w, 2.0 * z / w)
    scale = 2.0 * math.atan2(sine, w) / sine
    return (x * scale, y * scale, z * scale)


def multiply(a: Rotation, b: Rotation) -> Rotation:
    a11, a12, a13, a21, a22, a23, a31, a32, a33 = a
    b11, b12, b13, b21, b22, b23, b31, b32, b33 = b
    return (
        a11 * b11 + a12 * b21 + a13 * b31, a11 * b12 + a12 * b22 + a13 * b32, a11 * b13 + a12 * b23 + a13 * b33,
        a21 * b11 + a22 * b21 + a23 * b31, a21 * b12 + a22 * b22 + a23 * b32, a21 * b13 + a22 * b23 + a23 * b33,
        a31 * b11 + a32 * b21 + a33 * b31, a31 * b12 + a32 * b22 + a33 * b32, a31 * b13 + a32 * b23 + a33 * b33,
    )  # fmt: skip


def transpose(m: Rotation) -> Rotation:
    return (m[0], m[3], m[6], m[1], m[4], m[7], m[2], m[5], m[8])


def rotate(m: Rotation, v: Sequence[float]) -> tuple[float, float, float]:
    x, y, z = v[0], v[1], v[2]
    return (m[0] * x + m[1] * y + m[2] * z, m[3] * x + m[4] * y + m[5] * z, m[6] * x + m[7] * y + m[8] * z)


def frame_of(pose: Sequence[float]) -> Frame:
    return Frame(rotation_from_vector(pose[3], pose[4], pose[5]), (pose[0], pose[1], pose[2]))


def pose_of(frame: Frame) -> Vector:
    return (*frame.origin, *vector_from_rotation(frame.rotation))


def compose(a: Frame, b: Frame) -> Frame:
    """The frame b, given in frame a, seen from the base (UR's `pose_trans`)."""
    x, y, z = rotate(a.rotation, b.origin)
    return Frame(multiply(a.rotation, b.rotation), (a.origin[0] + x, a.origin[1] + y, a.origin[2] + z))


def invert(a: Frame) -> Frame:
    back = transpose(a.rotation)
    x, y, z = rotate(back, a.origin)
    return Frame(back, (-x, -y, -z))


def forward(q: Sequence[float], tool: Sequence[float] = NO_TOOL) -> Frame:
    """The tool's frame at joint angles q; `tool` is the tool's pose in the flange."""
    return _chain(q, tool)[0]


def _chain(q: Sequence[float], tool: Sequence[float]) -> tuple[Frame, list[Vector], list[Vector]]:
    """Tool frame, and each joint's axis and a point on it.

    The axes of joints 2 to 4 are parallel, so the arm lies in a plane: u is its level direction, `side` its normal.
    """
    c1, s1 = math.cos(q[0]), math.sin(q[0])
    c2, s2 = math.cos(q[1]), math.sin(q[1])
    c23, s23 = math.cos(q[1] + q[2]), math.sin(q[1] + q[2])
    c234, s234 = math.cos(q[1] + q[2] + q[3]), math.sin(q[1] + q[2] + q[3])
    c5, s5 = math.cos(q[4]), math.sin(q[4])
    c6, s6 = math.cos(q[5]), math.sin(q[5])
    side = (s1, -c1, 0.0)
    x4 = (c234 * c1, c234 * s1, s234)
    z4 = (s234 * c1, s234 * s1, -c234)
    x5 = (c5 * x4[0] + s5 * s1, c5 * x4[1] - s5 * c1, c5 * x4[2])
    z5 = (-s5 * x4[0] + c5 * s1, -s5 * x4[1] - c5 * c1, -s5 * x4[2])
    # y5 = -z4
    x6 = (c6 * x5[0] - s6 * z4[0], c6 * x5[1] - s6 * z4[1], c6 * x5[2] - s6 * z4[2])
    y6 = (-s6 * x5[0] - c6 * z4[0], -s6 * x5[1] - c6 * z4[1], -s6 * x5[2] - c6 * z4[2])
    elbow = (A2 * c2 * c1, A2 * c2 * s1, D1 + A2 * s2)
    reach = A2 * c2 + A3 * c23
    wrist1 = (reach * c1, reach * s1, D1 + A2 * s2 + A3 * s23)
    wrist2 = (wrist1[0] + D4 * s1, wrist1[1] - D4 * c1, wrist1[2])
    wrist3 = (wrist2[0] + D5 * z4[0], wrist2[1] + D5 * z4[1], wrist2[2] + D5 * z4[2])
    flange = Frame(
        (x6[0], y6[0], z5[0], x6[1], y6[1], z5[1], x6[2], y6[2], z5[2]),
        (wrist3[0] + D6 * z5[0], wrist3[1] + D6 * z5[1], wrist3[2] + D6 * z5[2]),
    )
    axes: list[Vector] = [(0.0, 0.0, 1.0), side, side, side, z4, z5]
    points: list[Vector] = [(0.0, 0.0, 0.0), (0.0, 0.0, D1), elbow, wrist1, wrist2, wrist3]
    return (flange if tool is NO_TOOL else compose(flange, frame_of(tool))), axes, points


def jacobian_columns(q: Sequence[float], tool: Sequence[float] = NO_TOOL) -> tuple[Frame, list[Vector]]:
    """Tool frame, and for each joint the tool's linear and angular velocity at 1 rad/s, in the base frame."""
    frame, axes, points = _chain(q, tool)
    px, py, pz = frame.origin
    columns: list[Vector] = []
    for (ax, ay, az), (ox, oy, oz) in zip(axes, points, strict=True):
        x, y, z = px - ox, py - oy, pz - oz
        columns.append((ay * z - az * y, az * x - ax * z, ax * y - ay * x, ax, ay, az))
    return frame, columns


def jacobian(q: Sequence[float], tool: Sequence[float] = NO_TOOL) -> np.ndarray:
    """6 × 6: tool twist (linear, angular, base frame) = J · joint speeds."""
    return np.array(jacobian_columns(q, tool)[1]).T


def twist_of(columns: Sequence[Sequence[float]], qd: Sequence[float]) -> Vector:
    """Tool twist at joint speeds qd."""
    a, b, c, d, e, f = columns
    k, m, n, o, p, r = qd
    return tuple(k * a[i] + m * b[i] + n * c[i] + o * d[i] + p * e[i] + r * f[i] for i in range(6))


def joint_speeds(columns: Sequence[Sequence[float]], twist: Sequence[float], damping: float = 1e-3) -> Vector:
    """Joint speeds for a tool twist by damped least squares; `damping` bounds them near a singularity.

    The damping fades with Yoshikawa's manipulability |det J|, so that away from singularities the inverse is exact.
    """
    matrix = np.array(columns).T
    measure = abs(float(np.linalg.det(matrix)))
    if measure > SINGULAR_BELOW:
        return tuple(np.linalg.solve(matrix, twist).tolist())
    weight = damping * (1.0 - measure / SINGULAR_BELOW)
    return tuple((matrix.T @ np.linalg.solve(matrix @ matrix.T + weight * np.eye(6), twist)).tolist())


SINGULAR_BELOW = 2e-3
"""Manipulability below which the inverse Jacobian is damped; at HOME it is 0.082."""


def inverse(pose: Sequence[float], near: Sequence[float], tool: Sequence[float] = NO_TOOL) -> Vector | None:
    """The joint angles within the limits that reach `pose` and lie nearest to `near`; None if there are none."""
    best, least = None, math.inf
    for q in solutions(frame_of(pose), near, tool):
        distance = sum((a - b) ** 2 for a, b in zip(q, near, strict=True))
        if distance < least:
            best, least = q, distance
    return best


def solutions(tool_frame: Frame, near: Sequence[float], tool: Sequence[float] = NO_TOOL) -> list[Vector]:
    """Up to eight: shoulder left or right, wrist up or down, elbow up or down, each turned to lie close to `near`."""
    flange = tool_frame if tool is NO_TOOL else compose(tool_frame, invert(frame_of(tool)))
    r11, r12, r13, r21, r22, r23, r31, r32, r33 = flange.rotation
    px, py, pz = flange.origin
    found: list[Vector] = []
    wx, wy = px - D6 * r13, py - D6 * r23
    radius = math.hypot(wx, wy)
    if radius < D4:
        return found
    for shoulder in (1.0, -1.0):
        q1 = math.atan2(wy, wx) + shoulder * math.acos(D4 / radius) + math.pi / 2
        c1, s1 = math.cos(q1), math.sin(q1)
        cosine5 = (px * s1 - py * c1 - D4) / D6
        if abs(cosine5) > 1.0 + 1e-9:
            continue
        for wrist in (1.0, -1.0):
            q5 = wrist * math.acos(max(-1.0, min(1.0, cosine5)))
            c5, s5 = math.cos(q5), math.sin(q5)
            if abs(s5) > 1e-9:
                q6 = math.atan2(-(s1 * r12 - c1 * r22) / s5, (s1 * r11 - c1 * r21) / s5)
            else:  # joints 2 to 4 and 6 are parallel: any q6 will do
                q6 = near[5]
            c6, s6 = math.cos(q6), math.sin(q6)
            x5 = (c6 * r11 - s6 * r12, c6 * r21 - s6 * r22, c6 * r31 - s6 * r32)
            z4 = (-(s6 * r11 + c6 * r12), -(s6 * r21 + c6 * r22), -(s6 * r31 + c6 * r32))
            x4 = (c5 * x5[0] - s5 * r13, c5 * x5[1] - s5 * r23, c5 * x5[2] - s5 * r33)
            q234 = math.atan2(x4[2], x4[0] * c1 + x4[1] * s1)
            ox, oy = px - D6 * r13 - D5 * z4[0] - D4 * s1, py - D6 * r23 - D5 * z4[1] + D4 * c1
            level, height = ox * c1 + oy * s1, pz - D6 * r33 - D5 * z4[2] - D1
            cosine3 = (level * level + height * height - A2 * A2 - A3 * A3) / (2.0 * A2 * A3)
            if abs(cosine3) > 1.0 + 1e-9:
                continue
            for elbow in (1.0, -1.0):
                q3 = elbow * math.acos(max(-1.0, min(1.0, cosine3)))
                q2 = math.atan2(height, level) - math.atan2(A3 * math.sin(q3), A2 + A3 * math.cos(q3))
                found.append(tuple(_turned(a, b) for a, b in zip((q1, q2, q3, q234 - q2 - q3, q5, q6), near, strict=True)))
    return found


def _turned(angle: float, near: float) -> float:
    """The same direction, the turn closest to `near` within the joint's limit."""
    angle += 2.0 * math.pi * round((near - angle) / (2.0 * math.pi))
    if angle > JOINT_LIMIT:
        return angle - 2.0 * math.pi
    return angle + 2.0 * math.pi if angle < -JOINT_LIMIT else angle


def wrapped_difference(a: Sequence[float], b: Sequence[float]) -> tuple[Vector, float]:
    """From pose b to pose a: the displacement and the rotation vector in the base frame, and the rotation's angle."""
    turn = multiply(rotation_from_vector(*a[3:6]), transpose(rotation_from_vector(*b[3:6])))
    rx, ry, rz = vector_from_rotation(turn)
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2], rx, ry, rz), math.sqrt(rx * rx + ry * ry + rz * rz)
