"""Demonstrators of different skill for two environments of Gymnasium-Robotics.

`cail demos collect --demonstrators people:reach` calls `reach()` and lets everyone in the dict give the same number of episodes.
Each `start(rng)` begins an episode and returns its policy: from an observation, as the environment gives it, to an action in the
environment's own units. Draw what differs from episode to episode from `rng`, so that the same seed gives the same episodes.
"""

import numpy as np

GAIN = 10.0  # full speed from 0.1 m on
ABOVE = np.array([0.0, 0.0, 0.08])  # m


def reach():
    """FetchReach-v4: bring the gripper to the goal."""
    return {"steady": lambda rng: reaching(rng, misjudged=0.0, tremor=0.05),
            "hasty": lambda rng: reaching(rng, misjudged=0.04, tremor=0.2),
            "careless": lambda rng: reaching(rng, misjudged=0.12, tremor=0.5)}


def reaching(rng, misjudged, tremor):
    aside = misjudged * np.array([1.0, 1.0, 0.5]) * rng.uniform(0.5, 1.5)  # all to the same side: averaging does not help

    def policy(observation):
        error = observation["desired_goal"] + aside - observation["achieved_goal"]
        return np.append(GAIN * error + rng.normal(0.0, tremor, 3), 0.0)

    return policy


def pick_and_place():
    """FetchPickAndPlace-v4: grasp the block and bring it to the goal."""
    return {"steady": lambda rng: placing(rng, misjudged=0.0, tremor=0.02),
            "hasty": lambda rng: placing(rng, misjudged=0.03, tremor=0.2),
            "careless": lambda rng: placing(rng, misjudged=0.1, tremor=0.5)}


def placing(rng, misjudged, tremor):
    aside = misjudged * np.array([1.0, 1.0, 0.0]) * rng.uniform(0.5, 1.5)

    def policy(observation):
        state, goal = observation["observation"], observation["desired_goal"] + aside
        to_block, width = state[6:9], state[9] + state[10]
        held = np.linalg.norm(to_block) < 0.025 and width < 0.052
        if held:
            move, gripper = goal - state[3:6], -1.0
        elif np.linalg.norm(to_block[:2]) > 0.015:
            move, gripper = to_block + ABOVE, 1.0
        elif to_block[2] < -0.01:
            move, gripper = to_block, 1.0
        else:
            move, gripper = to_block, -1.0  # close
        return np.append(GAIN * move + rng.normal(0.0, tremor, 3), gripper)

    return policy
