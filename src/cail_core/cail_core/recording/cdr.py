"""The few ROS 2 messages that the arm's topics carry, as CDR bytes: little-endian, 4 bytes of header, aligned by size.

Written out by hand because a recorder decodes a thousand messages a second; the tests hold it against other implementations.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from cail_core.errors import DatasetError

_LITTLE_ENDIAN = b"\x00\x01\x00\x00"


class Stamped(NamedTuple):
    """A message with a header: when, in which frame, its numbers."""

    stamp_ns: int
    frame: str
    values: tuple[float, ...]


class Joints(NamedTuple):
    stamp_ns: int
    names: tuple[str, ...]
    position: tuple[float, ...]
    velocity: tuple[float, ...]


def twist_stamped(stamp_ns: int, frame: str, twist: Sequence[float]) -> bytes:
    """geometry_msgs/msg/TwistStamped: linear x, y, z, angular x, y, z."""
    return _stamped(stamp_ns, frame, twist, 6)


def pose_stamped(stamp_ns: int, frame: str, pose: Sequence[float]) -> bytes:
    """geometry_msgs/msg/PoseStamped: position x, y, z, orientation x, y, z, w."""
    return _stamped(stamp_ns, frame, pose, 7)


def joint_state(stamp_ns: int, names: Sequence[str], position: Sequence[float], velocity: Sequence[float]) -> bytes:
    """sensor_msgs/msg/JointState without efforts."""
    body = _align(_header(stamp_ns, ""), 4) + struct.pack("<I", len(names))
    for name in names:
        body = _align(body, 4) + _string(name)
    for numbers in (position, velocity, ()):
        body = _align(body, 4) + struct.pack("<I", len(numbers))
        if numbers:
            body = _align(body, 8) + struct.pack(f"<{len(numbers)}d", *numbers)
    return _LITTLE_ENDIAN + body


def float64(value: float) -> bytes:
    """std_msgs/msg/Float64."""
    return _LITTLE_ENDIAN + struct.pack("<d", value)


def string(text: str) -> bytes:
    """std_msgs/msg/String."""
    return _LITTLE_ENDIAN + _string(text)


def read_stamped(data: bytes, numbers: int) -> Stamped:
    """A TwistStamped (6 numbers) or PoseStamped (7)."""
    _check(data)
    sec, nanosec, length = struct.unpack_from("<iII", data, 4)
    at = _aligned(12 + length, 8) + 4
    return Stamped(sec * 10**9 + nanosec, data[16 : 15 + length].decode(), struct.unpack_from(f"<{numbers}d", data, at))


def read_joint_state(data: bytes) -> Joints:
    _check(data)
    sec, nanosec, length = struct.unpack_from("<iII", data, 4)
    at = _aligned(12 + length, 4)
    (count,) = struct.unpack_from("<I", data, at + 4)
    at += 4
    names = []
    for _ in range(count):
        at = _aligned(at, 4)
        (length,) = struct.unpack_from("<I", data, at + 4)
        names.append(data[at + 8 : at + 7 + length].decode())
        at += 4 + length
    lists = []
    for _ in range(2):
        at = _aligned(at, 4)
        (count,) = struct.unpack_from("<I", data, at + 4)
        at = _aligned(at + 4, 8) if count else at + 4
        lists.append(struct.unpack_from(f"<{count}d", data, at + 4))
        at += 8 * count
    return Joints(sec * 10**9 + nanosec, tuple(names), lists[0], lists[1])


def read_float64(data: bytes) -> float:
    _check(data)
    return float(struct.unpack_from("<d", data, 4)[0])


def read_string(data: bytes) -> str:
    _check(data)
    (length,) = struct.unpack_from("<I", data, 4)
    return data[8 : 7 + length].decode()


def _stamped(stamp_ns: int, frame: str, values: Sequence[float], numbers: int) -> bytes:
    return _LITTLE_ENDIAN + _align(_header(stamp_ns, frame), 8) + struct.pack(f"<{numbers}d", *values)


def _header(stamp_ns: int, frame: str) -> bytes:
    return struct.pack("<iI", *divmod(stamp_ns, 10**9)) + _string(frame)


def _string(text: str) -> bytes:
    raw = text.encode() + b"\x00"
    return struct.pack("<I", len(raw)) + raw


def _align(body: bytes, size: int) -> bytes:
    return body + bytes(-len(body) % size)


def _aligned(at: int, size: int) -> int:
    return at + -at % size


def _check(data: bytes) -> None:
    if data[:2] != _LITTLE_ENDIAN[:2]:
        raise DatasetError(f"expected a little-endian CDR message, found the header {data[:4].hex()}")
