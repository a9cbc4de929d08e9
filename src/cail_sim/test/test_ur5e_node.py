"""`cail up ur5e-sim` as a process: the UR5e's node, its control box, over real DDS and real sockets."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("rtde_control")
pytest.importorskip("pybullet")

from ros_bench import node_process, own_domain

from cail_robot.ros.operator import Operator, wait_for
from cail_sim.ursim.process import free_host
from cail_sim.ursim.server import Ports

own_domain()
LEFT = (0.0, 0.05, 0.0, 0.0, 0.0, 0.0)
PATIENT = "watchdog_hz: 8.0\ncommand_timeout_s: 0.3\nlink_timeout_s: 0.3\n"
"""A test machine may be busy."""


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def test_the_simulated_ur5e_moves_over_the_topics_and_leaves_nothing_behind(tmp_path: Path) -> None:
    host, config = free_host(), tmp_path / "patient.yaml"
    config.write_text(PATIENT)
    up = ("-m", "cail_core.cli", "up", "ur5e-sim", "--host", host, "--config", config)
    with node_process(*up) as node, Operator(clear_faults=True) as operator:
        operator.ready()
        start = operator.heard["ee_pose"][-1].pose.position.y
        moved = lambda: operator.heard["ee_pose"][-1].pose.position.y > start + 0.01  # noqa: E731
        operator.drive_until(LEFT, moved, "the tool to move")
        wait_for(lambda: operator.node.count_publishers("object_pose"), "the table's things")
        children = descendants(node.pid)
        assert len(children) >= 2, "the control box and the RTDE loop"
        node.send_signal(signal.SIGINT)
        assert node.wait(20) == 0
        assert node.stdout
        said = node.stdout.read()
        assert "IDLE: the node ends" in said
        assert "Traceback" not in said
    wait_for(lambda: not [pid for pid in children if os.path.exists(f"/proc/{pid}")], "the end of its processes", 5.0)
    for port in vars(Ports()).values():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
