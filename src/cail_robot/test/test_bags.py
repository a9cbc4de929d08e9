"""Bags: their bytes, held against two independent implementations, and the datasets that are made from them again."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from builders import same_dataset, same_episode
from reach import Messages, Reach, bytes_of, opened, record

from cail_core.cli import main
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.edit import delete, set_ranking
from cail_core.demos.features import STATE
from cail_core.errors import BadInput, CailError, DatasetError
from cail_core.recording import bag as bags
from cail_core.recording import cdr
from cail_core.recording.bag import Message, read_about, read_messages
from cail_core.recording.episode_builder import Trim, episode_from_bag
from cail_core.recording.rebuild import rebuild
from cail_core.recording.sync import TopicSynchronizer, samples_of
from cail_core.recording.topics import DEFINITIONS, FLOAT, POSE, TOPICS, TWIST, topics_with
from cail_core.tasks import TaskSpec

NEEDS = Reach().spec.needs


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
    writer = bags.BagWriter(folder, "one", "/arm", NEEDS)
    for i, (topic, data) in enumerate(examples.items()):
        writer.write(Message(topic, data, 10**9 + i))
        decoded = store.deserialize_cdr(data, topics_with(NEEDS)[topic].type)
        assert bytes(store.serialize_cdr(decoded, topics_with(NEEDS)[topic].type)) == data, topic
    path = bags.mark_done(writer.finish({"task": "reach"}))

    with AnyReader([path]) as reader:
        assert {c.topic for c in reader.connections} == {f"/arm/{name}" for name in topics_with(NEEDS)}
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
    writer = bags.BagWriter(folder, "one", "/arm", NEEDS)
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

    straight = list(samples_of(stream([0, 1, 2, 3, 4, 5]), NEEDS))
    assert straight == list(samples_of(stream([2, 5, 4, 3, 1, 0]), NEEDS))
    assert len(straight) == 5
    assert straight[4].executed[0] == pytest.approx(0.4)
    assert straight[4].requested[0] == pytest.approx(0.6)


def test_a_stale_command_was_not_requested() -> None:
    messages, sync = Messages(0), TopicSynchronizer(NEEDS)
    made = [sync.feed(m) for m in messages.cycle((0.1, 0, 0))]
    for _ in range(8):
        made += [sync.feed(m) for m in messages.cycle((0.1, 0, 0), without=("twist_cmd",))]
    asked = [m.requested[0] for m in made if m is not None]
    assert asked[:5] == pytest.approx([0.15] * 5)  # 3, 23, 43, 63, 83 ms old
    assert asked[5:] == [0.0] * 3


def test_a_recording_without_a_needed_topic_says_which() -> None:
    messages = Messages(0)
    without = [m for _ in range(3) for m in messages.cycle(without=("ee_pose",))]
    with pytest.raises(DatasetError, match="the recording has no ee_pose"):
        list(samples_of(without, NEEDS))


def test_a_sample_holds_what_the_task_needs_by_the_same_rules() -> None:
    needs = {"cup_1": POSE, "pushed": TWIST, "weight": FLOAT}
    sync = TopicSynchronizer(needs)
    pose, late = (0.1, 0.2, 0.3, 0.0, 0.0, 0.0, 1.0), (9.0, 0.2, 0.3, 0.0, 0.0, 0.0, 1.0)
    for name, data in (("cup_1", cdr.pose_stamped(90, "base", pose)), ("pushed", cdr.twist_stamped(80, "base", [1.0] * 6)),
                       ("weight", cdr.float64(0.25)), ("gripper_state", cdr.float64(1.0)),
                       ("ee_pose", cdr.pose_stamped(100, "base", pose)),
                       ("twist_executed", cdr.twist_stamped(100, "base", [0.0] * 6)),
                       ("cup_1", cdr.pose_stamped(101, "base", late)), ("weight", cdr.float64(0.5))):
        sync.feed(Message(name, data, 0))
    sample = sync.flush()
    assert sample is not None
    assert sample.things == {"cup_1": pose, "pushed": (1.0,) * 6, "weight": (0.25,)}


def test_what_a_policy_sees_now_is_what_the_dataset_holds_later() -> None:
    messages, live, later = Messages(1), TopicSynchronizer(NEEDS), []
    seen = []
    for i in range(6):
        for message in messages.cycle((0.1 * i, 0.0, 0.0)):
            if (done := live.feed(message)) is not None:
                later.append(done)
        seen.append(live.latest())
        assert live.is_final(seen[-1])
    assert seen[:-1] == later


def test_a_sample_is_told_only_when_its_own_pose_has_come() -> None:
    messages, sync = Messages(1), TopicSynchronizer(NEEDS)
    assert sync.latest() is None
    for message in messages.cycle():
        sync.feed(message)
    first = sync.latest()
    for message in messages.cycle(without=("ee_pose", "target_pose")):
        sync.feed(message)
    assert sync.latest() == first
    sync.feed(Message("ee_pose", cdr.pose_stamped(messages.now_ns, "base", [*messages.tool, 0.0, 1.0, 0.0, 0.0]), 0))
    assert sync.latest().stamp_ns == messages.now_ns
    assert not sync.is_final(sync.latest()), "the target of that instant may still come"


def test_a_clock_that_was_set_back_does_not_make_old_poses_new() -> None:
    messages, sync = Messages(1), TopicSynchronizer(NEEDS)
    for message in messages.cycle((0.5, 0.0, 0.0)):
        sync.feed(message)
    messages.now_ns -= 10**9
    messages.target = [0.9, 0.9, 0.9]
    for message in messages.cycle((0.5, 0.0, 0.0)):
        sync.feed(message)
    sample = sync.latest()
    assert sample.pose[:3] == pytest.approx(messages.tool)
    assert sample.things["target_pose"][:3] == pytest.approx([0.9, 0.9, 0.9])


def test_a_gripper_s_message_that_was_held_up_counts_for_the_period_that_it_was_sent_in() -> None:
    sync, pose = TopicSynchronizer({}), (0.0,) * 6 + (1.0,)
    for name, data, sent in (("gripper_state", cdr.float64(1.0), 1), ("ee_pose", cdr.pose_stamped(100, "base", pose), 3),
                             ("twist_executed", cdr.twist_stamped(100, "base", [0.0] * 6), 3),
                             ("gripper_state", cdr.float64(0.5), 2), ("gripper_state", cdr.float64(0.1), 4)):
        sync.feed(Message(name, data, 0), sent)
    assert sync.latest().gripper == 0.5


@pytest.mark.parametrize(("needs", "words"), [
    ({"ee_pose": POSE}, "'ee_pose' is a topic of the arm"), ({"Cup 1": POSE}, "'Cup 1' is no topic's name"),
    ({"camera": "sensor_msgs/msg/Image"}, "'camera' is of type sensor_msgs/msg/Image, expected geometry_msgs"),
])  # fmt: skip
def test_a_task_that_needs_what_cannot_be_recorded_says_so(needs: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TaskSpec("t", "", "r", 50, 10, ("x",), ("v",), needs=needs)


def test_every_topic_has_its_definition() -> None:
    assert {topic.type for topic in TOPICS.values()} == set(DEFINITIONS)


def test_foreign_bags_and_rubbish_are_said(folder: Path) -> None:
    writer = bags.BagWriter(folder, "one", "/arm", NEEDS)
    path = bags.mark_done(writer.finish({}))
    assert read_about(path) == {}
    with pytest.raises(DatasetError, match="another tool recorded it"):
        episode_from_bag(path, Reach())
    path.write_bytes(b"nothing")
    with pytest.raises(CailError, match="not MCAP"):
        list(read_messages(path))
    with pytest.raises(DatasetError, match="missing"):
        read_about(folder / "none.mcap")


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


def test_bags_are_imported_as_they_were_recorded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = folder / "demos"
    recorder = opened(root)
    for k in range(3):
        record(recorder, Messages(k), 5 + k, "success" if k % 2 else "failure")
    recorder.close()
    assert main(["demos", "import", str(root / "bags"), "--task", "reach", "--out", str(folder / "all")]) == 0
    same_dataset(DemoDataset(root), DemoDataset(folder / "all"))
    assert main(["demos", "import", str(root / "bags/episode-00001.mcap"), "--out", str(folder / "one")]) == 0
    one = DemoDataset(folder / "one")
    assert (one.episodes, one.task, one.info["robot_type"], one.info["fps"]) == (1, "reach", "stick", 50)
    same_episode(one.episode(0), DemoDataset(root).episode(1))
    capsys.readouterr()

    recorder = opened(folder / "one")  # its episode's bag is elsewhere: the next one does not take its name
    assert record(recorder, Messages(7), 5).bag.name == "episode-00002.mcap"
    recorder.close()


def test_bags_that_cannot_be_imported_are_said_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = folder / "demos"
    recorder = opened(root)
    record(recorder, Messages(0), 5)
    recorder.close()
    good = root / "bags/episode-00000.mcap"
    others = folder / "others"
    others.mkdir()
    foreign, cut, text = others / "foreign.mcap", others / "cut.mcap", others / "text.mcap"
    writer = bags.BagWriter(others, "foreign", "/arm")
    bags.mark_done(writer.finish({}))
    cut.write_bytes(good.read_bytes()[:3000])
    text.write_text("a bag?")
    broken = bags.BagWriter(others, "broken", "/arm", NEEDS)
    for message in read_messages(good, NEEDS):
        broken.write(message._replace(data=message.data[:20]) if message.topic == "ee_pose" else message)
    bags.mark_done(broken.finish(read_about(good)))
    (folder / "empty").mkdir()
    (folder / "renamed").mkdir()
    shutil.copy(good, folder / "renamed/a.mcap")
    writer = bags.BagWriter(folder / "renamed", "b", "/arm")
    bags.mark_done(writer.finish({**read_about(good), "robot_type": "ur5e"}))
    for path, options, said in (
        (foreign, [], "another tool recorded it"),
        (cut, [], "cut short or not MCAP"),
        (text, [], "cut short or not MCAP"),
        (others / "broken.mcap", [], "a message is not what its topic's type says"),
        (others / "none.mcap", [], "no such file"),
        (folder / "empty", [], "expected an .npz archive"),
        (folder / "renamed", [], "these bags are not of one dataset: b.mcap: task reach, robot ur5e"),
        (good, ["--task", "pointmass"], "recorded for the task 'reach', given --task pointmass"),
        (good, ["--fps", "25"], "recorded at 50 frames a second, given --fps 25"),
        (good, ["--episode-length", "5"], "for .npz files only"),
    ):
        assert main(["demos", "import", str(path), *options, "--out", str(folder / "out")]) == 2, path
        err = capsys.readouterr().err.strip()
        assert said in err, err
        assert len(err.splitlines()) == 1, err
        assert not (folder / "out").exists()
