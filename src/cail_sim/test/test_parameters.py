"""The arm's node as ROS 2 users meet it: parameters and their files, the robot's description, the clock, markers. Real DDS."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("rclpy", reason="needs ROS 2's rclpy")
pytest.importorskip("pybullet", reason="needs PyBullet")
from ros_bench import environment, node_process, own_domain, process

from cail_core.cli import main
from cail_core.config import find_config, load_config
from cail_core.errors import BadInput, ConfigError
from cail_robot.robot import find_robot
from cail_robot.ros.operator import Operator, wait_for
from cail_robot.ros.params import LIMITS, flat, limits_with, read_params_file, with_params_file
from cail_robot.ros.runtime import STATE_QOS, STATUS_QOS
from cail_robot.safety.limits import Limits

own_domain()
UP = ("-m", "cail_core.cli", "up", "sim")
NODE = "/arm/arm_node"


def refused(*words: str) -> str:
    """What `cail up sim` says when it does not start."""
    done = subprocess.run([sys.executable, *UP, *words], env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return "\n".join(line for line in done.stderr.splitlines() if not line.startswith("["))  # those are ROS's log


@pytest.fixture(scope="module")
def sim() -> Iterator[subprocess.Popen[str]]:
    given = ("-p", "max_angular_speed:=1", "-p", "keep_out:=[0.3,0.2,0.0,0.4,0.3,0.1]")
    with node_process(*UP, "--ros-args", *given) as started:
        yield started


def ask(operator: Operator, service: Any, name: str, **fields: Any) -> Any:
    client = operator.node.create_client(service, f"arm_node/{name}")
    assert client.wait_for_service(30)
    future = client.call_async(service.Request(**fields))
    wait_for(future.done, name)
    return future.result()


def test_all_parameters_come_in_one_answer(sim: subprocess.Popen[str]) -> None:
    """`ros2 param dump` asks for all of them at once; one without a value would empty the answer."""
    from rcl_interfaces.srv import GetParameters, ListParameters

    with Operator() as operator:
        names = ask(operator, ListParameters, "list_parameters").result.names
        values = ask(operator, GetParameters, "get_parameters", names=names).values
    assert {*LIMITS, "publish_rate_hz", "seed", "robot_description"} <= set(names)
    found = dict(zip(names, values, strict=True))
    assert found["max_angular_speed"].double_value == 1.0, "a whole number is a number"
    assert list(found["keep_out"].double_array_value) == [0.3, 0.2, 0.0, 0.4, 0.3, 0.1]
    assert found["joint_low"].type == 8  # an array of doubles, empty
    assert found["robot_description"].string_value.startswith("<?xml")


def test_what_cannot_change_is_read_only(sim: subprocess.Popen[str]) -> None:
    from rcl_interfaces.srv import SetParameters
    from rclpy.parameter import Parameter

    with Operator() as operator:
        for name, value in (("publish_rate_hz", 20.0), ("robot_description", "<robot/>"), ("use_sim_time", True)):
            asked = [Parameter(name, value=value).to_parameter_msg()]
            (result,) = ask(operator, SetParameters, "set_parameters", parameters=asked).results
            assert not result.successful, name
            assert result.reason


def test_the_limits_in_force_and_misspelt_ones_are_said_at_the_start() -> None:
    given = ("-p", "max_liner_speed:=0.1", "-p", "max_linear_speed:=0.2")
    with process(*UP, "--namespace", "other", "--ros-args", *given) as started:
        assert started.stdout
        said = ""
        for line in started.stdout:
            said += line
            if "IDLE" in line:
                break
    assert "limits in force: 0.2 m/s" in said
    assert "given as parameters: max_linear_speed" in said
    assert "there is no parameter max_liner_speed, so it changes nothing; did you mean max_linear_speed?" in said


def test_every_fault_of_parameters_is_listed() -> None:
    said = refused("--ros-args", "-p", "max_linear_speed:=9.0", "-p", "workspace_low:=[1.0,1.0]", "-p", "stale_after_s:=soon")
    assert "3 faults" in said
    assert "max_linear_speed: expected 0.001 … 3, given 9.0" in said
    assert "expected x, y, z each, given 2 and 3 numbers" in said
    assert "stale_after_s: expected a number, given 'soon'" in said


def test_the_clock_of_a_simulation_is_refused_in_real_time() -> None:
    assert "an arm in real time has the clock of this machine" in refused("--ros-args", "-p", "use_sim_time:=true")


def test_a_file_that_is_no_parameter_file_is_said_in_one_line(tmp_path: Path) -> None:
    said = refused("--ros-args", "--params-file", str(find_config("limits")))
    assert "ROS does not take" in said
    assert len(said.splitlines()) == 1


def test_the_installed_parameter_file_has_the_limits_of_real_arms() -> None:
    real = load_config(Limits, find_config("limits"))
    said = dict(read_params_file(find_config("limits").parent / "ros" / "limits.params.yaml", NODE))
    assert said.keys() == {name for name in LIMITS if getattr(real, name) != ()}
    assert limits_with(Limits(max_linear_speed=0.1), said) == real
    for name, value in said.items():
        assert flat(getattr(real, name)) == value
        assert "." in str(value), "ROS takes a number without a point for another type"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_linear_speed: 0.1", "found 0.1 outside of ros__parameters"),
        ("[1, 2", "not YAML"),
        ("/arm/arm_node: {ros__parameters: {max_liner_speed: 0.1}}", "did you mean max_linear_speed?"),
        ("/**: {ros__parameters: {max_linear_speed: 9.0}}", "expected 0.001 … 3, given 9.0"),
        ("arm: {arm_node: {ros__parameters: {max_linear_speed: fast}}}", "expected a number, given 'fast'"),
    ],
)
def test_a_wrong_parameter_file_is_refused_before_the_node_starts(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    with pytest.raises((BadInput, ConfigError), match=words.replace("?", r"\?")):
        with_params_file(Limits(), str(file), NODE)


def test_a_parameter_file_says_something_to_the_nodes_that_it_names(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("/**: {ros__parameters: {max_linear_speed: 0.2, of_another_node: 1}}\n"
                    "/*/arm_node: {ros__parameters: {stale_after_s: 0.1}}\n"
                    "/right/arm_node: {ros__parameters: {max_linear_speed: 0.1}}\n")  # fmt: skip
    left, right = (with_params_file(Limits(), str(file), f"/{side}/arm_node") for side in ("left", "right"))
    assert (left.max_linear_speed, right.max_linear_speed) == (0.2, 0.1)
    assert left.stale_after_s == right.stale_after_s == 0.1


def test_the_description_names_every_joint_that_is_measured(sim: subprocess.Popen[str]) -> None:
    from std_msgs.msg import String

    with Operator() as operator:
        heard: list[Any] = []
        operator.node.create_subscription(String, "robot_description", heard.append, STATUS_QOS)
        wait_for(lambda: heard and operator.heard["joint_states"], "robot_description and joint_states")
        measured, pose = operator.heard["joint_states"][-1], operator.heard["ee_pose"][-1]
    robot = ElementTree.fromstring(heard[0].data)
    moving = {joint.get("name") for joint in robot.iterfind("joint") if joint.get("type") != "fixed"}
    assert set(measured.name) == moving
    assert len(measured.name) == len(measured.position) == len(measured.velocity) == 9
    assert measured.position[-1] == pytest.approx(0.04, abs=0.002), "the open hand's finger"
    assert pose.header.frame_id in {link.get("name") for link in robot.iterfind("link")}
    for mesh in robot.iter("mesh"):
        assert Path((mesh.get("filename") or "").removeprefix("file://")).is_file()


def test_the_description_is_printed_where_no_node_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for arm, name in (("sim", "panda"), ("ur5e", "ur5e"), ("ur5e-sim", "ur5e")):
        assert main(["up", arm, "--description"]) == 0
        assert ElementTree.fromstring(capsys.readouterr().out).get("name") == name


def test_the_ur5e_is_described_too() -> None:
    from cail_robot.robots.ur5e.arm import UR5eArm

    robot = ElementTree.fromstring(find_robot("ur5e").load().description())
    moving = [joint.get("name") for joint in robot.iterfind("joint") if joint.get("type") != "fixed"]
    assert moving == [*UR5eArm.joint_names, *UR5eArm.finger_joints]
    assert UR5eArm.base_frame in {link.get("name") for link in robot.iterfind("link")}


def test_the_scene_is_drawn_where_its_things_are(sim: subprocess.Popen[str]) -> None:
    from geometry_msgs.msg import PoseStamped
    from visualization_msgs.msg import MarkerArray

    program = "import sys; from cail_sim.robots.scene import main; sys.exit(main())"
    with Operator() as operator, process("-c", program) as scene:
        drawn: list[Any] = []
        bottle: list[Any] = []
        operator.node.create_subscription(MarkerArray, "scene", drawn.append, STATE_QOS)
        operator.node.create_subscription(PoseStamped, "object_pose", bottle.append, STATE_QOS)
        wait_for(lambda: bottle and drawn and len(drawn[-1].markers) == 5, "all markers")
        found = {(marker.ns, marker.id): marker for marker in drawn[-1].markers}
        assert scene.poll() is None
        scene.terminate()
        assert scene.wait() == 0
    at, body = bottle[-1].pose.position, found["bottle", 0]
    assert body.header.frame_id == "panda_link0"
    assert (body.pose.position.x, body.pose.position.y) == pytest.approx((at.x, at.y), abs=0.002)
    assert body.pose.position.z == pytest.approx(at.z + body.scale.z / 2, abs=0.002), "the pose is that of the base"
    assert {name for name, _ in found} == {"table", "bottle", "obstacle", "platform"}
