"""Recording without ROS: what was saved is there, in the bag and in the dataset, whatever happens."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from builders import fast_folder, same_dataset, same_episode
from reach import FULL_SPEED, Messages, Reach, feed, install, record

from cail_core.cli import main
from cail_core.demos.check import check
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.edit import delete, set_ranking
from cail_core.demos.features import ACTION, DONE, REQUESTED, REWARD, STATE, SUCCESS, TRUNCATED
from cail_core.errors import BadInput, CailError, DatasetError, StorageFull
from cail_core.recording import bag as bags
from cail_core.recording import cdr
from cail_core.recording.bag import Message, bags_of, read_about, read_messages
from cail_core.recording.frames import Timing, Trim, episode_from_bag, recordable
from cail_core.recording.moments import Moments, moments_of
from cail_core.recording.rebuild import rebuild
from cail_core.recording.topics import DEFINITIONS, TOPICS
from cail_robot.recorder import Recorder, RecordingRefused

HERE = Path(__file__).parent


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A scratch folder in which the task `reach` is installed."""
    with fast_folder() as scratch:
        install(Path(scratch))
        monkeypatch.syspath_prepend(scratch)
        yield Path(scratch)


def opened(root: Path, **options: object) -> Recorder:
    return Recorder(root, Reach(), **{"robot": "stick", "demonstrator": "anna", **options})  # type: ignore[arg-type]


def bytes_of(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


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


def test_idle_ends_stay_out_of_the_dataset_but_in_the_bag(folder: Path) -> None:
    recorder = opened(folder / "demos", trim=Trim(on=True))
    record(recorder, Messages(0), 12, "failure", idle=(30, 40))
    recorder.close()
    one = DemoDataset(folder / "demos").episode(0)
    margin = 10  # 0.2 s at 50 Hz
    assert one.recording is not None
    assert one.recording["trimmed"] == [29 - margin, 40 - margin]  # one of the idle moments is the state to begin with
    assert one.length == margin + 12 + margin
    assert one.recording["frames"] == 81
    whole = episode_from_bag(folder / "demos/bags/episode-00000.mcap", Reach(), Trim(on=False))
    assert whole.length == 81
    assert np.array_equal(whole.frames[STATE][19 : 19 + one.length], one.frames[STATE])
    again, _ = rebuild(folder / "demos", folder / "untrimmed", Trim(on=False))
    same_episode(again.episode(0), whole)


def test_rebuilding_gives_the_same_bytes_and_keeps_ranks_and_notes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = folder / "demos"
    recorder = opened(root)
    for k in range(4):
        record(recorder, Messages(k), 5 + k, "success" if k % 2 else "failure")
    recorder.close()
    before = bytes_of(root)
    assert main(["demos", "rebuild", str(root), "--out", str(folder / "again")]) == 0
    after = bytes_of(folder / "again")
    assert after == {name: data for name, data in before.items() if not name.startswith("bags")}

    set_ranking(root, {2: 1, 0: 2}, {"by": "test"})
    (root / "notes.txt").write_text("a good day")
    before = bytes_of(root)
    assert main(["demos", "rebuild", str(root)]) == 0
    assert bytes_of(root) == before

    shutil.rmtree(root / "data")
    (root / "meta/info.json").write_text("{")
    assert main(["demos", "rebuild", str(root)]) == 0
    assert "ranks are lost" in capsys.readouterr().err
    same_dataset(DemoDataset(root), DemoDataset(folder / "again"))
    assert (root / "notes.txt").read_text() == "a good day"


def test_deleted_episodes_come_back_by_rebuilding_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = folder / "demos"
    recorder = opened(root)
    for k in range(3):
        record(recorder, Messages(k), 5)
    recorder.close()
    delete(root, [1, 2])
    recorder = opened(root)
    assert recorder.episodes == 1
    assert record(recorder, Messages(7), 5).bag.name == "episode-00003.mcap"
    recorder.close()
    assert main(["demos", "rebuild", str(root)]) == 0
    assert "episode-00001, episode-00002" in capsys.readouterr().err
    assert DemoDataset(root).episodes == 4


def test_rebuilding_refuses_what_it_would_lose(folder: Path) -> None:
    with pytest.raises(BadInput, match="expected bags in"):
        rebuild(folder / "nowhere")
    root = folder / "demos"
    recorder = opened(root)
    record(recorder, Messages(0), 5)
    record(recorder, Messages(1), 5)
    recorder.close()
    (root / "bags/episode-00000.mcap").unlink()
    with pytest.raises(BadInput, match=r"episodes without a bag \(0\) would be lost"):
        rebuild(root)
    cut = (root / "bags/episode-00001.mcap").read_bytes()
    (root / "bags/episode-00001.mcap").write_bytes(cut[: len(cut) // 2])
    with pytest.raises(DatasetError, match="cut short"):
        rebuild(root, folder / "again")
    assert not (folder / "again").exists()


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
from cail_robot.recorder import Recorder
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


# The bytes: held against two independent implementations.


def an_example_of_each() -> dict[str, bytes]:
    stamp = 1_700_000_000_123_456_789
    numbers = [1.5, -2.25, 3.0, 0.1, 0.2, 0.3]
    return {
        "twist_cmd": cdr.twist_stamped(stamp, "base", numbers),
        "twist_executed": cdr.twist_stamped(stamp, "base_link_of_odd_length", numbers),
        "ee_pose": cdr.pose_stamped(stamp, "", [*numbers, 0.9]),
        "joint_states": cdr.joint_state(stamp, ["a", "elbow_joint"], [0.5, -0.5], [1.0, 2.0]),
        "gripper_state": cdr.float64(0.25),
        "episode_event": cdr.string('{"event": "started", "who": "céline"}'),
    }


def test_messages_are_what_rosbags_writes_and_reads(folder: Path) -> None:
    pytest.importorskip("rosbags", reason="needs the package rosbags, an independent reader")
    from rosbags.highlevel import AnyReader
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_JAZZY)
    examples = an_example_of_each()
    writer = bags.BagWriter(folder, "one", "/arm")
    for i, (topic, data) in enumerate(examples.items()):
        writer.write(Message(topic, data, 10**9 + i))
        decoded = store.deserialize_cdr(data, TOPICS[topic].type)
        assert bytes(store.serialize_cdr(decoded, TOPICS[topic].type)) == data, topic
    path = bags.mark_done(writer.finish({"task": "reach"}))

    with AnyReader([path]) as reader:
        assert {c.topic for c in reader.connections} == {f"/arm/{name}" for name in TOPICS}
        read = [(c.topic.removeprefix("/arm/"), when, reader.deserialize(data, c.msgtype)) for c, when, data in reader.messages()]
        found = {topic: (when, message) for topic, when, message in read}
        for connection in reader.connections:  # the definitions in the bag are those of ROS 2
            assert reader.typestore.generate_msgdef(connection.msgtype) == store.generate_msgdef(connection.msgtype)
    assert [found[topic][0] for topic in examples] == [10**9 + i for i in range(len(examples))]
    twist = found["twist_cmd"][1]
    assert (twist.header.stamp.sec, twist.header.stamp.nanosec, twist.header.frame_id) == (1_700_000_000, 123_456_789, "base")
    assert (twist.twist.linear.x, twist.twist.angular.z) == (1.5, 0.3)
    assert found["ee_pose"][1].pose.orientation.w == 0.9
    assert found["joint_states"][1].name == ["a", "elbow_joint"]
    assert found["joint_states"][1].velocity.tolist() == [1.0, 2.0]
    assert found["gripper_state"][1].data == 0.25
    assert "céline" in found["episode_event"][1].data


def test_messages_are_what_mcap_ros2_reads(folder: Path) -> None:
    reader_module = pytest.importorskip("mcap_ros2.reader", reason="needs the package mcap-ros2-support")
    examples = an_example_of_each()
    writer = bags.BagWriter(folder, "one", "/arm")
    for i, (topic, data) in enumerate(examples.items()):
        writer.write(Message(topic, data, 10**9 + i))
    path = bags.mark_done(writer.finish({}))
    read = {m.channel.topic: m.ros_msg for m in reader_module.read_ros2_messages(str(path))}
    assert read["/arm/twist_executed"].header.frame_id == "base_link_of_odd_length"
    assert read["/arm/joint_states"].position == [0.5, -0.5]
    assert read["/arm/ee_pose"].pose.position.y == -2.25


def test_our_own_reading_is_the_inverse_of_writing() -> None:
    examples = an_example_of_each()
    assert cdr.read_stamped(examples["twist_executed"], 6)[1:] == ("base_link_of_odd_length", (1.5, -2.25, 3.0, 0.1, 0.2, 0.3))
    assert cdr.read_stamped(examples["ee_pose"], 7).stamp_ns == 1_700_000_000_123_456_789
    assert cdr.read_joint_state(examples["joint_states"])[1:] == (("a", "elbow_joint"), (0.5, -0.5), (1.0, 2.0))
    empty = cdr.read_joint_state(cdr.joint_state(5, [], [], []))
    assert empty == (5, (), (), ())
    assert cdr.read_float64(examples["gripper_state"]) == 0.25
    assert cdr.read_string(examples["episode_event"]).endswith('"céline"}')
    with pytest.raises(DatasetError, match="little-endian"):
        cdr.read_float64(b"\x00\x00" + examples["gripper_state"][2:])


def test_messages_may_arrive_in_any_order_within_a_period() -> None:
    def stream(order: list[int]) -> list[Message]:
        messages, made = Messages(3), []
        for i in range(5):
            cycle = list(messages.cycle((0.1 * i, 0, 0)))
            gripper = [m for m in cycle if m.topic == "gripper_state"]
            rest = [m for m in cycle if m.topic != "gripper_state"]
            made += gripper + [rest[k] for k in order]
        return made

    straight = list(moments_of(stream([0, 1, 2, 3, 4, 5])))
    assert straight == list(moments_of(stream([2, 5, 4, 3, 1, 0])))
    assert len(straight) == 5
    assert straight[4].executed[0] == pytest.approx(0.4)
    assert straight[4].requested[0] == pytest.approx(0.6)


def test_a_stale_command_was_not_requested() -> None:
    messages, moments = Messages(0), Moments()
    made = [moments.feed(m) for m in messages.cycle((0.1, 0, 0))]
    for _ in range(8):
        made += [moments.feed(m) for m in messages.cycle((0.1, 0, 0), without=("twist_cmd",))]
    asked = [m.requested[0] for m in made if m is not None]
    assert asked[:5] == pytest.approx([0.15] * 5)  # 3, 23, 43, 63, 83 ms old
    assert asked[5:] == [0.0] * 3


def test_a_recording_without_a_needed_topic_says_which() -> None:
    messages = Messages(0)
    without = [m for _ in range(3) for m in messages.cycle(without=("ee_pose",))]
    with pytest.raises(DatasetError, match="the recording has no ee_pose"):
        list(moments_of(without))


def test_every_topic_has_its_definition() -> None:
    assert {topic.type for topic in TOPICS.values()} == set(DEFINITIONS)


def test_a_task_that_no_topic_shows_is_refused() -> None:
    with pytest.raises(BadInput, match="seen through an arm's topics"):
        recordable("pointmass")


def test_foreign_bags_and_rubbish_are_said(folder: Path) -> None:
    writer = bags.BagWriter(folder, "one", "/arm")
    path = bags.mark_done(writer.finish({}))
    assert read_about(path) == {}
    with pytest.raises(DatasetError, match="another tool recorded it"):
        episode_from_bag(path, Reach())
    path.write_bytes(b"nothing")
    with pytest.raises(CailError, match="not MCAP"):
        list(read_messages(path))
    with pytest.raises(DatasetError, match="missing"):
        read_about(folder / "none.mcap")
