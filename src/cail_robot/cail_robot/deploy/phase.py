"""What a deployment is doing."""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    WAITING = "waiting for the arm"
    BY_HAND = "waiting for a person"
    HOMING = "the arm goes back to its start"
    RESETTING = "the scene is being put back"
    SETTLING = "the episode is about to begin"
    POLICY = "the policy commands"
    OPERATOR = "the operator commands"
    STOPPED = "stopped"
    ENDING = "the episode has ended"
    SAVING = "the episode is being saved"
    DONE = "done"


OPEN = (Phase.POLICY, Phase.OPERATOR, Phase.STOPPED)
"""An episode is going on."""
