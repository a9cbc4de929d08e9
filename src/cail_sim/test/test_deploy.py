"""`cail deploy` on the simulated Panda: what does not fit is listed and nothing starts; what fits is played and recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from builders import fast_folder
from person import at_terminal

pytest.importorskip("rclpy", reason="needs ROS 2's rclpy")
pytest.importorskip("pybullet", reason="needs PyBullet")
from ros_bench import own_domain

from cail_core.cli import main
from cail_core.demos.check import check
from cail_core.demos.dataset import DemoDataset
from cail_core.guard import Guard
from cail_core.policy import save_policy
from cail_core.rl.networks import TanhGaussianActor
from cail_core.tasks import get_task
from cail_robot.deploy.config import prepare, scripted
from cail_robot.safety.limits import Limits


def untrained(folder: Path, task: str = "panda") -> Path:
    """A policy that hardly moves, with a guard that trusts everything near the table."""
    spec = get_task(task).spec
    actor = TanhGaussianActor(spec.observation_dim, spec.action_dim, torch.Generator().manual_seed(0))
    rng = np.random.default_rng(0)
    states = rng.normal(0, 2, (400, spec.observation_dim)).astype(np.float32)
    states[:, :3] = rng.uniform((-1.0, -0.9, -0.45), (1.2, 2.3, 0.25), (400, 3))  # the tool, inside the arm's workspace
    save_policy(folder, actor, spec, "untrained", {}, guard=Guard.fit(states, np.ones(400), np.arange(400) // 20),
                robot=spec.robot_type)
    return folder


def test_what_does_not_fit_is_listed_together_and_nothing_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = untrained(tmp_path / "p")
    card = json.loads((folder / "policy.json").read_text())
    card["robot"] = "ur5e_pybullet"
    (folder / "policy.json").write_text(json.dumps({**card, "guard": {}}))
    given = ["--robot", "panda_sim", "--input", "none", "--max-speed", "0.6", "--rate", "25", "--record"]
    assert main(["deploy", "--policy", str(folder), *given, "--dataset", str(tmp_path / "d")]) == 2
    said = capsys.readouterr().err
    assert "does not fit and nothing was started: 5 faults" in said
    for expected in ("trained on ur5e_pybullet, this is panda_sim", "trained at 50 Hz",
                     "trained at 0.5 m/s, asked for 0.6", "the arm's max_linear_speed is 0.5", "--without-guard"):  # fmt: skip
        assert expected in said
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--robot", "ur5e", "--input", "none"], "expected somebody at ur5e who can take over"),
        (["--robot", "running"], "expected --robot-type"),
        (["--episodes", "0"], "--episodes of 1 or more"),
        (["--policy", "nowhere"], "expected a policy folder"),
        (["--task", "pointmass", "--input", "none"], "expected a task of the simulated Panda"),
        (["--robot", "ur5e_sim", "--input", "none", "--check"], "--other-robot if that is meant"),
    ],
)
def test_wrong_options_are_said_in_one_line(
    options: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = untrained(tmp_path / "p")
    assert main(["deploy", "--policy", str(folder), *options]) == 2
    said = capsys.readouterr().err.strip()
    assert text in said
    assert len(said.splitlines()) == 1


def test_a_policy_that_fits_is_said_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "--policy", str(untrained(tmp_path / "p")), "--max-speed", "0.25", "--check"]) == 0
    said = capsys.readouterr().out
    assert "p fits panda on panda_sim: 50 Hz, 0.25 m/s, at most 12.0 s an episode" in said
    assert "runs at 0.25 m/s, trained at 0.5: everything takes 2 times as long" in said


def test_an_episode_on_the_simulator_ends_in_the_dataset_and_the_table() -> None:
    with fast_folder() as folder:
        policy, root, busy = untrained(Path(folder, "p")), Path(folder, "d"), Path(folder, "busy.yaml")
        busy.write_text("arm_max_age_s: 30.0\nthings_max_age_s: 30.0\nlost_after_s: 60.0\n")  # a test machine may be very busy
        done = subprocess.run(
            [sys.executable, "-m", "cail_core.cli", "deploy", "--policy", str(policy), "--input", "none", "--episodes", "1",
             "--record", "--dataset", str(root), "--seed", "3", "--config", str(busy), "--silence", "60"],
            env={**os.environ, "ROS_DOMAIN_ID": own_domain(), "OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=240, check=False, start_new_session=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "timed out" in done.stdout
        measured = [line.split() for line in done.stdout.splitlines()[-5:]]
        assert [words[0] for words in measured if words[0] in ("delay", "tracker")] == ["delay", "tracker", "tracker"]
        assert " ms to see, " in done.stdout
        assert "its card does not say what it holds under delay, noise and other speeds: `cail stress --policy" in done.stderr
        (row,) = DemoDataset(root).rows
        assert (row.demonstrator, row.outcome) == ("policy p", "timeout")
        assert row.length > 100
        assert check(root) == []


@pytest.mark.parametrize("key", ["C-c", "q"])
def test_ctrl_c_ends_a_deployment_in_its_own_terminal(key: str) -> None:
    with fast_folder() as folder:
        command = [sys.executable, "-m", "cail_core.cli", "deploy", "--policy", str(untrained(Path(folder, "p")))]
        with at_terminal(command, ROS_DOMAIN_ID=own_domain(), CAIL_REALTIME="0") as window:
            window.wait_for("policy p commands", 90.0)
            window.type(key)
            window.wait_for("ended with 130" if key == "C-c" else "ended with 0", 60.0)


def test_a_run_in_the_place_of_its_policy_is_told_where_that_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    untrained(tmp_path / "run" / "policy")
    assert main(["deploy", "--policy", str(tmp_path / "run"), "--check"]) == 2
    assert f"--policy {tmp_path / 'run' / 'policy'}" in capsys.readouterr().err


def test_a_whole_check_also_sees_what_takes_over_and_where_recordings_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["deploy", "--policy", str(untrained(tmp_path / "p")), "--check", "all"]
    assert main([*words, "--input", "scripted", "--script", str(tmp_path / "none.txt")]) == 2
    assert "none.txt: cannot be read" in capsys.readouterr().err
    (tmp_path / "d").write_text("no folder")
    assert main([*words, "--input", "none", "--record", "--dataset", str(tmp_path / "d")]) == 2
    assert "choose another --dataset" in capsys.readouterr().err
    slow = tmp_path / "slow.yaml"
    slow.write_text("/**: {ros__parameters: {max_linear_speed: 0.1}}")
    assert main([*words, "--input", "none", "--params-file", str(slow)]) == 0
    assert "0.1 m/s" in capsys.readouterr().out, "the limits of the parameter file are those that the arm will have"


def test_scripted_people_take_turns_in_the_place_of_a_policy(capsys: pytest.CaptureFixture[str]) -> None:
    plan = scripted("paper", Limits(), robot="ur5e_sim", task="ur5e", episodes=20, seed=3)
    names = [plan.player(k)[0] for k in range(20)]
    assert names.count("near-optimal") == 4
    assert names.count("colliding") == 2
    assert plan.start() == pytest.approx((0.57, 0.07, 0.215))
    observation = np.zeros(plan.task.spec.observation_dim, np.float32)
    first, again, other = (plan.player(k)[1](observation) for k in (0, 0, 8))
    assert (first == again).all()
    assert (first != other).any()
    assert main(["deploy", "--policy", "mix:paper", "--robot", "panda_sim", "--check"]) == 2
    assert "expected --task with --policy mix:paper" in capsys.readouterr().err
    assert main(["deploy", "--policy", "mix:none", "--task", "panda", "--robot", "panda_sim", "--check"]) == 2
    assert "expected a mix" in capsys.readouterr().err


def test_a_policy_of_a_slow_arm_s_demonstrations_is_not_slowed_once_more(tmp_path: Path) -> None:
    folder = untrained(tmp_path / "p")
    card = json.loads((folder / "policy.json").read_text())
    card["provenance"]["fastest_action"] = 0.5  # of 0.5 m/s
    (folder / "policy.json").write_text(json.dumps(card))
    slow = Limits(max_linear_speed=0.25)
    assert prepare(folder, slow, robot="panda_sim").slower == 1.0
    assert prepare(folder, slow, robot="panda_sim", max_speed=0.25).slower == 0.5
    card["provenance"]["fastest_action"] = 1.2
    (folder / "policy.json").write_text(json.dumps(card))
    assert prepare(folder, slow, robot="panda_sim").slower == 0.5
