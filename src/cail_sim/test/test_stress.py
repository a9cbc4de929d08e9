"""The stress test on the simulated arms: what is played, with a policy that has learned nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("pybullet", reason="needs PyBullet")

from cail_core.cli import main
from cail_core.guard import Guard
from cail_core.policy import load_policy, save_policy
from cail_core.rl.networks import TanhGaussianActor
from cail_core.stress import played
from cail_core.stress.played import ALL, AS_TRAINED, SHORT, Case, cases, moved, stressable
from cail_core.tasks import get_task
from cail_core.tasks.variation import FIELDS


def untrained(folder: Path) -> Path:
    spec = get_task("panda").spec
    actor = TanhGaussianActor(spec.observation_dim, spec.action_dim, torch.Generator().manual_seed(0), hidden=(8,))
    guard = Guard(np.zeros((1, spec.observation_dim), np.float32), np.ones(spec.observation_dim, np.float32),
                  np.zeros(spec.observation_dim, np.float32), 1.0, 2.0)
    save_policy(folder, actor, spec, "none", {}, guard=guard)
    return folder


@pytest.mark.parametrize("name", ["panda", "panda-carry", "ur5e"])
def test_the_simulated_arms_are_played_under_every_condition(name: str, tmp_path: Path) -> None:
    task = get_task(name)
    assert stressable(task)
    found = cases(task, short=False)
    assert {case.what for case in found} == {AS_TRAINED, ALL, *FIELDS}
    assert {case.what for case in cases(task, short=True)} == {AS_TRAINED, ALL, *SHORT}
    for case in found:
        case.variation(task)  # which refuses what cannot be
    observations = {case.observation for case in moved(task.spec, load_policy(untrained(tmp_path / "p")))}
    assert "neck_from_tool_y" in observations
    assert not {"gripper_closing"} & observations


def test_delay_shifts_what_a_decision_does(tmp_path: Path) -> None:
    """The same start under two delays: what is executed first after the longer one is still rest."""
    ran = {}
    for delay in (0.0, 0.06):
        env = get_task("panda").under(Case("delay_s", 1.0, delay).variation(get_task("panda"))).one()
        env.start(np.random.default_rng(3))
        before = env.scene.tool
        env.decide([1.0, 0.0, 0.0])
        ran[delay] = env.scene.tool[0] - before[0]
        env.close()
    assert ran[0.0] > 10 * abs(ran[0.06])


def test_the_command_plays_the_short_form_on_the_panda_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(played, "WORKS", 0.0)  # so that all is played, though it never succeeds
    policy = untrained(tmp_path / "run" / "policy")
    assert main(["stress", "--policy", str(policy), "--short", "--episodes", "1"]) == 0
    assert "cannot be said what it holds" in capsys.readouterr().out.splitlines()[-1]
    kept = json.loads((tmp_path / "run" / "stress.json").read_text())["cases"]
    assert len(kept) == 2 + len(SHORT)
    assert [one["episodes"] for one in kept.values()] == [3] + [1] * (1 + len(SHORT))
    assert all(one["closest_m"] is not None for one in kept.values())
    assert len({one["returns"] for one in kept.values()}) > 3, "the conditions act"
    stamp = (tmp_path / "run" / "stress.json").stat().st_mtime_ns
    assert main(["stress", "--policy", str(policy), "--short", "--episodes", "1"]) == 0
    assert (tmp_path / "run" / "stress.json").stat().st_mtime_ns == stamp, "nothing was played again"
    assert load_policy(policy).card.stress["holds"] == {}
