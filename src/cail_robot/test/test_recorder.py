"""Recording without ROS: what was saved is there, in the bag and in the dataset, whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from reach import FULL_SPEED, Messages, Reach, bytes_of, feed, opened, record

from cail_core.demos.check import check
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.features import ACTION, DONE, REQUESTED, REWARD, STATE, SUCCESS, TRUNCATED
from cail_core.errors import BadInput, DatasetError, StorageFull
from cail_core.recording.bag import bags_of, read_messages
from cail_core.recording.episode_builder import Timing, recordable
from cail_robot.recording.recorder import Recorder, RecordingRefused

HERE = Path(__file__).parent


def test_an_episode_is_in_the_bag_and_in_the_dataset_as_it_was(folder: Path) -> None:
    recorder = opened(folder / "demos")
    messages = Messages(1)
    for _ in range(15):
        feed(recorder, messages.cycle())
    assert recorder.start() == 0
    tools, twists = [], []
    for i in range(11):
        twists.append([0.01 * i, 0.0, -0.1])
        feed(recorder, messages.cycle(twists[-1]))
        tools.append(list(messages.tool))
    saved = recorder.save("failure")
    recorder.close()
    assert (saved.episode, saved.frames, saved.outcome) == (0, 10, "failure"), "the first moment is the state to begin with"

    dataset = DemoDataset(folder / "demos")
    one = dataset.episode(0)
    offsets = np.array(messages.target) - np.array(tools)
    assert np.allclose(one.frames[STATE][:, :3], offsets[:10], atol=1e-6)
    assert np.allclose(one.final_state[:3], offsets[10], atol=1e-6)
    assert np.allclose(one.frames[ACTION], np.array(twists[1:]) / FULL_SPEED, atol=1e-6)
    assert np.allclose(one.frames[REQUESTED], 1.5 * np.array(twists[1:]) / FULL_SPEED, atol=1e-6)
    assert np.allclose(one.frames[REWARD], -np.linalg.norm(offsets[1:], axis=1), atol=1e-6)
    assert one.frames[DONE].tolist() == [False] * 9 + [True]
    assert one.frames[TRUNCATED][-1], "the person, not the task, ended it"
    assert not one.frames[SUCCESS].any()
    assert one.recording == {
        "bag": "episode-00000", "frames": 10, "trimmed": [0, 0], "after_end": 0, "late": 0, "lost": 0,
        "task_outcome": None,
    }  # fmt: skip
    assert dataset.info["robot_type"] == "stick"
    assert check(folder / "demos") == []


def test_how_a_deployment_ended_is_told_once_and_stands(folder: Path) -> None:
    """Its session has judged already; the recorder has its frames, and no verdict of its own that it could differ by."""
    recorder, messages = opened(folder / "demos"), Messages(0)
    assert recorder.reached_ns == 0
    record(recorder, messages, 10, outcome="collided")
    for _ in range(15):
        feed(recorder, messages.cycle())
    recorder.start()
    for _ in range(4):
        feed(recorder, messages.cycle())
    assert recorder.reached_ns == messages.now_ns - messages.period_ns, "the newest period is complete with the next"
    recorder.discard()
    recorder.close()
    one = DemoDataset(folder / "demos").episode(0)
    assert one.outcome == "collided"
    assert one.terminated
    assert one.recording is not None
    assert one.recording["task_outcome"] is None


def test_the_task_ends_an_episode_before_the_person_does(folder: Path) -> None:
    recorder = opened(folder / "demos")
    messages = Messages(0)
    far = float(np.linalg.norm(np.array(messages.target) - np.array(messages.tool)))
    needed = int(np.ceil((far - 0.01) / (0.1 * 0.02))) - 1  # the first period leads to the state to begin with
    saved = record(recorder, messages, needed + 30)
    recorder.close()
    one = DemoDataset(folder / "demos").episode(0)
    assert saved.frames == one.length == needed
    assert one.recording is not None
    assert one.recording["after_end"] == 29, "kept in the bag alone"
    assert one.recording["task_outcome"] == one.outcome == "success"
    assert one.terminated
    assert one.frames[SUCCESS].tolist() == [False] * (needed - 1) + [True]
    executed = [m for m in read_messages(saved.bag) if m.topic == "twist_executed"]
    assert len(executed) == needed + 30


def test_discarded_episodes_leave_nothing_and_numbers_go_on(folder: Path) -> None:
    recorder = opened(folder / "demos")
    messages = Messages(2)
    record(recorder, messages, 5)
    recorder.start()
    feed(recorder, messages.cycle())
    recorder.discard()
    record(recorder, messages, 6, "failure")
    assert (recorder.discarded, recorder.outcomes) == (1, {"success": 1, "failure": 1})
    with pytest.raises(RecordingRefused, match="no episode"):
        recorder.save("success")
    with pytest.raises(RecordingRefused, match="no episode"):
        recorder.discard()
    recorder.close()
    assert [p.name for p in bags_of(folder / "demos/bags")] == ["episode-00000.mcap", "episode-00001.mcap"]
    assert len(list((folder / "demos/bags").iterdir())) == 2


def test_an_episode_without_frames_is_not_saved_and_stays_open(folder: Path) -> None:
    recorder = opened(folder / "demos")
    messages = Messages(0)
    for _ in range(15):
        feed(recorder, messages.cycle())
    recorder.start()
    with pytest.raises(DatasetError, match="no frames"):
        recorder.save("success")
    for _ in range(3):
        feed(recorder, messages.cycle())
    recorder.save("success")
    recorder.close()


def test_messages_still_under_way_when_the_episode_begins_are_not_part_of_it(folder: Path) -> None:
    recorder = opened(folder / "demos")
    messages = Messages(0)
    for _ in range(15):
        feed(recorder, messages.cycle())
    recorder.start()
    for message in messages.cycle((0.3, 0.0, 0.0)):
        recorder.hear(message, sent_ns=1)  # long ago
    for _ in range(3):
        feed(recorder, messages.cycle((0.0, 0.1, 0.0)))
    assert recorder.save("failure").frames == 2
    recorder.close()
    assert not DemoDataset(folder / "demos").episode(0).frames[ACTION][:, 0].any()


def test_faster_arms_are_averaged_down_to_the_rate(folder: Path) -> None:
    recorder = opened(folder / "demos", rate=50)
    messages = Messages(0, hz=200)
    for _ in range(15):
        feed(recorder, messages.cycle())
    recorder.start()
    for i in range(9):
        feed(recorder, messages.cycle((0.1 * (i % 4), 0.0, 0.0)))
    assert recorder.save("failure").frames == 2
    recorder.close()
    one = DemoDataset(folder / "demos").episode(0)
    assert np.allclose(one.frames[ACTION][:, 0], (0 + 0.1 + 0.2 + 0.3) / 4 / FULL_SPEED, atol=1e-6)
    assert Timing.of(50, 2_000_000) == Timing(50, 10, 2_000_000)
    with pytest.raises(BadInput, match="divides the arm's 100 Hz, given 70"):
        Timing.of(70, 10_000_000)


def test_a_lost_message_is_counted(folder: Path) -> None:
    recorder = opened(folder / "demos")
    messages = Messages(0)
    for _ in range(15):
        feed(recorder, messages.cycle())
    recorder.start()
    for i in range(10):
        feed(recorder, messages.cycle(without=("twist_executed",) if i in (4, 5) else ()))
    recorder.save("success")
    recorder.close()
    one = DemoDataset(folder / "demos").episode(0)
    assert one.recording is not None
    assert (one.length, one.recording["late"], one.recording["lost"]) == (7, 1, 2)


def test_resuming_checks_that_everything_fits_and_lists_what_does_not(folder: Path) -> None:
    root = folder / "demos"
    recorder = opened(root)
    record(recorder, Messages(0), 5)
    with pytest.raises(DatasetError, match="being written by another process"):
        opened(root)
    recorder.close()
    before = bytes_of(root)
    other = Reach()
    other.spec = type(other.spec)(**{**vars(other.spec), "name": "push", "observation_names": ("dx", "dy")})
    with pytest.raises(BadInput) as fault:
        Recorder(root, other, robot="ur5e", demonstrator="ben", rate=25)
    for part in ("4 faults", "task: it has reach, this recording has push", "robot: it has stick", "rate: it has 50", STATE):
        assert part in str(fault.value)
    assert bytes_of(root) == before
    recorder = opened(root, demonstrator="ben")
    record(recorder, Messages(1), 5)
    recorder.close()
    assert [row.demonstrator for row in DemoDataset(root).rows] == ["anna", "ben"]


def test_a_missing_topic_refuses_and_all_are_named(folder: Path) -> None:
    recorder = opened(folder / "demos")
    with pytest.raises(RecordingRefused) as fault:
        recorder.start()
    for topic in ("/arm/twist_executed", "/arm/ee_pose", "/arm/gripper_state", "/arm/target_pose"):
        assert topic in str(fault.value)
    for _ in range(15):
        feed(recorder, Messages(0).cycle(without=("target_pose",)))
    with pytest.raises(RecordingRefused, match=r"nothing comes on /arm/target_pose;"):
        recorder.start()
    recorder.close()


def test_a_topic_that_falls_silent_stops_the_episode_and_the_next_one_records(folder: Path) -> None:
    now = 100.0
    recorder = opened(folder / "demos", clock=lambda: now)
    messages = Messages(0)
    record(recorder, messages, 5)
    recorder.start()
    feed(recorder, messages.cycle())
    for _ in range(100):
        now += 0.02
        recorder.check()
        assert recorder.recording
        feed(recorder, messages.cycle(without=("ee_pose",)))
    now += 0.02
    recorder.check()
    assert not recorder.recording
    assert "nothing came on /arm/ee_pose" in recorder.warning
    record(recorder, messages, 5)
    assert recorder.warning == ""
    recorder.close()
    assert len(list((folder / "demos/bags").iterdir())) == 2


@pytest.mark.parametrize("jump_s", [-0.5, 30.0])
def test_a_clock_jump_stops_the_episode(folder: Path, jump_s: float) -> None:
    recorder = opened(folder / "demos")
    messages = Messages(0)
    record(recorder, messages, 5)
    recorder.start()
    feed(recorder, messages.cycle())
    messages.now_ns += round(jump_s * 1e9)
    feed(recorder, messages.cycle())
    assert not recorder.recording
    assert f"clock jumped by {jump_s + 0.02:+.3f} s" in recorder.warning
    record(recorder, messages, 5)
    recorder.close()
    assert DemoDataset(folder / "demos").episodes == 2


def test_a_full_disk_stops_cleanly_and_what_was_saved_is_intact(folder: Path) -> None:
    root = folder / "demos"
    recorder = opened(root)
    record(recorder, Messages(0), 5)
    recorder.close()
    before = bytes_of(root)
    program = f"""
import resource, signal, sys
sys.path[:0] = {[str(folder), str(HERE), str(HERE.parents[1] / "cail_core/test")]!r}
from pathlib import Path
from reach import Messages, Reach, feed, record
from cail_robot.recording.recorder import Recorder
recorder = Recorder(Path({str(root)!r}), Reach(), robot="stick", demonstrator="anna")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
try:
    record(recorder, Messages(1), 4000)
except Exception as fault:
    print(type(fault).__name__, fault)
print(recorder.recording, recorder.warning)
recorder.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ.copy())
    assert "is full" in done.stdout
    assert "False recording stopped, the open episode is discarded: the disk under" in done.stdout
    assert bytes_of(root) == before


def test_recording_does_not_start_on_a_nearly_full_disk(folder: Path) -> None:
    recorder = opened(folder / "demos", least_free_bytes=2**60)
    for _ in range(15):
        feed(recorder, Messages(0).cycle())
    with pytest.raises(RecordingRefused, match="MB are free on the disk"):
        recorder.start()
    recorder.close()


def test_a_save_that_fails_after_the_bag_is_completed_by_the_next_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = opened(folder / "demos")
    messages = Messages(0)
    record(recorder, messages, 5)

    def full(*args: object) -> int:
        recorder._writer.failed = True  # type: ignore[union-attr]
        raise StorageFull("the disk is full")

    monkeypatch.setattr(recorder._writer, "save_episode", full)
    with pytest.raises(StorageFull):
        record(recorder, messages, 6)
    monkeypatch.undo()
    monkeypatch.syspath_prepend(folder)
    record(recorder, messages, 7)
    recorder.close()
    assert [row.length for row in DemoDataset(folder / "demos").rows] == [4, 5, 6]


def test_sigkill_at_fifty_random_moments_loses_nothing_that_was_saved() -> None:
    path = os.pathsep.join([str(HERE), str(HERE.parents[1] / "cail_core/test")])
    done = subprocess.run(
        [sys.executable, HERE / "record_killer.py"],
        capture_output=True, text=True, timeout=900, check=False, env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "none lost" in done.stdout


def test_a_task_that_no_topic_shows_is_refused() -> None:
    with pytest.raises(BadInput, match="seen through an arm's topics"):
        recordable("pointmass")
