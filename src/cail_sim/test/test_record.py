"""A person's session on the simulator: keys in a real terminal, real DDS; what was saved is in the bags and in the dataset."""

from __future__ import annotations

import csv
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from builders import fast_folder, same_dataset
from person import Window, at_terminal

pytest.importorskip("rclpy", reason="needs ROS 2's rclpy")
pytest.importorskip("pybullet", reason="needs PyBullet")
from ros_bench import own_domain

from cail_bench import recording_live as recording_live_bench
from cail_core.cli import main
from cail_core.demos.check import check
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.features import ACTION, STATE
from cail_core.recording.bag import bags_of, read_messages
from cail_core.recording.rebuild import rebuild

RECORD = [sys.executable, "-m", "cail_core.cli", "record", "--silence", "60"]  # a test machine may be very busy
PATIENCE_S = 90.0


def hold(window: Window, key: str, seconds: float) -> None:
    """A key held down: the terminal repeats it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        window.type(key)
        time.sleep(0.03)


def press(window: Window, key: str, text: str) -> str:
    window.type(key)
    return window.wait_for(text, PATIENCE_S)


def test_a_session_at_the_keyboard_is_recorded_exactly() -> None:
    with fast_folder() as folder:
        root = Path(folder, "demos")
        command = [*RECORD, "--dataset", str(root), "--demonstrator", "anna"]
        with at_terminal(command, ROS_DOMAIN_ID=own_domain(), CAIL_REALTIME="0") as window:
            window.wait_for("IDLE: connected to simulated Franka Panda", PATIENCE_S)
            press(window, "c", "ENABLED: motion is permitted")
            press(window, "Enter", "0 RECORDING")
            hold(window, "Left", 2.0)
            press(window, "s", "saved episode 0 as success")
            press(window, "Enter", "1 RECORDING")
            hold(window, "Up", 0.5)
            press(window, "BSpace", "discarded 1")
            window.wait_for("1 RECORDING", PATIENCE_S)  # begun again by itself
            hold(window, "Right", 2.0)
            seen = press(window, "f", "saved episode 1 as failure")
            assert "saved 2 (1 success, 1 failure), discarded 1, 2 in the dataset" in seen
            press(window, "r", "started")
            press(window, "Enter", "2 RECORDING")
            press(window, "q", "q again leaves without it")
            press(window, "q", "ended with 0")
            assert "2 episodes saved (1 success, 1 failure), 1 discarded" in window.screen
            assert "the open episode" in window.screen
        dataset = DemoDataset(root)
        assert check(root) == []
        assert [(row.demonstrator, row.outcome) for row in dataset.rows] == [("anna", "success"), ("anna", "failure")]
        assert [path.name for path in bags_of(root / "bags")] == ["episode-00000.mcap", "episode-00001.mcap"]
        assert len(list((root / "bags").iterdir())) == 2
        assert dataset.info["robot_type"] == "panda_sim"
        moved = [one.frames[STATE][-1, 1] - one.frames[STATE][0, 1] for one in dataset.iterate()]
        assert moved[0] > 0, "left is +y"
        assert moved[1] < 0
        for one in dataset.iterate():
            assert one.recording is not None
            assert one.recording["lost"] == 0
            assert np.abs(one.frames[ACTION][:, [0, 2]]).max() < 1e-6
        again, _ = rebuild(root, Path(folder, "again"))
        same_dataset(dataset, again)
        read_by_another(root)


@pytest.mark.parametrize("device", ["joy_topic", "spacenav_topic"])
def test_who_steers_by_a_device_under_a_launcher_can_permit_stop_and_quit(device: str) -> None:
    """A launcher's pipes for input and output; the keys come from the terminal that it was started in."""
    with fast_folder() as folder:
        record = shlex.join([*RECORD, "--dataset", str(Path(folder, "demos")), "--input", device])
        piped = ["sh", "-c", f"sleep 600 | {record} 2>&1 | cat"]
        with at_terminal(piped, ROS_DOMAIN_ID=own_domain(), CAIL_REALTIME="0") as window:
            window.wait_for("IDLE: connected to simulated Franka Panda", PATIENCE_S)
            press(window, "c", "ENABLED: motion is permitted")
            press(window, "Escape", "FAULT: stop was called")
            press(window, "c", "IDLE")
            press(window, "q", "0 episodes saved")


def read_by_another(root: Path) -> None:
    """Each bag by a reader that shares no code with the writer."""
    pytest.importorskip("rosbags", reason="needs the package rosbags, an independent reader")
    from rosbags.highlevel import AnyReader

    for row, path in zip(DemoDataset(root).rows, bags_of(root / "bags"), strict=True):
        with AnyReader([path]) as reader:
            counts = {c.topic: c.msgcount for c in reader.connections}
            poses = [reader.deserialize(data, c.msgtype) for c, _, data in reader.messages() if c.topic == "/arm/ee_pose"]
        assert counts["/arm/twist_executed"] >= 2 * row.length + 1  # 100 Hz, 50 frames a second
        assert counts["/arm/object_pose"] > 0
        assert counts["/arm/twist_cmd"] > 0
        assert {pose.header.frame_id for pose in poses} == {"panda_link0"}
        assert len([m for m in read_messages(path) if m.topic == "ee_pose"]) == len(poses)


def test_a_script_records_without_a_terminal() -> None:
    with fast_folder() as folder:
        script, root = Path(folder, "s.txt"), Path(folder, "demos")
        script.write_text("press c\nwait 2\npress enter\nhold page-down 3.0\nwait 1.0\npress s\nwait 1\n")
        done = subprocess.run(
            [*RECORD, "--dataset", str(root), "--input", "scripted", "--script", str(script), "--trim-idle", "--seed", "3"],
            env={**os.environ, "ROS_DOMAIN_ID": own_domain(), "CAIL_REALTIME": "0"}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=240, check=False, start_new_session=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        one = DemoDataset(root).episode(0)
        assert one.recording is not None
        assert one.recording["frames"] == one.length + sum(one.recording["trimmed"])
        assert one.frames[STATE][-1, 2] < one.frames[STATE][0, 2]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--task", "pointmass"], "seen through an arm's topics"),
        (["--rate", "0"], "--rate between 1 and 1000"),
        (["--rate", "49"], "divides the task's 500 ticks"),
        (["--robot", "running"], "expected --robot-type"),
        (["--input", "scripted"], "expected --script FILE"),
        (["--input", "gamepad", "--device", "/dev/input/none"], "No such file"),
        (["--robot-ip", "10.0.0.1"], "--robot-ip is for an arm with a control box"),
        (["--input", "telepathy"], "invalid choice"),
        (["--robot-config", "ur5e"], "--robot-config is for a robot with settings"),
        (["--robot", "ur5e", "--viewer", "true"], "--viewer true is for a simulator of ours"),
        (["--limits", "nowhere"], "expected a YAML file"),
        (["--params-file", "nowhere"], "give a ROS parameter file"),
    ],
)
def test_wrong_options_are_said_in_one_line(
    options: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.txt").write_text("wait 0\n")
    words = ["record", "--dataset", str(tmp_path / "demos"), *options]
    if "--input" not in options:
        words += ["--input", "scripted", "--script", str(tmp_path / "s.txt")]
    capsys.readouterr()
    try:
        code = main(words)
    except SystemExit as stop:
        code = int(stop.code or 0)
    said = capsys.readouterr().err.strip()
    assert code == 2
    assert text in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "demos").exists()


def test_a_check_starts_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script, root = tmp_path / "s.txt", tmp_path / "demos"
    script.write_text("wait 0\n")
    words = ["record", "--check", "--dataset", str(root), "--input", "scripted", "--script", str(script)]
    assert main(words) == 0
    assert "panda_sim can be recorded: task panda" in capsys.readouterr().out
    assert main([*words, "--robot", "ur5e_sim"]) == 0
    assert "task ur5e" in capsys.readouterr().out, "the robot's own"
    monkeypatch.delenv("DISPLAY", raising=False)
    assert main([*words, "--viewer", "true"]) == 2
    assert "found no DISPLAY" in capsys.readouterr().err
    assert not root.exists()
    root.mkdir()
    (root / "letter.txt").write_text("dear anna")
    assert main(words) == 2
    assert "choose another --dataset" in capsys.readouterr().err
    monkeypatch.setenv("CAIL_LAUNCH", "1")
    assert main(words) == 2
    assert "choose another dataset:=" in capsys.readouterr().err


def test_the_benchmark_by_the_clock_records_an_episode_that_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_DOMAIN_ID", own_domain())
    monkeypatch.setenv("CAIL_REALTIME", "0")
    with recording_live_bench.run("smoke", tmp_path, 0).open() as file:
        rows = list(csv.DictReader(file))
    assert [row["lost"] for row in rows] == ["0"]
    assert int(rows[0]["frames"]) > 300
    assert float(rows[0]["bag_kb"]) > 0
