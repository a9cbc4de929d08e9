"""The arm's topics: names, types, and the definitions that make a bag readable by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

TWIST, POSE, JOINTS = "geometry_msgs/msg/TwistStamped", "geometry_msgs/msg/PoseStamped", "sensor_msgs/msg/JointState"
FLOAT, STRING, STATUS = "std_msgs/msg/Float64", "std_msgs/msg/String", "diagnostic_msgs/msg/DiagnosticStatus"


@dataclass(frozen=True)
class Topic:
    """One topic of the contract, its name relative to the arm's namespace."""

    name: str
    type: str
    needed: bool = False
    """Without it there is nothing to learn from."""


TOPICS = {
    topic.name: topic
    for topic in (
        Topic("twist_cmd", TWIST),
        Topic("twist_executed", TWIST, needed=True),
        Topic("ee_pose", POSE, needed=True),
        Topic("ee_twist", TWIST),
        Topic("joint_states", JOINTS),
        Topic("gripper_cmd", FLOAT),
        Topic("gripper_state", FLOAT, needed=True),
        Topic("episode_event", STRING),
        Topic("status", STATUS),
    )
}

"""Of every arm. Beside them are those that a task needs: see `TaskSpec.needs`."""
INPUTS = (POSE, TWIST, FLOAT)
"""Types that a task may need."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def topics_with(needs: Mapping[str, str]) -> dict[str, Topic]:
    """The arm's topics and those that a task needs."""
    return TOPICS | {name: Topic(name, kind, needed=True) for name, kind in needs.items()}


def faults_of(needs: Mapping[str, str]) -> list[str]:
    """What is wrong with a declaration of what a task needs."""
    faults = [f"'{name}' is a topic of the arm" for name in needs if name in TOPICS]
    faults += [f"'{name}' is no topic's name: small letters, digits and _" for name in needs if not _NAME.fullmatch(name)]
    known = ", ".join(INPUTS)
    return faults + [f"'{name}' is of type {kind}, expected {known}" for name, kind in needs.items() if kind not in INPUTS]


_HEADER = """MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
"""
_TIME = """MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""
_VECTOR = """MSG: geometry_msgs/Vector3
float64 x
float64 y
float64 z
"""


def _joined(*parts: str) -> str:
    return ("=" * 80 + "\n").join(parts)


DEFINITIONS = {
    TWIST: _joined(
        "std_msgs/Header header\ngeometry_msgs/Twist twist\n",
        _HEADER,
        _TIME,
        "MSG: geometry_msgs/Twist\ngeometry_msgs/Vector3 linear\ngeometry_msgs/Vector3 angular\n",
        _VECTOR,
    ),
    POSE: _joined(
        "std_msgs/Header header\ngeometry_msgs/Pose pose\n",
        _HEADER,
        _TIME,
        "MSG: geometry_msgs/Pose\ngeometry_msgs/Point position\ngeometry_msgs/Quaternion orientation\n",
        "MSG: geometry_msgs/Point\nfloat64 x\nfloat64 y\nfloat64 z\n",
        "MSG: geometry_msgs/Quaternion\nfloat64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1\n",
    ),
    JOINTS: _joined(
        "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n", _HEADER, _TIME
    ),
    FLOAT: "float64 data\n",
    STRING: "string data\n",
    STATUS: _joined(
        "byte OK=0\nbyte WARN=1\nbyte ERROR=2\nbyte STALE=3\nbyte level\nstring name\nstring message\nstring hardware_id\n"
        "diagnostic_msgs/KeyValue[] values\n",
        "MSG: diagnostic_msgs/KeyValue\nstring key\nstring value\n",
    ),
}
