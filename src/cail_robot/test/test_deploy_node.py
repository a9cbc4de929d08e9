"""Deployments as processes over real DDS, on an arm that moves as told; a tracker in this process shows the target."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from person import at_terminal
from reach_policy import START

pytest.importorskip("rclpy", reason="needs ROS 2's rclpy")
from deploy_bench import DEPLOY, PATIENCE_S, drives, executed, said, scene, settings, until_said, with_policy
from ros_bench import own_domain, process

from cail_core.demos.check import check
from cail_core.demos.dataset import DemoDataset
from cail_core.recording.bag import bags_of, read_messages
from cail_robot.ros.operator import wait_for

own_domain()


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with with_policy(monkeypatch) as made:
        yield made


def test_an_episode_is_played_recorded_and_counted(folder: Path) -> None:
    with scene(), process(*DEPLOY, "--policy", folder / "p", "--input", "none", "--episodes", 2, "--max-speed", 0.25, "--record",
                          "--dataset", folder / "d", *settings(folder)) as deploy:  # fmt: skip
        text = said(deploy)
    assert deploy.returncode == 0, text
    assert "\nepisodes 2\n" in text
    assert "100.0% (95% interval 34.2% … 100.0%)" in text, text
    assert "runs at 0.25 m/s, trained at 0.5" in text
    dataset = DemoDataset(folder / "d")
    assert check(folder / "d") == []
    assert [(row.demonstrator, row.outcome) for row in dataset.rows] == [("policy p", "success")] * 2
    bags = bags_of(folder / "d" / "bags")
    assert len(bags) == 2
    assert any(message.topic == "twist_cmd" for message in read_messages(bags[0]))


def test_a_stale_input_the_guard_and_a_signal_stop_the_policy(folder: Path) -> None:
    command = (*DEPLOY, "--policy", folder / "p", "--input", "none", "--episodes", 3, "--max-speed", 0.02, "--record",
               "--dataset", folder / "d", *settings(folder, things_max_age_s=2.0))  # fmt: skip
    with scene() as (operator, tracker, _), process(*command) as deploy:
        drives(operator)
        tracker.on = False
        until_said(deploy, "no command: target_pose is 2.")
        until_said(deploy, "stopped | 1 of 3 | no command: target_pose is")
        wait_for(lambda: executed(operator) == (0.0, 0.0), "rest")
        tracker.target, tracker.on = (START[0], START[1] + 0.7, START[2]), True
        until_said(deploy, "the guard stopped the policy")
        tracker.target = (START[0] + 0.1, START[1], START[2])
        until_said(deploy, "the policy commands | 3 of 3")
        drives(operator)
        deploy.send_signal(signal.SIGINT)
        text = said(deploy)
        assert deploy.returncode == 128 + signal.SIGINT, text
        assert "ended by SIGINT; the arm was stopped (clear_fault lets it move again), what was saved is intact" in text
        assert "other failures 1" in text
        assert "interrupted 1" in text
        assert "guard 1 stops" in text
        wait_for(lambda: executed(operator) == (0.0, 0.0), "rest")
    rows = DemoDataset(folder / "d").rows
    found = [(row.outcome, (row.recording or {})["why"].split(" is ")[0]) for row in rows]
    assert found[0] == ("interrupted", "no command: target_pose")
    assert {outcome for outcome, _ in found[1:]} <= {"failure"}, "one that the guard stopped before its first frame is not kept"
    assert len(list((folder / "d" / "bags").iterdir())) == len(rows), "nothing is left of the open episode"


def test_the_arm_stops_when_the_deployment_is_killed_and_the_deployment_ends_when_the_arm_is(folder: Path) -> None:
    command = (*DEPLOY, "--policy", folder / "p", "--input", "none", "--max-speed", 0.02, *settings(folder, lost_after_s=2.0))
    with scene() as (operator, _, arm):
        with process(*command) as deploy:
            drives(operator)
            deploy.kill()
            operator.wait_for_state("HOLDING: no command for 0.08 s")
            wait_for(lambda: executed(operator) == (0.0, 0.0), "rest")
        with process(*command) as deploy:
            drives(operator)
            arm.kill()
            text = said(deploy)
            assert deploy.returncode == 1, text
            assert "the arm's node has been silent" in text


def test_touching_the_keyboard_takes_over(folder: Path) -> None:
    command = [sys.executable, *DEPLOY, "--policy", folder / "p", "--episodes", 1, "--max-speed", 0.02, "--operator", "anna",
               "--record", "--dataset", folder / "d", *settings(folder)]  # fmt: skip
    environment = {name: os.environ[name] for name in ("ROS_DOMAIN_ID", "PYTHONPATH")}
    with scene() as (operator, _, _), at_terminal(list(map(str, command)), (100, 30), **environment) as window:
        window.wait_for("policy p commands", PATIENCE_S)
        drives(operator)
        window.type("Left")
        wait_for(lambda: executed(operator)[1] > 0.03, "the operator's twist", PATIENCE_S)
        window.wait_for("anna commands", PATIENCE_S)
        wait_for(lambda: executed(operator) == (0.0, 0.0), "the key to be let go")
        heard = operator.node.get_clock().now()
        wait_for(lambda: (operator.node.get_clock().now() - heard).nanoseconds > 3e8, "some periods")
        assert executed(operator) == (0.0, 0.0), "the policy keeps still"
        window.type("s")
        window.wait_for("ended with 0", PATIENCE_S)
        assert "1, of which 1 then succeeded" in window.screen
    rows = DemoDataset(folder / "d").rows
    assert [(row.demonstrator, row.outcome) for row in rows] == [("policy p", "failure"), ("anna", "success")]


def test_a_dry_run_shows_what_it_would_command_and_can_publish_nothing(folder: Path) -> None:
    with scene() as (operator, _, _), process(*DEPLOY, "--policy", folder / "p", "--input", "none", "--dry-run",
                                              *settings(folder)) as deploy:
        assert deploy.stdout
        line = next(text for text in deploy.stdout if "would command vx +0.1" in text)
        assert "guard" not in line
        topics = ("/arm/twist_cmd", "/arm/gripper_cmd")
        commanders = {info.node_name for topic in topics for info in operator.node.get_publishers_info_by_topic(topic)}
        assert commanders == {"operator"}
        assert operator.state().startswith("IDLE"), "nobody asked for motion"
        deploy.send_signal(signal.SIGTERM)
        said(deploy)
        assert deploy.returncode == 128 + signal.SIGTERM
