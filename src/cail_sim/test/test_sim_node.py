"""The simulator on the topics, as a process of its own over real DDS, and the environment over those topics."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("rclpy")
pytest.importorskip("pybullet")

from ros_bench import node_process, own_domain

from cail_core.cli import main
from cail_core.evaluation import evaluate
from cail_core.policy import load_policy, save_policy
from cail_core.rl.networks import TanhGaussianActor
from cail_core.tasks import get_task
from cail_robot.arm import ArmError
from cail_robot.ros.operator import Operator, wait_for

own_domain()


@pytest.fixture
def best():
    """The best scripted demonstrator, by one seed."""
    (script, _), *_ = get_task("panda").mixes()["best"]
    return script.start(np.random.default_rng(0))


@pytest.fixture
def waiting_sim() -> Iterator[None]:
    """Time waits for commands."""
    with node_process("-m", "cail_core.cli", "up", "sim", "--pace", "commands"):
        yield


def test_the_same_actions_give_the_same_episode_in_process_and_over_ros(waiting_sim: None, best) -> None:
    over_ros, in_process = get_task("panda-ros").make_env(1), get_task("panda").make_env(1)
    try:
        seen, expected = over_ros.reset(5), in_process.reset(5)
        np.testing.assert_array_equal(seen, expected)
        for _ in range(200):
            action = best(seen[0])[None]
            step, reference = over_ros.step(action), in_process.step(action)
            for name, value in step._asdict().items():
                np.testing.assert_array_equal(value, getattr(reference, name), err_msg=name)
            seen = step.observation
            if step.success[0]:
                break
        assert step.success[0]
    finally:
        over_ros.close()
        in_process.close()


def test_evaluation_runs_over_the_topics_at_the_limits_of_a_real_arm(best) -> None:
    """The kinematic script succeeds at half of the speed it was written for, in twice the time; that is said."""
    with node_process("-m", "cail_core.cli", "up", "sim", "--pace", "commands", "--limits", "limits"):
        result = evaluate(get_task("panda-ros"), lambda batch: np.stack([best(batch[0])]), episodes=1, seed=1)
    assert result.success.tolist() == [True]
    assert result.lengths[0] > 130


def test_in_real_time_a_policy_is_evaluated_and_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = get_task("panda-carry-ros")
    actor = TanhGaussianActor(task.spec.observation_dim, 3, torch.Generator())
    with torch.no_grad():
        actor.net[-1].bias.copy_(torch.tensor([-2.0, -1.0, 0.0]))  # straight into the obstacle: its episodes are short
    save_policy(tmp_path / "policy", actor, task.spec, "none", {})
    demos = tmp_path / "demos"
    assert main(["demos", "collect", "--task", "panda-carry", "--mix", "best", "--episodes", "4", "--out", str(demos)]) == 0
    assert main(["demos", "rank", str(demos), "--by", "return", "--fraction", "0.5"]) == 0
    (tmp_path / "short.yaml").write_text(
        "offline_confidence: {steps: 5}\n"
        "ppo: {num_envs: 1, rollout_steps: 30}\n"
    )
    with node_process("-m", "cail_core.cli", "up", "sim", "--task", "panda-carry"):
        capsys.readouterr()
        evaluated = ["eval", "--policy", str(tmp_path / "policy"), "--task", "panda-carry-ros", "--episodes", "2"]
        assert main(evaluated) == 0
        said = capsys.readouterr().out
        assert "(2 episodes)" in said
        assert "for reference" not in said, "nobody asked for random motion of an arm"
        trained = ["train", "--task", "panda-carry-ros", "--demos", str(demos), "--method", "cail", "--steps", "60"]
        assert main([*trained, "--config", str(tmp_path / "short.yaml"), "--out", str(tmp_path / "run")]) == 0
    assert load_policy(tmp_path / "run/policy").card.task == "panda-carry-ros"
    assert "`cail eval --task panda-carry-ros` plays them" in (tmp_path / "run/report.html").read_text(encoding="utf-8")


def test_more_environments_than_arms_are_refused_in_one_line() -> None:
    with pytest.raises(Exception, match="one arm is one environment"):
        get_task("panda-ros").make_env(2)


def test_in_real_time_the_things_of_the_task_are_on_the_topics_and_reset_starts_episodes() -> None:
    from geometry_msgs.msg import PoseStamped
    from std_msgs.msg import String

    from cail_robot.ros.runtime import STATE_QOS

    with node_process("-m", "cail_core.cli", "up", "sim") as node, Operator() as operator:
        poses: dict[str, list[PoseStamped]] = {"object_pose": [], "target_pose": [], "obstacle_pose": []}
        events: list[String] = []
        for name, into in poses.items():
            operator.node.create_subscription(PoseStamped, name, into.append, STATE_QOS)
        operator.node.create_subscription(String, "episode_event", events.append, STATE_QOS)
        operator.ready()
        for episode in (1, 2):
            assert operator.call("reset").success
            wait_for(lambda n=episode: len(events) >= n, "episode_event")
        wait_for(lambda: all(poses.values()), "the poses")
        first, second = (json.loads(event.data) for event in events[:2])
        assert (first["event"], first["episode"], second["episode"]) == ("started", 1, 2)
        position = poses["target_pose"][-1].pose.position
        assert 0.28 <= position.x <= 0.32
        assert position.z == pytest.approx(0.04)
        start = operator.heard["ee_pose"][-1].pose.position.x
        operator.ready()
        moved = lambda: operator.heard["ee_pose"][-1].pose.position.x < start - 0.01  # noqa: E731
        operator.drive_until((-0.1, 0.0, 0.0, 0.0, 0.0, 0.0), moved, "the tool to move")
        node.send_signal(signal.SIGINT)
        assert node.wait(10) == 0


def test_nobody_on_the_topics_is_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cail_robot.ros.env.PATIENCE_S", 0.5)
    with pytest.raises(ArmError, match=r"`cail up`"):
        get_task("panda-ros").make_env(1)
