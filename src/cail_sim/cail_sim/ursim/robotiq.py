"""A Robotiq gripper's URCap socket (TCP 63352): `GET POS`, `SET POS 255 SPE 255`, integers from 0 (open) to 255 (closed)."""

from __future__ import annotations

import time

from cail_sim.ursim.plant import Plant

LONGEST_LINE = 1024
ACTIVE = 3
ACTIVATE_S = 0.3
MOVING, ON_CLOSING, ARRIVED = 0, 2, 3


class Robotiq:
    """A 2F gripper. It is active from the start, as one that the pendant has activated.

    Activating it moves the fingers fully, as a real one's does.
    """

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self.silent = False
        self.activations = 0
        self._active_at = 0.0
        self._set = {"ACT": 1, "GTO": 1, "ATR": 0, "ARD": 1, "FOR": 255, "SPE": 255, "POS": 0, "MOD": 0}

    def deactivate(self) -> None:
        """As after a loss of the tool's power."""
        self._set |= {"ACT": 0, "GTO": 0}

    def answer(self, line: str) -> str:
        words = line.split()
        if len(words) == 2 and words[0] == "GET":
            value = self._get(words[1])
            return "?" if value is None else f"{words[1]} {value}"
        if len(words) >= 3 and words[0] == "SET" and len(words) % 2 == 1:
            pairs = list(zip(words[1::2], words[2::2], strict=True))
            if all(name in self._set and value.isdecimal() and int(value[:6]) <= 255 for name, value in pairs):
                was = self._set["ACT"]
                self._set.update((name, int(value)) for name, value in pairs)
                if self._set["ACT"] and not was:
                    self.activations += 1
                    self._active_at = time.monotonic() + ACTIVATE_S
                    self._plant.move_gripper(0.0 if self._plant.opening > 0.5 else 1.0, 1.0)
                elif self._set["ACT"] and self._set["GTO"]:
                    speed = 0.13 + 0.87 * self._set["SPE"] / 255.0  # 20 … 150 mm/s
                    self._plant.move_gripper(1.0 - self._set["POS"] / 255.0, speed)
                return "ack"
        return "?"

    def _get(self, name: str) -> int | None:
        position = round(255.0 * (1.0 - self._plant.opening))
        if name == "POS":
            return position
        if name == "PRE":
            return self._set["POS"]
        if name == "STA":
            return 0 if not self._set["ACT"] else ACTIVE if time.monotonic() >= self._active_at else 1
        if name == "FLT":
            return 0
        if name == "OBJ":
            if abs(position - self._set["POS"]) <= 2:
                return ARRIVED
            return ON_CLOSING if self._plant.holding else MOVING
        return self._set.get(name)
