"""How a person's end of it ends the motion: keys, closed terminals and signals, through a terminal and over real DDS."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from person import at_terminal

pytest.importorskip("rclpy", reason="needs ROS 2's rclpy")
from deploy_bench import DEPLOY, PATIENCE_S, drives, executed, said, scene, settings, until_said, with_policy
from ros_bench import environment, node_process, own_domain, process

from cail_robot.ros.operator import Operator, wait_for

HERE = Path(__file__).parent
own_domain()


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with with_policy(monkeypatch) as made:
        yield made


@contextmanager
def deployed(folder: Path, *words: object) -> Iterator[tuple[Operator, Any]]:
    """A policy that drives, and the person's terminal."""
    command = [sys.executable, *DEPLOY, "--policy", folder / "p", "--episodes", 3, "--max-speed", 0.02, *settings(folder), *words]
    given = {name: os.environ[name] for name in ("ROS_DOMAIN_ID", "PYTHONPATH")}
    with scene() as (operator, _, _), at_terminal(list(map(str, command)), (100, 30), CAIL_REALTIME="0", **given) as window:
        window.wait_for("policy p commands", PATIENCE_S)
        drives(operator)
        yield operator, window


@pytest.mark.parametrize("key", ["C-c", "C-z", "C-\\", "C-x"])
def test_a_control_key_ends_the_deployment_with_a_latched_stop(folder: Path, key: str) -> None:
    with deployed(folder) as (operator, window):
        window.type(key)
        window.wait_for("ended with 130", PATIENCE_S)
        assert operator.wait_for_state("FAULT") == "FAULT: stop was called"
        wait_for(lambda: executed(operator) == (0.0, 0.0), "rest")


def test_a_closed_terminal_ends_the_deployment_with_a_latched_stop(folder: Path) -> None:
    with deployed(folder) as (operator, window):
        window.close()
        assert operator.wait_for_state("FAULT") == "FAULT: stop was called"
        wait_for(lambda: executed(operator) == (0.0, 0.0), "rest")


def test_a_deployment_that_was_left_leaves_no_permission_to_move(folder: Path) -> None:
    with deployed(folder) as (operator, window):
        window.type("q")
        window.wait_for("ended with 0", PATIENCE_S)
        assert operator.wait_for_state("IDLE") == "IDLE: motion was disabled"


@pytest.mark.parametrize(("key", "state"), [("q", "IDLE: motion was disabled"), ("C-c", "FAULT: stop was called")])
def test_a_recording_that_was_left_leaves_no_permission_to_move(folder: Path, key: str, state: str) -> None:
    command = [sys.executable, "-m", "cail_core.cli", "record", "--robot", "running", "--robot-type", "panda_sim",
               "--task", "reach", "--dataset", folder / "demos"]  # fmt: skip
    given = {name: os.environ[name] for name in ("ROS_DOMAIN_ID", "PYTHONPATH")}
    with scene() as (operator, _, _), at_terminal(list(map(str, command)), (100, 30), CAIL_REALTIME="0", **given) as window:
        window.wait_for("IDLE", PATIENCE_S)
        window.type("c")
        operator.wait_for_state("ENABLED: motion is permitted")
        window.type(key)
        window.wait_for("ended with 0", PATIENCE_S)
        assert operator.wait_for_state(state.split(":")[0]) == state


def test_a_killed_commander_s_permission_ends(tmp_path: Path) -> None:
    with node_process(HERE / "kinematic_arm.py", tmp_path / "trace", "--ros-args", "-p", "disable_after_s:=1.0"), \
            Operator() as operator:  # fmt: skip
        operator.ready()
        assert operator.wait_for_state("IDLE") == "IDLE: motion was disabled: no command for 1 s"


def test_a_second_arm_of_the_same_name_does_not_start(folder: Path, tmp_path: Path) -> None:
    """The real arm is there first; a rehearsal in another terminal must not reach it."""
    with node_process(HERE / "kinematic_arm.py", tmp_path / "trace", "--real") as real, Operator() as operator:
        wait_for(lambda: operator.state().startswith("IDLE"), "the real arm")
        with process(HERE / "kinematic_arm.py", tmp_path / "trace2") as second:
            text = said(second)
        assert second.returncode == 2, text
        assert "expected no other arm on /arm, found a real arm, 'kinematic arm' (IDLE: connected to kinematic arm)" in text
        assert real.poll() is None
        assert operator.state().startswith("IDLE"), "the one that was there is not disturbed"


def test_two_arms_that_meet_later_stop_both(tmp_path: Path) -> None:
    """As where two networks join: neither could see the other when it started."""
    with node_process(HERE / "kinematic_arm.py", tmp_path / "trace", "--real"), Operator() as operator:
        operator.ready()
        with node_process(HERE / "kinematic_arm.py", tmp_path / "trace2", "--unaware"):
            text = operator.wait_for_state("FAULT")
            assert "another arm is on /arm" in text
            for _ in range(50):  # either of the two may answer, and the one that came last may not have heard of the other yet
                operator.call("clear_fault")
                answer = operator.call("enable", data=True)
                if not answer.success:
                    break
                time.sleep(0.1)
            assert not answer.success
            assert "another arm is on /arm" in answer.message


def test_a_real_arm_is_not_driven_as_a_simulated_one(folder: Path, tmp_path: Path) -> None:
    """One forgotten word of a copied line: --robot-type of a simulator, nobody at the input, and the arm is a real one."""
    with node_process(HERE / "kinematic_arm.py", tmp_path / "trace", "--real"), Operator() as operator:
        with process(*DEPLOY, "--policy", folder / "p", "--input", "none", *settings(folder)) as deploy:
            text = said(deploy)
        assert deploy.returncode == 2, text
        assert "expected a simulated arm on /arm, found a real one" in text
        assert operator.state().startswith("IDLE"), "nobody asked for motion"


def test_sighup_stops_too_where_there_is_no_screen(folder: Path) -> None:
    with scene() as (operator, _, _), process(*DEPLOY, "--policy", folder / "p", "--input", "none", "--max-speed", 0.02,
                                              *settings(folder)) as deploy:  # fmt: skip
        drives(operator)
        deploy.send_signal(signal.SIGHUP)
        text = said(deploy)
        assert deploy.returncode == 128 + signal.SIGHUP, text
        assert operator.wait_for_state("FAULT") == "FAULT: stop was called"


def test_what_acts_is_said_at_the_start(tmp_path: Path) -> None:
    """The lab's own file by every way to start the arm: cail record and cail deploy (docs/ur5e.md)."""
    file = tmp_path / "my.yaml"
    file.write_text("tool_offset: [0.0, 0.0, 0.2, 0.0, 0.0, 0.0]\npayload_kg: 1.5\nlimits: {max_linear_speed: 0.1}\n")
    script = tmp_path / "s.txt"
    script.write_text("wait 0.1\npress q\n")
    command = [sys.executable, "-m", "cail_core.cli", "record", "--robot", "ur5e",
               "--robot-ip", "127.77.1.1", "--robot-config", str(file), "--input", "scripted", "--script", str(script),
               "--dataset", str(tmp_path / "d")]  # fmt: skip
    started = subprocess.Popen(command, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert started.stdout
    heard = ""
    for line in started.stdout:
        heard += line
        if "limits in force" in line:
            break
    started.terminate()
    heard += started.communicate(timeout=PATIENCE_S)[0]
    assert f"settings {file}: tool 0, 0, 0.2 m from the flange, 1.5 kg, gripper robotiq, box 127.77.1.1" in heard, heard
    assert "limits in force: 0.1 m/s" in heard, heard


def test_a_tracker_in_another_frame_moves_nothing_and_one_with_sensor_qos_is_heard(folder: Path) -> None:
    """UR's `base` and ROS's `base_link` differ by half a turn: poses taken as they are would lead to the mirrored place."""
    from geometry_msgs.msg import PoseStamped
    from rclpy.qos import qos_profile_sensor_data

    with node_process(HERE / "reach_policy.py"), Operator() as operator:
        publisher = operator.node.create_publisher(PoseStamped, "target_pose", qos_profile_sensor_data)
        frame = ["base_link"]

        def say() -> None:
            message = PoseStamped()
            message.header.stamp, message.header.frame_id = operator.node.get_clock().now().to_msg(), frame[0]
            message.pose.position.x, message.pose.position.y, message.pose.position.z = 0.6, 0.0, 0.3
            message.pose.orientation.w = 1.0
            publisher.publish(message)

        timer = operator.node.create_timer(0.02, say)
        with process(*DEPLOY, "--policy", folder / "p", "--input", "none", "--max-speed", 0.02, "--episodes", 1,
                     *settings(folder)) as deploy:  # fmt: skip
            until_said(deploy, "target_pose is in frame 'base_link', expected 'base'")
            assert executed(operator) == (0.0, 0.0)
            frame[0] = "base"
            drives(operator)
            frame[0] = "camera_color_optical_frame"
            until_said(deploy, "no command: target_pose is in frame 'camera_color_optical_frame', expected 'base'")
            wait_for(lambda: executed(operator) == (0.0, 0.0), "rest")
        operator.node.destroy_timer(timer)


def test_two_commanders_are_noticed_where_the_middleware_numbers_nothing(tmp_path: Path) -> None:
    with node_process(HERE / "kinematic_arm.py", tmp_path / "trace", "--unnumbered"), Operator() as operator:
        operator.ready()
        with Operator() as second:
            wait_for(lambda: second.heard["ee_pose"], "the arm")
            operator.send()
            text = operator.wait_for_state("HOLDING")
            assert "two publishers of commands are there" in text


def test_a_real_arm_s_states_are_logged_with_what_it_went_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with node_process(HERE / "kinematic_arm.py", tmp_path / "trace", "--real"), Operator() as operator:
        operator.ready()
        operator.call("stop")
        operator.wait_for_state("FAULT")
    lines = [json.loads(line) for line in (tmp_path / "cail" / "safety-events.jsonl").read_text().splitlines()]
    assert [line["state"] for line in lines][-1] == "FAULT"
    assert lines[-1]["reason"] == "stop was called"
    assert all(len(line["limits"]) == len(line["code"]) == 16 and line["arm"] == "kinematic arm" for line in lines)
