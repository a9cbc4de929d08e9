"""One arm, one name: of two nodes that share their topics one would move by commands that were meant for the other."""

from __future__ import annotations

import time
import uuid
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.node import Node

from cail_core.errors import BadInput
from cail_robot.ros.runtime import STATUS_QOS, ByHand, taken

LOOK_S = 1.0
"""So long a node listens for another one before it offers anything. A live one's latched status comes with its discovery."""


class Rivals:
    """Hears the `status` of whoever else publishes one under this node's name."""

    def __init__(self, node: Node) -> None:
        self.instance = uuid.uuid4().hex
        """Which node a status is of; part of each."""
        self.found = ""
        """What the last other one called itself."""
        self._node = node
        self._topic = node.create_subscription(DiagnosticStatus, "status", _not_called, STATUS_QOS, callback_group=ByHand())

    def refuse(self) -> None:
        """BadInput if another arm is there; before this node has published or offered anything."""
        until = time.monotonic() + LOOK_S
        while time.monotonic() < until:
            if found := self.hear():
                raise BadInput(
                    f"expected no other arm on {self._node.get_namespace()}, found {found}; end its node, or start this one with"
                    " another --namespace or ROS_DOMAIN_ID"
                )
            time.sleep(0.02)

    def hear(self) -> str:
        """What has come of another arm's node since the last time, in its own words."""
        heard = ""
        for message, _ in taken(self._topic):
            values = {pair.key: pair.value for pair in message.values}
            if values.get("instance") != self.instance:
                kind = {"True": "a simulated arm", "False": "a real arm"}.get(values.get("simulated", ""), "an arm")
                heard = f"{kind}, '{message.hardware_id or 'without a name'}' ({message.message})"
        self.found = heard or self.found
        return heard

    @property
    def still_there(self) -> bool:
        """Whether one that was heard is still in the graph."""
        return bool(self.found) and int(self._node.count_publishers("status")) > 1


def _not_called(message: Any) -> None:
    """A subscription wants a callback."""
