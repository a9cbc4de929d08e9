"""What a card was shown to hold, against what is asked of an arm and what is measured there."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reach import Reach
from reach_policy import near_guard, write_policy
from test_deploy import Arm, Hands, until

from cail_core.errors import BadInput
from cail_core.tasks.variation import Variation
from cail_robot.deploy import config as deploy_config
from cail_robot.deploy.config import DeployConfig, prepare
from cail_robot.deploy.phase import Phase
from cail_robot.deploy.screen import line, screen
from cail_robot.deploy.session import Session
from cail_robot.deploy.stress import MOVES, Measuring, asked_beyond
from cail_robot.safety.limits import Limits
from cail_robot.teleop.command import NOWHERE, Steering, TeleopConfig, Wish
from cail_robot.teleop.command import START as ENTER

HELD = {"delay_s": 0.06, "speed_least": 0.5, "period_least": 0.5, "acceleration_least": 0.6, "noise_m": 0.002, "tracker_s": 0.034}
AS_TRAINED = {"what": "as trained", "strength": 0.0, "value": 0.0, "observation": "", "success": 1.0, "closest_m": None,
              "episodes": 48, "returns": 0.0}


def stress_of(**changes: Any) -> dict[str, Any]:
    return {"episodes": 48, "success": 1.0, "holds": HELD, "leans": [], "sentences": ["as trained: 100%"], "cases": [AS_TRAINED],
            "moved": 0, "cail": "0", **changes}


@pytest.fixture(autouse=True)
def _reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploy_config, "recordable", lambda name, config=None: Reach())


# Before anything starts.


def test_what_is_asked_for_is_held_against_the_card() -> None:
    assert asked_beyond(HELD, 0.5, 2.0, 0.6) == []
    assert asked_beyond({}, 0.01, 100.0, 0.01) == [], "nothing is known"
    assert asked_beyond(HELD, 0.25, 4.0, 0.5) == [
        "speed limit: × 0.25 of the trained one, its card holds down to × 0.5",
        "control period: × 0.25 of the trained one, its card holds down to × 0.5",
        "acceleration: × 0.5 of the trained one, its card holds down to × 0.6"]


def test_slower_than_the_card_holds_is_refused_unless_that_is_meant(tmp_path: Path) -> None:
    folder = write_policy(tmp_path / "p", near_guard(), stress=stress_of())
    assert prepare(folder, Limits(), robot="panda_sim", max_speed=0.25).held == HELD
    with pytest.raises(BadInput) as fault:
        prepare(folder, Limits(), robot="another", max_speed=0.2, rate=150)
    for text in ("robot: it was trained on panda_sim, this is another",
                 "speed limit: × 0.4 of the trained one, its card holds down to × 0.5; --beyond-stress runs it all the same",
                 "control period: × 0.333 of the trained one"):
        assert text in str(fault.value)
    meant = prepare(folder, Limits(), robot="panda_sim", max_speed=0.2, beyond_stress=True)
    assert meant.beyond_stress
    assert any("beyond what its card holds: speed limit: × 0.4" in note for note in meant.notes)


def test_a_weak_arm_is_refused_as_far_as_its_speed_needs_the_acceleration(tmp_path: Path) -> None:
    """Trained with 4 m/s²; at half of the speed a quarter of that keeps the path."""
    folder = write_policy(tmp_path / "p", near_guard(), stress=stress_of(), limits={"max_linear_acceleration": 4.0})
    prepare(folder, Limits(max_linear_speed=0.5, max_linear_acceleration=2.4), robot="panda_sim")
    prepare(folder, Limits(max_linear_speed=0.5, max_linear_acceleration=0.7), robot="panda_sim", max_speed=0.25)
    with pytest.raises(BadInput, match=r"acceleration: × 0\.25 of the trained one, its card holds down to × 0\.6"):
        prepare(folder, Limits(max_linear_speed=0.5, max_linear_acceleration=1.0), robot="panda_sim")


def test_a_card_that_says_nothing_or_nothing_good_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = write_policy(tmp_path / "plain", near_guard())
    assert not any("stress" in note for note in prepare(plain, Limits(), robot="panda_sim").notes), "the task has no such thing"
    monkeypatch.setattr(Reach, "variation", Variation(delay_s=(0.0, 0.06)), raising=False)
    monkeypatch.setattr(Reach, "under", lambda self, variation: self, raising=False)
    assert any("its card does not say what it holds" in note and f"cail stress --policy {plain}" in note
               for note in prepare(plain, Limits(), robot="panda_sim").notes)
    said = ["as trained: 100%", "steers by dx: …"]
    leaning = write_policy(tmp_path / "leaning", near_guard(), stress=stress_of(sentences=said))
    assert "its card: steers by dx: …" in prepare(leaning, Limits(), robot="panda_sim").notes
    bad = write_policy(tmp_path / "bad", near_guard(), stress=stress_of(holds={}, sentences=["as trained: 10%", "so few"]))
    assert "its card: as trained: 10%; so few" in prepare(bad, Limits(), robot="panda_sim").notes


# What is measured.


def rest(measuring: Measuring, *, latency: float = 0.005, period: float = 0.02, noise: float = 0.0, seconds: float = 1.1,
         decision: float = 0.02, seed: int = 0, arm_age: float = 0.004) -> Measuring:
    """A tracker that looks every `period`, its messages `latency` old when they come."""
    rng, poses = np.random.default_rng(seed), dict[int, tuple[float, ...]]()
    for k in range(math.ceil(seconds / decision) + 1):
        now = 50.0 + 0.00137 + k * decision
        look = math.floor((now - latency) / period + 1e-9)
        seen = np.array([0.6, 0.1, 0.05]) + noise * rng.standard_normal(3)
        pose = poses.setdefault(look, (*seen.tolist(), 0.0, 0.0, 0.0, 1.0))
        measuring.at_rest(now, {"ee_pose": arm_age, "gripper_state": 3.0, "bottle": now - look * period}, {"bottle": pose})
    return measuring


@settings(deadline=None, max_examples=60)
@given(st.floats(0.0, 0.1), st.sampled_from([0.01, 0.02, 0.034, 0.1]), st.floats(0.0, 0.01), st.integers(0, 10))
def test_what_a_tracker_is_like_is_measured(latency: float, period: float, noise: float, seed: int) -> None:
    found = rest(Measuring({}, 0.02), latency=latency, period=period, noise=noise, seconds=4.0, seed=seed)
    assert found.enough
    assert found.tracker_s == pytest.approx(max(period, 0.02), rel=0.15)
    assert found.noise_m == pytest.approx(noise, rel=0.35, abs=1e-9)
    assert abs(found.seen_s - max(latency, 0.004)) <= 0.55 * max(period, 0.02)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.0, 0.3), min_size=1, max_size=9), st.floats(0.002, 0.5))
def test_the_time_from_a_command_to_its_execution_is_measured(delays: list[float], speed: float) -> None:
    measuring, now, twist = Measuring({}, 0.02), 10.0, (speed, 0.0, 0.0, 0.0, 0.0, 0.0)
    assume(speed > MOVES)
    for delay in delays:
        measuring.executed(now, NOWHERE)
        measuring.commanded(now, NOWHERE)
        measuring.commanded(now + 0.1, twist)
        measuring.commanded(now + 0.11, twist)
        assert not measuring.executed(now + 0.099, NOWHERE), "before the command"
        assert measuring.executed(now + 0.1 + delay, (0.3 * speed, 0.0, 0.0, 0.0, 0.0, 0.0)) is (0.3 * speed > MOVES / 2)
        measuring.executed(now + 0.1 + delay + 1e-4, twist)
        now += 1.0
    assert len(measuring.answers) == len(delays)
    for found, delay in zip(measuring.answers, delays, strict=True):
        assert found == pytest.approx(delay, abs=2e-4)


def test_only_commands_after_rest_count() -> None:
    measuring, twist = Measuring({}, 0.02), (0.1, 0.0, 0.0, 0.0, 0.0, 0.0)
    measuring.commanded(0.9, twist)
    assert not measuring.executed(1.0, twist), "whether it rested before is not known"
    measuring.commanded(1.1, tuple(-v for v in twist))
    assert not measuring.executed(1.2, twist), "it moved already"
    measuring.executed(1.3, NOWHERE)
    measuring.commanded(1.4, twist)
    measuring.commanded(1.5, NOWHERE)
    assert not measuring.executed(1.6, twist), "taken back"
    measuring.executed(1.7, NOWHERE)
    measuring.commanded(1.8, twist)
    assert not measuring.executed(1.75, twist), "from before the command"
    measuring.executed(2.0, NOWHERE)
    assert not measuring.executed(9.0, twist), "nobody waits that long"
    assert measuring.answers == []


def test_beyond_the_card_is_said_with_both_numbers() -> None:
    assert rest(Measuring(HELD, 0.02), noise=0.0015).beyond() == []
    assert rest(Measuring({}, 0.02), noise=0.05, latency=0.4).beyond() == [], "nothing is known of it"
    late = rest(Measuring(HELD, 0.02), arm_age=0.07).beyond()
    assert late == ["delay 70 ms measured, its card holds 60 ms"]
    assert rest(Measuring(HELD, 0.02), noise=0.006).beyond()[0].startswith("tracker noise ")
    assert rest(Measuring(HELD, 0.02), period=0.1).beyond() == ["tracker period 100 ms measured, its card holds 34 ms"]
    assert rest(Measuring({"tracker_s": 0.0}, 0.02), period=0.02).beyond() == [], "once a decision is always fresh"


def test_the_delay_is_what_it_takes_to_see_and_to_move() -> None:
    found = rest(Measuring(HELD, 0.02), arm_age=0.03)
    found.executed(1.0, NOWHERE)
    found.commanded(2.0, (0.1, 0.0, 0.0, 0.0, 0.0, 0.0))
    assert found.beyond() == []
    assert found.executed(2.04, (0.1, 0.0, 0.0, 0.0, 0.0, 0.0))
    assert found.delay_s == pytest.approx(0.07)
    assert found.beyond() == ["delay 70 ms measured, its card holds 60 ms"]
    assert found.rows()[0] == ("delay", "70 ms (30 ms to see, 40 ms to move); its card holds 60 ms")
    assert found.short().startswith("delay 70 ms, tracker noise 0 mm, tracker period 20 ms")


# A session.


def session(tmp_path: Path, arm: Arm, *, simulated: bool, beyond_stress: bool = False) -> tuple[Session, Hands]:
    hands = Hands(arm)
    plan = prepare(write_policy(tmp_path / "p", near_guard(), stress=stress_of()), Limits(), robot="panda_sim",
                   beyond_stress=beyond_stress)
    made = Session(plan, DeployConfig(), arm, hands, Steering(TeleopConfig()), episodes=1, operator="anna", attended=True,
                   simulated=simulated, clock=lambda: arm.now)
    if not simulated:
        arm.permit()
        until(made, Phase.BY_HAND)
        hands.next = Wish(NOWHERE, (ENTER,))
    return made, hands


def test_an_arm_as_the_card_holds_is_measured_and_played(tmp_path: Path) -> None:
    made, _ = session(tmp_path, Arm(), simulated=False)
    until(made, Phase.POLICY)
    assert made.measured.enough
    until(made, Phase.BY_HAND, Phase.DONE)
    assert (made.warning, made.fault) == ("", "")
    assert len(made.measured.answers) == 1
    assert any(row.startswith("delay") and "its card holds 60 ms" in row for row in made.tally.table())
    assert any("measured  delay" in row for row in screen(made, 100, 40))


def test_a_real_arm_that_sees_too_late_is_not_started(tmp_path: Path) -> None:
    arm = Arm()
    arm.late = {"ee_pose": 0.09}
    made, _ = session(tmp_path, arm, simulated=False)
    until(made, Phase.DONE)
    assert made.fault == ("not started, beyond what its card holds: delay 90 ms measured, its card holds 60 ms; "
                          "--beyond-stress runs it all the same")
    assert set(arm.sent) == {NOWHERE}


@pytest.mark.parametrize(("simulated", "beyond_stress"), [(True, False), (False, True)])
def test_a_simulator_and_who_means_it_are_warned(tmp_path: Path, simulated: bool, beyond_stress: bool) -> None:
    arm = Arm()
    arm.late = {"ee_pose": 0.09}
    made, _ = session(tmp_path, arm, simulated=simulated, beyond_stress=beyond_stress)
    until(made, Phase.POLICY)
    assert "delay 90 ms measured" in made.warning
    assert made.warning in line(made)
    until(made, Phase.DONE)
    assert [one.outcome for one in made.tally.episodes] == ["success"]


class SlowArm(Arm):
    """Says that it executes a twist `lag` later than it was commanded."""

    lag = 0.075

    def __init__(self) -> None:
        super().__init__()
        self._history: list[tuple[float, Any]] = []

    def move(self, twist: Any) -> None:
        super().move(twist)
        self._history.append((self.now, twist))

    def executed(self) -> list[tuple[float, Any]]:
        known = [twist for when, twist in self._history if when <= self.now - self.lag]
        return [(0.0, known[-1] if known else NOWHERE)]


def test_a_real_arm_that_moves_too_late_is_stopped_and_goes_on_only_when_told(tmp_path: Path) -> None:
    arm = SlowArm()
    made, hands = session(tmp_path, arm, simulated=False)
    until(made, Phase.STOPPED)
    assert "delay 90 ms measured, its card holds 60 ms" in made.message, "10 to see, 80 to move"
    made.step()
    assert arm.sent[-1] == NOWHERE
    hands.next = Wish(NOWHERE, (ENTER,))
    until(made, Phase.DONE)
    assert [one.outcome for one in made.tally.episodes] == ["success"]


def test_a_dry_run_measures_and_commands_nothing(tmp_path: Path) -> None:
    arm = Arm()
    arm.late = {"ee_pose": 0.09}
    plan = prepare(write_policy(tmp_path / "p", near_guard(), stress=stress_of()), Limits(), robot="ur5e", other_robot=True)
    made = Session(plan, DeployConfig(), arm, Hands(arm), Steering(TeleopConfig()), episodes=1, operator="anna", attended=True,
                   simulated=False, dry_run=True, clock=lambda: arm.now)
    until(made, Phase.POLICY)
    for _ in range(100):
        made.step()
    assert made.phase is Phase.POLICY
    assert "delay 90 ms measured" in made.warning
