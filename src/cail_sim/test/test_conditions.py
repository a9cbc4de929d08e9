"""An episode under other conditions: what the arm then does, and what the policy is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cail_core.tasks.pick_place_avoid import OBSERVATION_NAMES, Outcome
from cail_core.tasks.variation import NOMINAL, NOTHING, Variation, varied
from cail_sim.tasks.env import CONTROL_TICKS, PickPlaceAvoidEnv
from cail_sim.tasks.panda import Panda

Env = Callable[..., PickPlaceAvoidEnv]


@pytest.fixture
def under() -> Env:  # type: ignore[misc]
    made: list[PickPlaceAvoidEnv] = []

    def make(**conditions: float) -> PickPlaceAvoidEnv:
        made.append(Panda().under(Variation.only(replace(NOMINAL, **conditions))).one())
        made[-1].start(np.random.default_rng(5))
        return made[-1]

    yield make  # type: ignore[misc]
    for env in made:
        env.close()


def path(env: PickPlaceAvoidEnv, decisions: int) -> np.ndarray:
    """The tool's way under the best script."""
    act = Panda().demonstrators()["best"].start(np.random.default_rng(1))
    seen = [env.scene.tool]
    for _ in range(decisions):
        _, outcome = env.decide(act(np.array(env.observe(), np.float32)).tolist())
        seen.append(env.scene.tool)
        if outcome is not None:
            break
    return np.array(seen)


def test_delay_holds_up_the_motion(under: Env) -> None:
    late, now = under(delay_s=0.04), under()
    push = [1.0, 0.0, 0.0]
    for env in (late, now):
        env.decide(push)
        env.decide(push)
    assert abs(late.scene.tool[0] - late.world.arm._reference[0]) < 1e-4
    moved = [abs(env.scene.tool[0] - Panda().config.world.tool_start[0][0]) for env in (late, now)]
    assert moved[1] > moved[0] + 0.002, "two decisions are 40 ms: the late one has not begun"
    late.decide(push)
    assert late.filter.motion.linear[0] > 0.0


def test_half_the_speed_is_the_same_path_and_twice_the_time(under: Env) -> None:
    fast, slow = path(under(), 400), path(under(speed=0.5), 400)
    gaps = [np.linalg.norm(fast - point, axis=1).min() for point in slow]
    assert max(gaps) < 0.012
    assert 1.4 < len(slow) / len(fast) < 2.1
    assert under(speed=0.5).task.max_ticks == 2 * under().task.max_ticks


def test_a_longer_period_is_fewer_decisions_for_the_same_time(under: Env) -> None:
    env = under(period=1.5)
    env.decide([0.0, 0.0, 0.0])
    assert env._now == 3, "control periods of 10 ms"
    assert env.task._ticks == 3 * CONTROL_TICKS


def test_jitter_changes_when_decisions_come_but_not_how_often_on_average(under: Env) -> None:
    env = under(jitter_s=0.01)
    counts = []
    for _ in range(100):
        before = env._now
        env.decide([0.0, 0.0, 0.0])
        counts.append(env._now - before)
    assert len(set(counts)) > 1
    assert np.mean(counts) == pytest.approx(2.0, abs=0.3)


def test_matter_is_the_engines(under: Env) -> None:
    world = under(mass=1.5, friction=0.6).world
    mass, friction, *_ = world.engine.getDynamicsInfo(world.bottle, -1, physicsClientId=world.client)
    assert mass == pytest.approx(0.45)
    assert friction == pytest.approx(0.6)
    world.set_matter(1.0, 1.0)
    assert world.engine.getDynamicsInfo(world.bottle, -1, physicsClientId=world.client)[0] == pytest.approx(0.3)


def shown(env: PickPlaceAvoidEnv) -> dict[str, float]:
    return dict(zip(OBSERVATION_NAMES, env.observe(), strict=True))


def test_a_slow_gripper_takes_longer_to_close(under: Env) -> None:
    left = {}
    for speed in (1.0, 0.25):
        env = under(gripper=speed)
        for _ in range(5):  # 50 ms: of its 40 mm a finger makes 10 at 0.2 m/s
            env.world.advance((0.0, 0.0, 0.0), True, CONTROL_TICKS)
        env.world.arm.read()
        left[speed] = 1.0 - env.world.arm.opening
    assert left[1.0] == pytest.approx(0.25, abs=0.06)
    assert left[0.25] == pytest.approx(left[1.0] / 4, abs=0.02)


def test_an_offset_is_seen_at_the_tool_and_undone_at_the_neck(under: Env) -> None:
    seen, true = shown(under(grasp_offset_m=0.004)), shown(under())
    error = np.array([seen[f"tool_{axis}"] - true[f"tool_{axis}"] for axis in "xyz"])
    assert np.linalg.norm(error) == pytest.approx(0.004 / 0.2, rel=1e-3)
    neck = [seen[f"neck_from_tool_{axis}"] - true[f"neck_from_tool_{axis}"] for axis in "xyz"]
    assert neck == pytest.approx(list(-error), abs=1e-6)


def test_bias_stays_and_noise_does_not(under: Env) -> None:
    biased, noisy = under(bias_m=0.003), under(noise_m=0.002)
    looks = {}
    for name, env in (("bias", biased), ("noise", noisy)):
        values = []
        for _ in range(30):
            env.decide([0.0, 0.0, 0.0])
            values.append([shown(env)[f"bottle_from_target_{axis}"] for axis in "xyz"])
        looks[name] = np.array(values)
    assert looks["bias"].std(axis=0).max() < 1e-3
    assert looks["noise"].std(axis=0).mean() == pytest.approx(0.002 * np.sqrt(2) / 0.2, rel=0.4)


def test_a_slow_tracker_shows_what_was(under: Env) -> None:
    env = under(tracker_s=0.1)
    first = shown(env)["bottle_from_target_x"]
    env.world.engine.resetBasePositionAndOrientation(env.world.bottle, (0.6, 0.1, 0.06), (0.0, 0.0, 0.0, 1.0),
                                                     physicsClientId=env.world.client)
    env.decide([0.0, 0.0, 0.0])
    assert shown(env)["bottle_from_target_x"] == pytest.approx(first)
    for _ in range(5):
        env.decide([0.0, 0.0, 0.0])
    assert shown(env)["bottle_from_target_x"] != pytest.approx(first, abs=0.1)


def test_it_is_judged_by_where_things_are_and_not_by_what_is_seen(under: Env) -> None:
    """A tracker that sees every thing jump by centimetres has no obstacle moved."""
    env = under(noise_m=0.02)
    for _ in range(20):
        _, outcome = env.decide([0.0, 0.0, 0.0])
        assert outcome is not Outcome.COLLIDED


def test_a_wider_start_is_outside_of_the_usual_one() -> None:
    env, (low, high) = Panda().under(Variation.only(replace(NOMINAL, start_m=0.03))).one(), Panda().config.world.bottle_start[0]
    try:
        starts = [env.start(np.random.default_rng(seed)).bottle[0] for seed in range(40)]
        assert min(starts) < low
        assert max(starts) > high
    finally:
        env.close()


def test_the_same_seed_is_the_same_episode_and_its_pace_is_known_before(under: Env) -> None:
    task = Panda().stricter()
    assert task.played_under != NOTHING
    env = task.one()
    try:
        for seed in (3, 11):
            ways = []
            for _ in range(2):
                env.start(np.random.default_rng(seed))
                ways.append(path(env, 40))
                assert task.pace_of(seed) == pytest.approx(1 / (env.conditions.speed * env.conditions.period))
            assert np.array_equal(ways[0], ways[1])
    finally:
        env.close()
    assert Panda().pace_of(3) == 1.0


def test_methods_that_act_learn_under_the_tasks_variation_but_at_its_own_speed() -> None:
    task = varied(Panda())
    assert isinstance(task, Panda)
    assert task.played_under == replace(Panda().variation, speed=(1.0, 1.0)) != NOTHING
