"""A policy for the task `reach`, made by hand: the tool goes straight to the target. And the task's arm as a process."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from reach import Reach
from safetensors.numpy import save_file

from cail_core.guard import Guard
from cail_core.policy import PolicyCard

GAIN = 5.0
START = (0.5, 0.0, 0.3)
"""Of the kinematic arm; the target's usual place is 0.1 m further along x."""


def near_guard() -> Guard:
    """Trusts offsets to the target of up to 0.1 m along x, y and z; distances are in units of 0.1 m in each of 4 entries."""
    offsets = [(x, y, z, 1.0) for x in np.linspace(-0.1, 0.1, 9) for y in (-0.1, 0.0, 0.1) for z in (-0.1, 0.0, 0.1)]
    return Guard(np.array(offsets, np.float32), np.full(4, 0.1, np.float32), np.array([0.1, 0, 0, 1], np.float32), 1.0, 2.0)


def write_policy(folder: Path, guard: Guard | None = None, **changes: Any) -> Path:
    spec = Reach().spec
    card = PolicyCard("reach", "hand", list(spec.observation_names), list(spec.action_names), spec.action_scale, spec.fps,
                      robot="panda_sim", guard=guard.thresholds() if guard else {})
    folder.mkdir(parents=True)
    (folder / "policy.json").write_text(json.dumps({**asdict(card), **changes}))
    straight = np.concatenate([GAIN * np.eye(3), np.zeros((3, 1))], axis=1)
    save_file({"observation_mean": np.zeros(4, np.float32), "observation_scale": np.ones(4, np.float32),
               "layer0.weight": straight.astype(np.float32), "layer0.bias": np.zeros(3, np.float32)},
              folder / "policy.safetensors")
    if guard:
        save_file(guard.arrays(), folder / "guard.safetensors")
    return folder


def main() -> int:
    """The kinematic arm's node with a `reset` that puts the arm back: reach_policy.py."""
    from kinematic_arm import KinematicArm

    from cail_robot.ros.runtime import run

    def nodes() -> list[object]:
        from cail_robot.ros.arm_node import ArmNode
        from cail_robot.safety.limits import Limits

        class ReachNode(ArmNode):
            def _on_reset(self, request: Any, response: Any) -> Any:
                def put_back() -> None:
                    self.control.arm.position = list(START)
                    self.control.start_anew()

                self.control.in_loop(put_back)
                response.success, response.message = True, "the arm is back"
                return response

        return [ReachNode(KinematicArm(), Limits())]

    return run(nodes)


if __name__ == "__main__":
    sys.exit(main())
