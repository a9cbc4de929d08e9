"""PyBullet's window where there is no display, and beside a real-time loop. No display is needed here; none is opened."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

pytest.importorskip("rclpy", reason="needs ROS 2's rclpy")
pytest.importorskip("pybullet", reason="needs PyBullet")
from ros_bench import environment

from cail_sim.bullet.window import ordinary_scheduling


@pytest.mark.parametrize("arm", ["sim", "ur5e-sim"])
@pytest.mark.parametrize(("display", "found"), [(None, "found no DISPLAY"), (":471", "DISPLAY=:471, where no X server answers")])
def test_a_window_without_a_display_is_refused_in_one_line(arm: str, display: str | None, found: str) -> None:
    """PyBullet would end the process without a word."""
    if arm == "ur5e-sim":
        pytest.importorskip("rtde_control", reason="needs ur_rtde")
    env = {name: value for name, value in environment().items() if name != "DISPLAY"} | ({"DISPLAY": display} if display else {})
    done = subprocess.run([sys.executable, "-m", "cail_core.cli", "up", arm, "--window"], env=env, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    (said,) = [line for line in done.stderr.splitlines() if not line.startswith("[INFO]")]
    assert found in said
    assert "leave out --window" in said


def test_threads_that_draw_are_ordinary_beside_a_real_time_loop() -> None:
    seen: list[int] = []

    def loop() -> None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        with ordinary_scheduling():
            drawing = threading.Thread(target=lambda: seen.append(os.sched_getscheduler(0)))
            drawing.start()
            drawing.join()
        seen.append(os.sched_getscheduler(0))

    before = os.sched_getscheduler(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    except OSError:
        pytest.skip("real-time scheduling is not permitted here")
    finally:
        os.sched_setscheduler(0, before, os.sched_param(0))
    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
    assert seen == [os.SCHED_OTHER, os.SCHED_FIFO]
