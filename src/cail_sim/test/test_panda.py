"""The simulated Panda: the whole task is done by contact and friction alone, the same seed gives the same episode."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("pybullet")

import gymnasium
from gymnasium.utils.env_checker import check_env

from cail_bench.speed_limits import play, slower
from cail_core.tasks import get_task
from cail_core.tasks.base import Practised
from cail_core.tasks.pick_place_avoid import Outcome
from cail_robot.safety.filter import Verdict
from cail_sim.bullet.arm import PANDA
from cail_sim.tasks.env import PickPlaceAvoidEnv
from cail_sim.tasks.panda import Panda, PandaCarry


@pytest.fixture(scope="module")
def task() -> Panda:
    return Panda()


@pytest.fixture(scope="module")
def env(task: Panda) -> Iterator[PickPlaceAvoidEnv]:
    made = task.one()
    yield made
    made.close()


def act_out(env: PickPlaceAvoidEnv, task: Panda, who: str, seed: int) -> tuple[Outcome, float, list[list[float]]]:
    """One episode of a scripted person: how it ended, its return, what was seen."""
    rng = np.random.default_rng(seed)
    person = task.demonstrators()[who].start(rng)
    env.start(rng)
    total, seen = 0.0, [env.observe()]
    while True:
        reward, outcome = env.decide(person(np.array(seen[-1], dtype=np.float32)).tolist())
        total += reward
        seen.append(env.observe())
        if outcome is not None:
            return outcome, total, seen


@pytest.mark.parametrize("name", ["PandaPickPlaceAvoid-v0", "PandaCarryAvoid-v0"])
def test_gymnasium_accepts_the_environment(name: str) -> None:
    made = gymnasium.make(f"cail_sim:cail/{name}").unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like bounds on positions
        check_env(made, skip_render_check=True)
    made.close()


@pytest.mark.parametrize("seed", [0, 1])
def test_the_best_script_does_the_whole_task(task: Panda, env: PickPlaceAvoidEnv, seed: int) -> None:
    outcome, total, _ = act_out(env, task, "best", seed)
    assert outcome is Outcome.SUCCESS
    assert -56 < total < -40


@pytest.mark.parametrize(("who", "outcome"), [("dropping", Outcome.DROPPED), ("colliding", Outcome.COLLIDED)])
def test_bad_demonstrators_fail_as_their_name_says(task: Panda, env: PickPlaceAvoidEnv, who: str, outcome: Outcome) -> None:
    found, total, _ = act_out(env, task, who, 3)
    assert found is outcome
    assert total < -2000


def test_an_episode_does_not_depend_on_the_one_before(task: Panda, env: PickPlaceAvoidEnv) -> None:
    first = act_out(env, task, "best", 5)
    for who in ("colliding", "dropping"):
        act_out(env, task, who, 6)
        assert act_out(env, task, "best", 5) == first


def test_carrying_starts_with_the_bottle_in_the_hand_and_can_be_repeated() -> None:
    carry = PandaCarry()
    env = carry.one()
    try:
        made = act_out(env, carry, "best", 0)  # this grasp is made and kept
        again = act_out(env, carry, "best", 0)  # this one is restored
        assert made == again
        assert made[0] is Outcome.SUCCESS
        env.start(np.random.default_rng(0))
        assert env.task.held
    finally:
        env.close()


def test_the_tool_stays_too_low_to_pass_over_the_obstacle(task: Panda, env: PickPlaceAvoidEnv) -> None:
    env.start(np.random.default_rng(0))
    for _ in range(60):
        env.decide([0.0, 0.0, 1.0])
    top_of_obstacle = 2 * task.config.world.obstacle_half_m[2]
    assert env.scene.tool[2] == pytest.approx(0.255, abs=0.004)
    assert env.scene.tool[2] - task.config.task.neck_height_m < top_of_obstacle


def test_joints_keep_their_limits_whatever_is_asked(env: PickPlaceAvoidEnv) -> None:
    env.start(np.random.default_rng(0))
    rng = np.random.default_rng(0)
    for k in range(80):
        if k % 20 == 0:
            action = rng.choice([-1.0, 1.0], 3).tolist()
        outcome = env.decide(action)[1]
        arm = env.world.arm
        assert all(abs(v) <= most + 1e-9 for v, most in zip(arm.commanded, PANDA.max_joint_speed, strict=False))
        assert all(low - 0.01 <= q <= high + 0.01 for q, low, high in zip(arm.q, PANDA.joint_low, PANDA.joint_high, strict=True))
        if outcome is not None:
            env.start(rng)


def test_the_tool_follows_what_the_filter_let_through(env: PickPlaceAvoidEnv) -> None:
    env.start(np.random.default_rng(0))
    before = env.scene.tool
    for _ in range(20):
        env.decide([0.0, 0.2, 0.0])
    assert env.filter.motion.linear == pytest.approx((0.0, 0.1, 0.0), abs=1e-6)
    assert env.scene.tool[1] - before[1] == pytest.approx(20 * 0.02 * 0.1, abs=0.006)  # less the run-up
    assert env.scene.tool[0] == pytest.approx(before[0], abs=0.004)


def test_the_gripper_can_be_an_action() -> None:
    task = Panda.of(dataclasses.replace(Panda().config, explicit_gripper=True))
    assert task.spec.action_names[-1] == "gripper"
    env = task.one()
    try:
        env.start(np.random.default_rng(0))
        for _ in range(15):
            env.decide([0.0, 0.0, 0.0, -1.0])
        assert env.scene.opening < 0.05
        for _ in range(15):
            env.decide([0.0, 0.0, 0.0, 1.0])
        assert env.scene.opening > 0.95
        outcome, _, _ = act_out(env, task, "best", 0)
        assert outcome is Outcome.SUCCESS
    finally:
        env.close()


def test_the_mixes_hold_what_they_promise() -> None:
    task = get_task("panda")
    succeed = {"near-optimal", "small-detour", "large-detour", "hesitant", "wrong-side"}
    share = {mix: sum(part for who, part in people if who.name in succeed) for mix, people in task.mixes().items()}
    assert share["paper"] == pytest.approx(0.75)
    assert share["hard"] <= 0.3
    assert share["failures"] == pytest.approx(0.1)
    assert {who.name for who, _ in task.mixes()["only-suboptimal"]}.isdisjoint({"best", "near-optimal", "small-detour"})


def test_the_best_script_succeeds_at_a_real_arms_speed_in_twice_the_time() -> None:
    (fast, slow) = (play(slower(speed), get_task("panda").demonstrators()["best"].start, 2, 0) for speed in (0.5, 0.25))
    assert fast["successes"] == slow["successes"] == 2
    assert float(slow["seconds"].split()[0]) > 1.3 * float(fast["seconds"].split()[0])


def test_the_stricter_task_has_a_wider_obstacle_and_is_otherwise_the_same() -> None:
    task = Panda()
    stricter, margin = task.stricter(), task.config.practice_margin_m
    x, y, z = task.config.world.obstacle_half_m
    assert stricter.config.world.obstacle_half_m == (x + margin, y + margin, z)
    assert dataclasses.replace(stricter.config, world=task.config.world) == task.config
    assert type(PandaCarry().stricter()) is PandaCarry
    assert isinstance(task, Practised)
    env = stricter.make_env(1)
    try:
        assert env.reset(0).shape == (1, task.spec.observation_dim)
    finally:
        env.close()


def test_an_action_that_is_no_number_moves_nothing(env: PickPlaceAvoidEnv) -> None:
    env.start(np.random.default_rng(0))
    before, refused = env.scene.tool, env.filter.counts[Verdict.NOT_FINITE]
    env.decide([float("nan"), 0.0, 0.0])
    assert env.filter.counts[Verdict.NOT_FINITE] > refused
    assert env.scene.tool == pytest.approx(before, abs=1e-3)
