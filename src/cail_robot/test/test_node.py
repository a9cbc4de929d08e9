"""The arm's node as a process of its own, over real DDS."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from ros_bench import node_process, own_domain

from cail_robot.ros.operator import Operator, wait_for
from cail_robot.ros.runtime import PROFILES, RANGE, stay_on_this_machine

own_domain()
NODE = Path(__file__).with_name("kinematic_arm.py")
FORWARD = (0.05, 0.0, 0.0, 0.0, 0.0, 0.0)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace"


@pytest.fixture
def node(trace: Path) -> Iterator[subprocess.Popen[str]]:
    with node_process(NODE, trace) as started:
        yield started


def last_twist(trace: Path) -> list[float]:
    lines = trace.read_text().splitlines()
    return [float(word) for word in lines[-1].split()[1:]] if lines and len(lines[-1].split()) == 7 else []


def test_the_contract_on_the_topics(node: subprocess.Popen[str], trace: Path) -> None:
    with Operator() as operator:
        assert operator.wait_for_state("IDLE") == "IDLE: connected to kinematic arm"
        operator.ready()
        for name in ("twist_executed", "ee_twist"):
            at_speed = lambda name=name: abs(operator.heard[name][-1].twist.linear.x - 0.05) < 1e-9  # noqa: E731
            operator.drive_until(FORWARD, at_speed, f"{name} of 0.05 m/s")
        operator.drive_until(FORWARD, lambda: operator.heard["ee_pose"][-1].pose.position.x > 0.51, "the tool to move")
        pose = operator.heard["ee_pose"][-1]
        assert pose.header.frame_id == "base"
        assert 0.51 < pose.pose.position.x < 0.8
        assert abs(pose.header.stamp.sec + pose.header.stamp.nanosec * 1e-9 - time.time()) < 5
        assert list(operator.heard["joint_states"][-1].name) == ["x", "y", "z"]

        operator.grip(0.25)
        operator.drive_until((0.0,) * 6, lambda: operator.heard["gripper_state"][-1].data == 0.25, "the gripper")

        operator.send((math.nan, 0.0, 0.0, 0.0, 0.0, 0.0))
        wait_for(lambda: operator.state() == "HOLDING: the commanded twist has a value that is not finite", "the refusal")
        wait_for(lambda: not any(last_twist(trace)), "rest")
        assert operator.call("stop").success
        assert operator.wait_for_state("FAULT") == "FAULT: stop was called"
        assert not operator.call("enable", data=True).success
        assert operator.call("clear_fault").success
        operator.wait_for_state("IDLE")
        assert not operator.call("reset").success

        array = wait_for(lambda: operator.heard["/diagnostics"] and operator.heard["/diagnostics"][-1], "diagnostics")
        values = {pair.key: pair.value for pair in array.status[0].values}
        assert {"period_p50_ms", "period_p99_ms", "period_max_ms", "overruns", "commands_refused", "link"} <= values.keys()
        assert values["link"] == "up"


def test_a_state_and_the_twist_that_led_to_it_have_one_stamp(node: subprocess.Popen[str]) -> None:
    """The kinematic arm measures exactly the twist that it executed last."""

    def by_stamp(name: str) -> dict[tuple[int, int], tuple[float, ...]]:
        found = {}
        for message in list(operator.heard[name]):
            v = message.twist.linear
            found[message.header.stamp.sec, message.header.stamp.nanosec] = v.x, v.y, v.z
        return found

    with Operator() as operator:
        operator.ready()
        operator.drive_until(FORWARD, lambda: operator.heard["ee_pose"][-1].pose.position.x > 0.51, "the tool to move")
        executed, measured = by_stamp("twist_executed"), by_stamp("ee_twist")
    shared = executed.keys() & measured.keys()
    assert len({executed[stamp] for stamp in shared}) > 5, "it gathered speed meanwhile"
    assert all(executed[stamp] == measured[stamp] for stamp in shared)


def test_late_subscribers_get_the_status(node: subprocess.Popen[str], trace: Path) -> None:
    with Operator() as first:
        first.ready()
        with Operator() as second:
            assert second.wait_for_state("ENABLED") == "ENABLED: motion is permitted"


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGINT, signal.SIGINT], [signal.SIGTERM]])
def test_a_signal_brings_the_arm_to_rest_and_ends_the_node(
    node: subprocess.Popen[str], trace: Path, signals: list[signal.Signals]
) -> None:
    with Operator() as operator:
        operator.ready()
        operator.drive_until(FORWARD, lambda: any(last_twist(trace)), "motion")
        started = time.monotonic()
        for number in signals:
            node.send_signal(number)
            time.sleep(0.005)
        while node.poll() is None and time.monotonic() - started < 5:
            operator.send(FORWARD)
            time.sleep(0.01)
        took = time.monotonic() - started
        assert node.stdout
        said = node.stdout.read()
        assert node.returncode == 0, said
        assert took < 3.0  # on a quiet machine less than 1 s: `cail bench arm-faults` measures it
        assert last_twist(trace) == [0.0] * 6
        assert "Traceback" not in said


def test_limits_are_parameters_that_change_only_while_disabled(node: subprocess.Popen[str]) -> None:
    from rcl_interfaces.srv import DescribeParameters, SetParameters
    from rclpy.parameter import Parameter

    def set_speed(value: float) -> tuple[bool, str]:
        future = setter.call_async(
            SetParameters.Request(parameters=[Parameter("max_linear_speed", value=value).to_parameter_msg()])
        )
        wait_for(future.done, "set_parameters")
        result = future.result().results[0]
        return result.successful, result.reason

    with Operator() as operator:
        setter = operator.node.create_client(SetParameters, "arm_node/set_parameters")
        describe = operator.node.create_client(DescribeParameters, "arm_node/describe_parameters")
        operator.ready()
        assert setter.wait_for_service(10)
        allowed, reason = set_speed(0.1)
        assert not allowed
        assert "disable" in reason
        operator.call("enable", data=False)
        assert set_speed(0.1) == (True, "")
        assert not set_speed(7.0)[0]
        asked = describe.call_async(DescribeParameters.Request(names=["max_linear_speed", "keep_out"]))
        wait_for(asked.done, "describe_parameters")
        speed, keep_out = asked.result().descriptors
        assert (speed.floating_point_range[0].from_value, speed.floating_point_range[0].to_value) == (0.001, 3.0)
        assert "m/s" in speed.description
        assert keep_out.description
        operator.ready()
        fastest = lambda: max(message.twist.linear.x for message in operator.heard["twist_executed"])  # noqa: E731
        operator.drive_until((0.25, 0.0, 0.0, 0.0, 0.0, 0.0), lambda: fastest() > 0.0999, "the new limit")
        assert fastest() == pytest.approx(0.1, rel=1e-3)


def sockets_of(pid: int) -> list[str]:
    """Local addresses of all IP sockets of a process, as /proc/net writes them."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = []
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
            words = line.split()
            if words[9] in inodes:
                found.append(f"{kind} {words[1]}")
    return found


def test_no_socket_on_anything_but_loopback(node: subprocess.Popen[str]) -> None:
    with Operator() as operator:
        operator.wait_for_state("IDLE")
        found = sockets_of(node.pid)
        assert found
        assert {address.split(":")[0] for address in found} == {"udp 0100007F"}, found


def test_the_users_own_choice_of_network_is_left_alone() -> None:
    chosen = {RANGE: "SUBNET"}
    stay_on_this_machine(chosen)
    assert chosen == {RANGE: "SUBNET"}
    own_profile = {PROFILES[0]: "/etc/mine.xml"}
    stay_on_this_machine(own_profile)
    assert own_profile == {PROFILES[0]: "/etc/mine.xml", RANGE: "LOCALHOST"}
    other = {"RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"}
    stay_on_this_machine(other)
    assert other[RANGE] == "LOCALHOST"
    assert not any(name in other for name in PROFILES)
    ours: dict[str, str] = {}
    stay_on_this_machine(ours)
    assert ours[RANGE] == "SYSTEM_DEFAULT"
    assert Path(ours[PROFILES[1]]).exists()
