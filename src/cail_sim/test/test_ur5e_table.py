"""The UR5e on the PyBullet table: in process as task `ur5e`, and behind the control box."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from boxes import RunningBox, running_box

from cail_core.tasks import get_task
from cail_core.tasks.pick_place_avoid import Outcome
from cail_robot.robots.ur5e import kinematics as ur
from cail_robot.robots.ur5e.config import GripperConfig
from cail_robot.robots.ur5e.gripper import Robotiq

pytest.importorskip("pybullet")


def test_the_urdf_has_the_kinematics_of_the_published_parameters():
    from cail_sim.bullet.engine import data_file, load_pybullet
    from cail_sim.tasks.ur5e import TOOL_OFFSET, UR5E

    p = load_pybullet()
    client = p.connect(p.DIRECT)
    body = p.loadURDF(data_file(UR5E.urdf), useFixedBase=True, physicsClientId=client)
    for q in np.random.default_rng(0).uniform(-math.pi, math.pi, (20, 6)):
        for joint, angle in zip(UR5E.joints, q, strict=True):
            p.resetJointState(body, joint, angle, physicsClientId=client)
        link = p.getLinkState(body, UR5E.tool_link, computeForwardKinematics=True, physicsClientId=client)
        frame = ur.forward(q, TOOL_OFFSET)
        assert np.allclose(link[4], frame.origin, atol=1e-6)
        assert np.allclose(p.getMatrixFromQuaternion(link[5]), frame.rotation, atol=1e-6)
    p.disconnect(client)


def test_the_best_script_succeeds_with_the_ur5e():
    task = get_task("ur5e")
    assert (task.spec.name, task.spec.robot_type) == ("ur5e", "ur5e_pybullet")
    env = task.one()  # type: ignore[attr-defined]
    best = task.demonstrators()["best"]  # type: ignore[attr-defined]
    for seed in range(3):
        env.start(np.random.default_rng((9, seed)))
        policy, outcome = best.start(np.random.default_rng(seed)), None
        while outcome is None:
            _, outcome = env.decide([float(a) for a in policy(np.array(env.observe(), np.float32))])
        assert outcome is Outcome.SUCCESS
    env.close()


def test_ur_rtde_picks_up_the_bottle_and_a_collision_stops_the_arm():
    rtde_control = pytest.importorskip("rtde_control")
    with running_box("--table", "--seed", "3") as box:
        control = rtde_control.RTDEControlInterface(box.host)
        gripper = Robotiq(box.host, GripperConfig())
        control.setTcp([0.0, 0.0, 0.16, 0.0, 0.0, 0.0])

        def go(x: float, y: float, z: float, speed: float = 0.4) -> bool:
            return bool(control.moveL([x, y, z, math.pi, 0.0, 0.0], speed, 1.5))

        x, y, _ = _things(box)["object"][:3]
        assert go(x, y, 0.22)
        assert go(x, y, 0.135)
        gripper.move(0.0)
        end = time.monotonic() + 5.0
        while gripper._get("OBJ") != 2:  # something is between the fingers
            assert time.monotonic() < end
            time.sleep(0.02)
        assert gripper.opening() == pytest.approx(0.4, abs=0.03)  # the neck has 32 of 80 mm
        assert go(x, y, 0.235)
        assert _things(box)["object"][2] == pytest.approx(0.1, abs=0.01)
        assert go(x, y, 0.137)
        gripper.move(1.0)
        time.sleep(0.7)
        assert go(x, y, 0.25)
        assert _things(box)["object"][2] == pytest.approx(0.0, abs=0.002)
        box_x, box_y, _ = _things(box)["obstacle"][:3]
        assert go(box_x, box_y + 0.15, 0.12)
        assert not go(box_x, box_y, 0.12)
        status = box.wait_for(safety="PROTECTIVE_STOP", moving=False)
        assert "runs into the obstacle" in str(status["said"])
        gripper.close()
        control.disconnect()


def _things(box: RunningBox) -> dict[str, list[float]]:
    return box.fault("status")["things"]  # type: ignore[no-any-return]
