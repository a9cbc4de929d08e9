"""The Panda's tasks over an arm's topics."""

from functools import partial

from cail_robot.ros.env import OverRos

PANDA = partial(OverRos, "panda")
PANDA_CARRY = partial(OverRos, "panda-carry")
