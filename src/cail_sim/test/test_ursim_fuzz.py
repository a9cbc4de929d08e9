"""Hostile messages on every port: the box lives, the arm stays, the others are served."""

from __future__ import annotations

from boxes import running_box

from cail_sim.ursim.fuzz import fuzz


def test_hostile_messages_hurt_nobody():
    with running_box() as box:
        outcome = fuzz(box.host, 2000, seed=0)
        assert outcome.passed, outcome
        assert box.process.poll() is None
