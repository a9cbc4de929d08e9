"""A deployment without ROS: what is checked before it starts, and the session step by step on an arm that moves as told."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import fast_folder
from reach import Messages, Reach, feed
from reach_policy import START, near_guard, write_policy

from cail_core.config import find_config, load_config
from cail_core.demos.dataset import DemoDataset
from cail_core.errors import BadInput
from cail_core.recording.sync import ArmSample
from cail_robot.control.state_machine import StatusCode
from cail_robot.deploy import config as deploy_config
from cail_robot.deploy.config import DeployConfig, Deployment, prepare
from cail_robot.deploy.phase import Phase
from cail_robot.deploy.session import Session
from cail_robot.deploy.stats import Played, Tally
from cail_robot.recording.recorder import Recorder
from cail_robot.robot import Resets, RobotSpec
from cail_robot.ros.arm_link import ArmReport
from cail_robot.safety.limits import Limits
from cail_robot.teleop.command import FAILURE, NOWHERE, QUIT, STOP, Steering, TeleopConfig, Wish
from cail_robot.teleop.command import START as ENTER

LEFT = (0.0, 1.0, 0.0, 0.0, 0.0, 0.0)
PERIOD = 0.02


@pytest.fixture(autouse=True)
def _reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploy_config, "recordable", lambda name, config=None: Reach())


def plan(tmp_path: Path, **options: Any) -> Deployment:
    return prepare(write_policy(tmp_path / "p", near_guard()), Limits(), robot="panda_sim", **options)


# Checks.


def test_every_mismatch_is_listed_at_once(tmp_path: Path) -> None:
    folder = write_policy(tmp_path / "p", None, task="carry", observation_names=["dx", "dy", "height", "gripper"], fps=100,
                          action_scale="1 m/s", robot="ur5e_pybullet", observation_units="inches")
    with pytest.raises(BadInput) as fault:
        prepare(folder, Limits(), robot="panda_sim", task="reach", rate=20, max_speed=3.0)
    text = str(fault.value)
    for expected in (
        "task: it was trained for 'carry', asked for 'reach'",
        "its observations are dx, dy, height, gripper; the task 'reach' has dx, dy, dz, gripper",
        "its action of 1 means 1 m/s; in the task 'reach' 0.5 m/s",
        "its observations are inches",
        "robot: it was trained on ur5e_pybullet, this is panda_sim; --other-robot",
        "rate: it was trained at 100 Hz, asked for 20",
        "max_speed: trained at 1 m/s, asked for 3: faster than trained is refused",
        "the arm's max_linear_speed is 0.25 m/s, asked for 3",
        "guard: the policy has none",
    ):
        assert expected in text
    assert "nothing was started: 9 faults" in text


def test_slower_than_trained_is_said_and_takes_longer(tmp_path: Path) -> None:
    slow = plan(tmp_path, max_speed=0.1)
    assert slow.notes == ("runs at 0.1 m/s, trained at 0.5: everything takes 5 times as long",)
    assert slow.time_limit_s == pytest.approx(500 / 50 * 5)
    as_the_arm_allows = prepare(tmp_path / "p", Limits(max_linear_speed=0.2), robot="panda_sim")
    assert as_the_arm_allows.max_speed == 0.2


def test_a_guard_and_a_robot_are_waived_only_by_name(tmp_path: Path) -> None:
    folder = write_policy(tmp_path / "p", None, robot="ur5e")
    free = prepare(folder, Limits(), robot="panda_sim", without_guard=True, other_robot=True)
    assert free.guard is None
    assert [note for note in free.notes if "guard" in note or "another robot" in note] == [
        "another robot: it was trained on ur5e, this is panda_sim", "runs without its out-of-distribution guard"]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), [
    ({"provenance": {"fastest_action": -0.5}}, "provenance.fastest_action': expected a number from 0 on, given -0.5"),
    ({"provenance": {"fastest_action": "fast"}}, "provenance.fastest_action': expected a number from 0 on, given 'fast'"),
    ({"fps": 0}, "key 'fps': expected 1 … 1000, given 0"),
    ({"fps": -50}, "key 'fps': expected 1 … 1000, given -50"),
    ({"limits": {"max_linear_speed": "0.5"}}, "key 'limits.max_linear_speed': expected a number above 0, given '0.5'"),
    ({"limits": {"max_linear_speed": -0.5}}, "key 'limits.max_linear_speed': expected a number above 0, given -0.5"),
    ({"observation_names": [1, 2, 3, 4]}, "key 'observation_names': expected names, given 1"),
])  # fmt: skip
def test_a_card_with_numbers_that_no_training_writes_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    folder = write_policy(tmp_path / "p", near_guard())
    card = json.loads((folder / "policy.json").read_text()) | change
    (folder / "policy.json").write_text(json.dumps(card))
    with pytest.raises(BadInput) as fault:
        prepare(folder, Limits(), robot="panda_sim")
    assert said in str(fault.value)


def test_a_slow_policy_s_decisions_reach_the_arm_often_enough(tmp_path: Path) -> None:
    """Without a command for 0.08 s an arm holds; a decision of a policy at 5 Hz holds for 0.2 s."""
    arm = Arm()
    made, _ = session(tmp_path, arm)
    until(made, Phase.POLICY)
    made._period, made._deadline = 0.2, arm.now
    times: list[float] = []
    arm.move, move = (lambda twist: (times.append(arm.now), move(twist))), arm.move  # type: ignore[method-assign]
    for _ in range(5):
        made.step()
    assert max(b - a for a, b in pairwise(times)) <= 0.05


def test_the_installed_settings_are_the_documented_ones() -> None:
    assert load_config(DeployConfig, find_config("deploy")) == DeployConfig()


# Sessions.


class Arm:
    """Does what it is told, at once. Time passes when the operator is read."""

    needs = ("ee_pose", "twist_executed", "gripper_state", "target_pose")

    simulated = True
    note = ""
    wrong_frames: list[str] = []  # noqa: RUF012

    def unlock(self) -> None: ...

    def __init__(self) -> None:
        self.now = 100.0
        self.tool, self.target = np.array(START), np.add(START, (0.1, 0.0, 0.0))
        self.twist = NOWHERE
        self.sent: list[tuple[float, ...]] = []
        self.state, self.permitted, self.ready = "IDLE", False, True
        self.report = ArmReport("IDLE", "", (), 1.0)
        self.late: dict[str, float] = {}
        self.told: list[str] = []
        self._answers: list[tuple[str, bool, str]] = []
        self.resets = 0
        self.after: Callable[[], None] = lambda: None

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.tool = self.tool + np.array(self.twist[:3]) * seconds
        self.after()

    def move(self, twist: Any) -> None:
        self.sent.append(twist)
        if self.state == "ENABLED":
            self.permitted = self.permitted or twist == NOWHERE
            self.twist = twist if self.permitted else NOWHERE

    def grip(self, opening: float) -> None: ...

    def stop(self) -> None:
        self.state, self.permitted, self.twist = "FAULT", False, NOWHERE
        self._answers.append(("stop", True, "FAULT"))

    def permit(self) -> None:
        self.state = "ENABLED"

    def disable(self) -> None:
        self.state, self.permitted, self.twist = "IDLE", False, NOWHERE
        self._answers.append(("disable", True, "IDLE"))

    def reset(self) -> None:
        self.resets += 1
        self.tool = np.array(START)
        self._answers.append(("reset", True, "back"))

    def answer(self) -> tuple[str, bool, str] | None:
        return self._answers.pop(0) if self._answers else None

    def ages(self) -> dict[str, float]:
        return {name: self.late.get(name, 0.01) for name in self.needs}

    def look(self, gripper_cmd: float | None) -> ArmSample | None:
        pose = (*self.tool.tolist(), 0.0, 0.0, 0.0, 1.0)
        things = {"target_pose": (*self.target.tolist(), 0.0, 0.0, 0.0, 1.0)}
        return ArmSample(round(self.now * 1e9), 0, self.twist, NOWHERE, pose, NOWHERE, (), 1.0, gripper_cmd, things)

    def executed(self) -> list[tuple[float, Any]]:
        return [(0.0, self.twist)]

    def tell(self, text: str) -> None:
        self.told.append(text)


class Hands:
    """The operator: what they do next."""

    help = ()

    def __init__(self, arm: Arm) -> None:
        self.arm, self.next = arm, Wish()

    def read(self, timeout_s: float) -> Wish:
        wish, self.next = self.next, Wish()
        self.arm.pass_time(timeout_s if wish == Wish() else 0.0)
        return wish

    def close(self) -> None: ...


def session(tmp_path: Path, arm: Arm, **options: Any) -> tuple[Session, Hands]:
    hands = Hands(arm)
    given: dict[str, Any] = {"episodes": 1, "operator": "anna", "attended": True, "simulated": True, **options}
    made = Session(plan(tmp_path), DeployConfig(), arm, hands, Steering(TeleopConfig()), clock=lambda: arm.now, **given)
    return made, hands


def until(made: Session, *phases: Phase, most: int = 2000) -> None:
    for _ in range(most):
        if made.phase in phases:
            return
        made.step()
    raise AssertionError(f"expected {phases}, is {made.phase}: {made.message}")


def test_episodes_are_played_and_counted(tmp_path: Path) -> None:
    arm = Arm()
    made, _ = session(tmp_path, arm, episodes=2)
    until(made, Phase.DONE)
    assert [one.outcome for one in made.tally.episodes] == ["success", "success"]
    assert arm.resets == 2
    assert made.tally.guard_stops == made.tally.takeovers == made.tally.stale_stops == 0
    assert arm.sent[-1] == NOWHERE
    assert max(abs(v) for twist in arm.sent for v in twist) <= 0.25, "the arm's limit scales the policy's 0.5 m/s"


def test_the_operator_commands_in_the_step_that_they_touch_the_device(tmp_path: Path) -> None:
    arm = Arm()
    made, hands = session(tmp_path, arm)
    until(made, Phase.POLICY)
    made.step()
    assert arm.sent[-1][0] > 0.05, "the policy drives along x"
    before = arm.now
    hands.next = Wish(LEFT)
    made.step()
    assert made.phase is Phase.OPERATOR
    assert arm.sent[-1] == (0.0, 0.06, 0.0, 0.0, 0.0, 0.0)
    assert arm.now == before
    for _ in range(10):
        made.step()
        assert arm.sent[-1] == NOWHERE, "nobody holds a key, and the policy keeps still"
    hands.next = Wish(NOWHERE, (ENTER,))
    made.step()
    until(made, Phase.DONE)
    assert made.tally.takeovers == 1
    assert made.tally.count("success") == 0, "a success with help is not the policy's"
    assert any(row.split() == ["taken", "over", "1,", "of", "which", "1", "then", "succeeded"] for row in made.tally.table())


def test_the_guard_slows_then_stops(tmp_path: Path) -> None:
    """The target moves away along y. Distances are offsets beyond 0.1 m, in 0.1 m, over the root of 4 entries."""
    arm = Arm()
    made, _ = session(tmp_path, arm, attended=False)
    until(made, Phase.POLICY)
    arm.target = np.add(arm.tool, (0.0, 0.4, 0.0))  # 0.3 m from what is trusted: 3 / 2 = 1.5, between 1 and 2
    made.step()
    assert made.distance == pytest.approx(1.5, abs=0.06)
    assert made.tally.slowed == 1
    full = 0.25 * np.tanh(5 * 0.4)
    assert arm.sent[-1][1] == pytest.approx(0.625 * full, rel=0.05)
    arm.target = np.add(arm.tool, (0.0, 0.6, 0.0))  # 2.5
    made.step()
    assert made.phase is Phase.STOPPED
    assert arm.sent[-1] == NOWHERE
    assert "the guard stopped the policy: 2.4" in made.message or "the guard stopped the policy: 2.5" in made.message
    until(made, Phase.DONE)
    assert [(one.outcome, "guard" in one.why) for one in made.tally.episodes] == [("failure", True)]
    assert made.tally.guard_stops == 1


def test_a_stale_input_stops_and_says_which_and_how_old(tmp_path: Path) -> None:
    arm = Arm()
    made, _ = session(tmp_path, arm)
    until(made, Phase.POLICY)
    made.step()
    arm.late = {"target_pose": 0.7}
    made.step()
    assert made.phase is Phase.POLICY, "it may come back"
    assert arm.sent[-1] == NOWHERE
    assert made.message == "no command: target_pose is 0.70 s old"
    arm.late = {}
    made.step()
    assert arm.sent[-1][0] > 0.0
    arm.late = {"target_pose": 0.7, "ee_pose": 0.3}
    until(made, Phase.STOPPED, most=100)
    assert "ee_pose is 0.30 s old, target_pose is 0.70 s old" in made.message
    assert made.tally.stale_stops == 2


@pytest.mark.parametrize(("said", "code", "outcome"), [
    ("FAULT: the node was silent for 120 ms; clear_fault permits motion", StatusCode.FAULT, "interrupted"),
    ("FAULT: protective stop: look for its cause, then clear_fault", StatusCode.SAFETY_STOP, "failure"),
])  # fmt: skip
def test_what_the_arm_s_link_ended_is_no_failure_of_the_policy(
    tmp_path: Path, said: str, code: StatusCode, outcome: str
) -> None:
    arm = Arm()
    made, _ = session(tmp_path, arm, attended=False)
    until(made, Phase.POLICY)
    arm.stop()
    arm.report = ArmReport(said, "", (), 1.0, code)
    until(made, Phase.DONE)
    assert [(one.outcome, one.why) for one in made.tally.episodes] == [(outcome, f"the arm stopped: {said}")]


def test_what_an_input_ended_is_interrupted(tmp_path: Path) -> None:
    arm = Arm()
    made, _ = session(tmp_path, arm, attended=False)
    until(made, Phase.POLICY)
    arm.late = {"target_pose": 0.7}
    until(made, Phase.STOPPED, most=100)
    arm.late = {}
    until(made, Phase.DONE)
    assert [one.outcome for one in made.tally.episodes] == ["interrupted"]


def test_a_lost_arm_ends_the_deployment(tmp_path: Path) -> None:
    arm = Arm()
    made, _ = session(tmp_path, arm)
    until(made, Phase.POLICY)
    arm.late = dict.fromkeys(arm.needs, 9.0)
    until(made, Phase.DONE)
    assert "the arm's node has been silent" in made.fault
    assert "watchdog" in made.fault


def test_an_arm_that_holds_gets_its_zero_and_goes_on(tmp_path: Path) -> None:
    arm = Arm()
    made, _ = session(tmp_path, arm)
    until(made, Phase.POLICY)
    made.step()
    arm.permitted = False
    made.step()
    assert arm.sent[-1] == NOWHERE
    made.step()
    assert arm.sent[-1][0] > 0.0
    assert made.tally.holds == 1


def test_a_real_arm_waits_for_a_person_at_every_turn(tmp_path: Path) -> None:
    arm = Arm()
    made, hands = session(tmp_path, arm, simulated=False)
    for _ in range(100):
        made.step()
    assert (made.phase, arm.state) == (Phase.WAITING, "IDLE"), "nobody permitted motion"
    arm.permit()
    until(made, Phase.BY_HAND)
    for _ in range(100):
        made.step()
    assert made.phase is Phase.BY_HAND
    assert set(arm.sent) == {NOWHERE}
    hands.next = Wish(NOWHERE, (ENTER,))
    until(made, Phase.POLICY)
    hands.next = Wish(NOWHERE, (STOP,))
    made.step()
    assert (made.phase, arm.state) == (Phase.STOPPED, "FAULT")
    hands.next = Wish(NOWHERE, (QUIT,))
    until(made, Phase.DONE)
    assert made.fault == ""


def at_a_real_arm(tmp_path: Path, phase: Phase, monkeypatch: pytest.MonkeyPatch) -> tuple[Arm, Session, Hands]:
    """Up to where the arm moves without a hand on it."""
    arm = Arm()
    arm.simulated = False
    if phase is Phase.HOMING:
        arm.tool = np.array([0.3, -0.25, 0.2])
        monkeypatch.setattr(Deployment, "start", lambda self: (0.5, 0.0, 0.3))
    made, hands = session(tmp_path, arm, simulated=False)
    if phase is Phase.HOMING:
        made.deployment = replace(made.deployment, robot=RobotSpec("stick", "a stick", "", "base", resets=Resets.SCENE))
    arm.permit()
    until(made, Phase.BY_HAND)
    hands.next = Wish(NOWHERE, (ENTER,))
    until(made, phase)
    while not any(arm.twist):
        made.step()
    return arm, made, hands


@pytest.mark.parametrize("phase", [Phase.POLICY, Phase.HOMING])
@pytest.mark.parametrize("seconds", [0.7, 100.0])
def test_after_a_hold_that_a_person_could_notice_a_person_lets_it_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: Phase, seconds: float
) -> None:
    """As with a second publisher that ends after a while: the arm holds, whatever is sent."""
    arm, made, hands = at_a_real_arm(tmp_path, phase, monkeypatch)
    arm.state, arm.permitted, arm.twist = "HOLDING", False, NOWHERE
    end = arm.now + seconds
    while arm.now < end:
        made.step()
    assert made.phase is (Phase.STOPPED if phase is Phase.POLICY else Phase.BY_HAND)
    arm.state = "ENABLED"
    for _ in range(100):
        made.step()
        assert arm.twist == NOWHERE, "freed, and nobody has said that it may go on"
    hands.next = Wish(NOWHERE, (ENTER,))
    made.step()
    until(made, phase)
    for _ in range(100):
        made.step()
        if any(arm.twist):
            return
    raise AssertionError("Enter lets it go on")


@pytest.mark.parametrize("phase", [Phase.POLICY, Phase.HOMING])
def test_after_this_program_stood_still_a_person_lets_it_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: Phase
) -> None:
    """As with a terminal over a line that stalls: the loop stands, the arm holds, the line comes back."""
    arm, made, _ = at_a_real_arm(tmp_path, phase, monkeypatch)
    arm.pass_time(0.08)
    arm.permitted, arm.twist = False, NOWHERE
    arm.pass_time(30.0)
    for _ in range(100):
        made.step()
        assert arm.twist == NOWHERE
    assert made.phase is (Phase.STOPPED if phase is Phase.POLICY else Phase.BY_HAND)
    assert "this program stood still for 30" in made.message


def test_a_short_hold_does_not_need_a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arm, made, _ = at_a_real_arm(tmp_path, Phase.POLICY, monkeypatch)
    arm.permitted, arm.twist = False, NOWHERE
    made.step()
    made.step()
    assert made.phase is Phase.POLICY
    assert any(arm.twist)


def test_an_arm_that_is_not_put_back_goes_home_up_across_and_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arm, home = Arm(), (0.5, 0.0, 0.3)
    arm.tool = np.array([0.3, -0.25, 0.2])
    monkeypatch.setattr(Deployment, "start", lambda self: home)
    made, _ = session(tmp_path, arm)
    made.deployment = replace(made.deployment, robot=RobotSpec("stick", "a stick", "", "base", resets=Resets.SCENE))
    until(made, Phase.HOMING)
    way: list[Any] = []
    arm.after = lambda: way.append(arm.tool.copy())
    while not any(arm.twist):
        made.step()
    arm.permitted, arm.twist = False, NOWHERE  # it holds: a zero command, and on it goes
    made.step()
    assert arm.sent[-1] == NOWHERE
    until(made, Phase.RESETTING, Phase.SETTLING)
    path = np.array(way)
    assert np.linalg.norm(path[-1] - home) < 0.011
    across = path[(np.abs(path[:, 0] - 0.3) > 0.011) & (np.linalg.norm(path[:, :2] - home[:2], axis=1) > 0.011)]
    assert across[:, 2].min() > 0.4, "0.12 m above the start"
    speeds = np.linalg.norm(np.diff(path, axis=0), axis=1) / PERIOD
    assert speeds.max() <= 0.1 + 1e-6


def test_a_dry_run_commands_nothing(tmp_path: Path) -> None:
    arm = Arm()
    made, _ = session(tmp_path, arm, dry_run=True)
    arm.move = lambda twist: None  # type: ignore[method-assign]  as a node without publishers
    until(made, Phase.POLICY)
    made.step()
    assert made.twist[0] > 0.05
    assert (arm.state, arm.resets, arm.told) == ("IDLE", 0, [])
    until(made, Phase.DONE)
    assert made.tally.episodes == []


def test_a_takeover_becomes_a_demonstration_of_the_operator(tmp_path: Path) -> None:
    with fast_folder() as folder:
        arm, messages, root = Arm(), Messages(), Path(folder, "d")
        recorder = Recorder(root, Reach(), robot="panda_sim", demonstrator="p", silence_s=1e9)
        recorder.period_ns = messages.period_ns
        arm.after = lambda: feed(recorder, messages.cycle(arm.twist[:3]))
        made, hands = session(tmp_path, arm, recorder=recorder)

        def steps(n: int) -> None:
            for _ in range(n):
                made.step()
                while made.parts.busy:
                    time.sleep(0.001)

        while made.phase is not Phase.POLICY:
            steps(1)
        steps(10)
        hands.next = Wish(LEFT)
        steps(1)
        for _ in range(8):
            hands.next = Wish(LEFT)
            steps(2)
        hands.next = Wish(NOWHERE, (FAILURE,))
        while made.phase is not Phase.DONE:
            steps(1)
        made.close()
        recorder.close()
        rows = DemoDataset(root).rows
        assert [(row.demonstrator, row.outcome) for row in rows] == [("policy p", "failure"), ("anna", "failure")]
        assert [row.length >= 8 for row in rows] == [True, True]
        moved = [one.frames["action"].mean(axis=0) for one in DemoDataset(root).iterate()]
        assert moved[0][0] > 0.05
        assert abs(moved[0][1]) < 1e-6
        assert moved[1][1] > 0.02, "the operator drove to the left, and nobody else"
        assert ["takeover" in text for text in arm.told] == [False, True]


def test_the_table_counts_what_happened() -> None:
    tally = Tally([Played("success", -30.0, 3.0), Played("success", -34.0, 3.0), Played("collided", -2000.0, 2.0),
                   Played("timeout", -50.0, 6.0), Played("success", -60.0, 9.0, takeovers=2)],
                  takeovers=2, decisions=200, slowed=5)
    rows = [row.split("  ", 1) for row in tally.table()]
    found = {name: text.strip() for name, text in rows}
    assert (found["episodes"], found["collided"], found["timed out"], found["dropped"]) == ("5", "1", "1", "0")
    assert found["interventions"] == "2"
    assert found["guard"] == "0 stops, slower in 2.5% of 200 decisions"
    assert found["return"].startswith("-528.50 ± ")
    assert found["success"] == "2"
    assert found["success rate"] == "40.0%  (95% interval 11.8% … 76.9%)"
