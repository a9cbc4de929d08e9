"""An arm that moves exactly as told, for tests: integrates its twist; faults and a dead link on request."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from cail_robot.arm import STILL, ArmError, ArmMode, ArmState, Twist


class KinematicArm:
    simulated = True

    def __init__(self, period: float = 0.01, trace: Path | None = None) -> None:
        self.name = "kinematic arm"
        self.base_frame = "base"
        self.joint_names = ("x", "y", "z")
        self.period = period
        self.position = [0.5, 0.0, 0.3]
        self.twist: Twist = STILL
        self.gripper = 1.0
        self.time = 0.0
        self.mode, self.faults = ArmMode.READY, ()
        self.reachable, self.frozen = True, False
        self.sent: list[Twist] = []
        self.calls: list[str] = []
        self._trace = open(trace, "w", buffering=1) if trace else None  # noqa: SIM115

    def connect(self) -> None:
        self.calls.append("connect")
        if not self.reachable:
            raise ArmError("no answer from the kinematic arm; switch it on")

    def read(self) -> ArmState:
        if not self.reachable:
            raise ArmError("the link to the kinematic arm is gone")
        x, y, z = self.position
        return ArmState(self.time, (x, y, z), (0.0, 0.0, 0.0, 1.0), self.twist, (x, y, z), self.twist[:3], self.gripper,
                        self.mode, self.faults)

    def send_twist(self, twist: Twist) -> None:
        if not self.frozen:
            self.time += self.period
        self.twist = twist
        self.sent.append(twist)
        self.position = [p + v * self.period for p, v in zip(self.position, twist[:3], strict=True)]
        if self._trace:
            self._trace.write(f"{time.time():.6f} {' '.join(f'{v:.6g}' for v in twist)}\n")

    def send_gripper(self, opening: float) -> None:
        self.gripper = opening

    def stop(self) -> None:
        self.calls.append("stop")
        self.twist = STILL

    def recover(self) -> None:
        self.calls.append("recover")
        self.mode = ArmMode.RECOVERING

    def close(self) -> None:
        self.calls.append("close")


def main() -> int:
    """The node on this arm, as a process: kinematic_arm.py TRACE [--real] [--unaware] [--unnumbered] [--ros-args …].

    A target stands before it. `--real`: it does not say that it is simulated. `--unaware`: it does not look for another arm
    before it starts. `--unnumbered`: over a middleware that does not number messages.
    """
    from cail_core.errors import CailError
    from cail_robot.ros import rivals
    from cail_robot.ros.runtime import run

    words = sys.argv[1:]
    ours, ros = (words[: words.index("--ros-args")], words[words.index("--ros-args") :]) if "--ros-args" in words else (words, [])
    KinematicArm.simulated = "--real" not in ours
    if "--unaware" in ours:
        rivals.LOOK_S = 0.0

    def nodes() -> list[object]:
        from geometry_msgs.msg import PoseStamped

        from cail_robot.ros.arm_node import ArmNode, stamped_pose
        from cail_robot.ros.runtime import STATE_QOS
        from cail_robot.safety.limits import Limits

        class Node(ArmNode):
            def _on_twist(self, message: Any, info: dict[str, Any]) -> None:
                super()._on_twist(message, {} if "--unnumbered" in ours else info)

            def set_up(self) -> None:
                self._target = self.create_publisher(PoseStamped, "target_pose", STATE_QOS)

            def after(self, cycle: Any, publish: bool) -> None:
                if publish:
                    stamp = self.get_clock().now().to_msg()
                    self.send(self._target, stamped_pose((0.7, 0.1, 0.3), (0.0, 0.0, 0.0, 1.0), stamp, "base"))
                super().after(cycle, publish)

        return [Node(KinematicArm(trace=Path(ours[0])), Limits())]

    try:
        return run(nodes, ["arm", *ros])
    except CailError as fault:
        print(fault)
        return 2


if __name__ == "__main__":
    sys.exit(main())
