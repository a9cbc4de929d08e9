"""A SpaceMouse's ROS driver steers an arm: the driver, the desk and the arm's node as processes over real DDS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy")

from ros_bench import node_process, own_domain, process

from cail_robot.control.state_machine import StatusCode
from cail_robot.ros.operator import Operator, wait_for

own_domain()
NODE = Path(__file__).with_name("kinematic_arm.py")
PUSHED = 0.55
"""Less the dead zone of 0.1, half of full deflection."""
HALF_SPEED = 0.03
"""m/s, of the second preset."""


def close(value: float, wanted: float) -> bool:
    return abs(value - wanted) < 1e-6


def test_a_spacemouse_on_the_spacenav_topics_moves_the_arm_while_it_is_pushed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from geometry_msgs.msg import Twist
    from sensor_msgs.msg import Joy

    monkeypatch.setenv("PYTHONPATH", f"{folder}:{NODE.parent}")
    record = ["-m", "cail_core.cli", "record", "--robot", "running", "--robot-type", "stick", "--task", "reach"]
    with node_process(NODE, tmp_path / "trace"), Operator() as operator:
        with process(*record, "--input", "spacenav_topic", "--dataset", tmp_path / "demos"):
            drivers = {
                "joy": operator.node.create_publisher(Joy, "/spacenav/joy", 10),
                "twist": operator.node.create_publisher(Twist, "/spacenav/twist", 10),
            }
            wait_for(lambda: operator.node.count_subscribers("/spacenav/twist"), "the desk")
            assert operator.call("enable", data=True).success
            wait_for(lambda: operator.code() is StatusCode.ENABLED, "the desk's zero commands")

            def executed() -> Any:
                return operator.heard["twist_executed"][-1].twist.linear

            def push_until(kind: str, message: Any, done: Any) -> None:
                def pushed() -> bool:
                    if not operator.state().startswith("HOLDING"):  # a busy machine: let go, as a person would
                        drivers[kind].publish(message)
                    return bool(done())

                wait_for(pushed, f"motion by {kind}; {operator.state()}")
                wait_for(lambda: close(executed().x, 0.0) and close(executed().y, 0.0), "rest once the driver is silent")

            forward = Joy(axes=[PUSHED, 0.0, 0.0, 0.0, 0.0, 0.0], buttons=[0, 0])
            push_until("joy", forward, lambda: close(executed().x, HALF_SPEED) and close(executed().y, 0.0))
            left = Twist()
            left.linear.y = PUSHED
            push_until("twist", left, lambda: close(executed().y, HALF_SPEED) and close(executed().x, 0.0))
