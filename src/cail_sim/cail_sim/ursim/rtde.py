"""The RTDE protocol (TCP 30004): packages, types, recipes, and one client's session.

A package is a big-endian uint16 size (of the whole package) and a type byte, then the payload. A recipe is an ordered list of
variables; its data packages carry their values without padding.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Protocol

HEADER = struct.Struct(">HB")
RATE = 500.0
MOST_FIELDS = 256
MOST_RECIPES = 255

FORMATS = {
    "BOOL": "?",
    "UINT8": "B",
    "UINT32": "I",
    "UINT64": "Q",
    "INT32": "i",
    "DOUBLE": "d",
    "VECTOR3D": "3d",
    "VECTOR6D": "6d",
    "VECTOR6INT32": "6i",
    "VECTOR6UINT32": "6I",
}


def _types(**names: str) -> dict[str, str]:
    return {name: kind for kind, text in names.items() for name in text.split()}


def _registers(direction: str) -> dict[str, str]:
    found = {f"{direction}_int_register_{i}": "INT32" for i in range(48)}
    found |= {f"{direction}_double_register_{i}": "DOUBLE" for i in range(48)}
    return found | {f"{direction}_bit_registers{half}": "UINT32" for half in ("0_to_31", "32_to_63")}


OUTPUTS = {
    **_types(
        DOUBLE="timestamp actual_execution_time speed_scaling target_speed_fraction actual_momentum actual_main_voltage "
        "actual_robot_voltage actual_robot_current standard_analog_input0 standard_analog_input1 standard_analog_output0 "
        "standard_analog_output1 payload io_current tool_output_current tool_temperature",
        VECTOR6D="target_q target_qd target_qdd target_current target_moment actual_q actual_qd actual_current "
        "joint_control_output actual_TCP_pose actual_TCP_speed actual_TCP_force target_TCP_pose target_TCP_speed "
        "joint_temperatures actual_joint_voltage ft_raw_wrench payload_inertia tcp_offset actual_current_as_torque",
        VECTOR3D="actual_tool_accelerometer payload_cog elbow_position",
        UINT64="actual_digital_input_bits actual_digital_output_bits",
        UINT32="runtime_state robot_status_bits safety_status_bits tool_output_voltage",
        INT32="robot_mode safety_mode safety_status tool_mode",
        VECTOR6INT32="joint_mode",
    ),
    **_registers("output"),
}
INPUTS = {
    **_types(
        UINT8="standard_digital_output_mask standard_digital_output configurable_digital_output_mask "
        "configurable_digital_output tool_digital_output_mask tool_digital_output standard_analog_output_mask "
        "standard_analog_output_type",
        UINT32="speed_slider_mask",
        DOUBLE="speed_slider_fraction standard_analog_output_0 standard_analog_output_1",
        VECTOR6D="external_force_torque",
    ),
    **_registers("input"),
}


class BadPackage(Exception):
    """A client's bytes are not RTDE; its connection is closed."""


def package(kind: str, payload: bytes = b"") -> bytes:
    return HEADER.pack(HEADER.size + len(payload), ord(kind)) + payload


def take(buffer: bytearray) -> tuple[str, bytes] | None:
    """Take one whole package off the front of the buffer: its type and payload."""
    if len(buffer) < HEADER.size:
        return None
    size, kind = HEADER.unpack_from(buffer)
    if size < HEADER.size:
        raise BadPackage(f"a package of {size} bytes")
    if len(buffer) < size:
        return None
    payload = bytes(buffer[HEADER.size : size])
    del buffer[:size]
    return chr(kind), payload


class Recipe:
    """An ordered list of variables and the bytes they make."""

    def __init__(self, names: list[str], known: Mapping[str, str]) -> None:
        self.names = names
        self.types = [known.get(name, "NOT_FOUND") for name in names]
        self.whole = bool(names) and "NOT_FOUND" not in self.types
        self._fields = [(name, kind.startswith("VECTOR")) for name, kind in zip(names, self.types, strict=True)]
        self._struct = struct.Struct(">" + "".join(FORMATS.get(kind, "") for kind in self.types))

    def pack(self, values: Mapping[str, Any]) -> bytes:
        flat: list[Any] = []
        for name, vector in self._fields:
            if vector:
                flat.extend(values[name])
            else:
                flat.append(values[name])
        return self._struct.pack(*flat)

    def unpack(self, payload: bytes) -> dict[str, Any]:
        """Values by name. Bytes beyond the recipe are left alone: ur_rtde sends some (getForwardKinematics with a tool)."""
        if len(payload) < self._struct.size:
            raise BadPackage(f"{len(payload)} bytes for a recipe of {self._struct.size}")
        flat = self._struct.unpack_from(payload)
        values: dict[str, Any] = {}
        at = 0
        for (name, vector), kind in zip(self._fields, self.types, strict=True):
            width = int(FORMATS[kind][0]) if vector else 1
            values[name] = flat[at : at + width] if vector else flat[at]
            at += width
        return values


class Box(Protocol):
    """What a session needs of the controller."""

    version: tuple[int, int, int, int]
    accept_protocol: bool

    def write_inputs(self, values: Mapping[str, Any]) -> None: ...


class Session:
    """One RTDE connection: its protocol version, recipes and claims."""

    def __init__(self, box: Box, claimed: dict[str, Session]) -> None:
        self.box = box
        self.claimed = claimed
        self.protocol = 1
        self.output: Recipe | None = None
        self.every = 1
        self.started = False
        self.inputs: list[Recipe] = []

    def answer(self, kind: str, payload: bytes) -> bytes:
        """The reply to one package, empty for a data package."""
        if kind == "V":
            accepted = self.box.accept_protocol and payload in (b"\0\1", b"\0\2")
            if accepted:
                self.protocol = payload[1]
            return package("V", bytes([accepted]))
        if kind == "v":
            return package("v", struct.pack(">4I", *self.box.version))
        if kind == "O":
            return self._set_output(payload)
        if kind == "I":
            return self._add_input(payload)
        if kind == "S":
            self.started = self.output is not None
            return package("S", bytes([self.started]))
        if kind == "P":
            self.started = False
            return package("P", b"\1")
        if kind == "U":
            number = payload[0] - 1 if payload else -1
            if not 0 <= number < len(self.inputs):
                raise BadPackage("data for an input recipe that was not set up")
            if self.inputs[number].whole:
                self.box.write_inputs(self.inputs[number].unpack(payload[1:]))
            return b""
        if kind == "M":
            return b""
        raise BadPackage(f"unknown package type {kind!r}")

    def _set_output(self, payload: bytes) -> bytes:
        frequency = RATE
        if self.protocol == 2:
            if len(payload) < 8:
                raise BadPackage("an output recipe without a frequency")
            (frequency,) = struct.unpack_from(">d", payload)
            payload = payload[8:]
            if not 0.0 < frequency <= RATE:  # nan too
                frequency = RATE
        recipe = Recipe(_names(payload), OUTPUTS)
        self.output = recipe if recipe.whole else None
        self.started = False
        self.every = min(max(1, round(RATE / frequency)), 500)
        number = bytes([recipe.whole]) if self.protocol == 2 else b""
        return package("O", number + ",".join(recipe.types).encode())

    def _add_input(self, payload: bytes) -> bytes:
        recipe = Recipe(_names(payload), INPUTS)
        for i, name in enumerate(recipe.names):
            if self.claimed.get(name, self) is not self:
                recipe.types[i] = "IN_USE"
                recipe.whole = False
        if len(self.inputs) >= MOST_RECIPES:
            raise BadPackage("too many input recipes")
        self.inputs.append(recipe)
        if recipe.whole:
            self.claimed.update(dict.fromkeys(recipe.names, self))
        return package("I", bytes([len(self.inputs) if recipe.whole else 0]) + ",".join(recipe.types).encode())

    def data(self, values: Mapping[str, Any]) -> bytes:
        """The data package of this cycle."""
        assert self.output is not None
        number = b"\1" if self.protocol == 2 else b""
        return package("U", number + self.output.pack(values))

    def close(self) -> None:
        for name in [name for name, owner in self.claimed.items() if owner is self]:
            del self.claimed[name]


def _names(payload: bytes) -> list[str]:
    """Names of a recipe; ur_rtde ends the list with a comma."""
    names = [name.strip() for name in payload.decode("ascii", "replace").split(",")]
    names = [name for name in names if name]
    if len(names) > MOST_FIELDS:
        raise BadPackage(f"a recipe of {len(names)} fields")
    return names
