"""Good people who lapse on the Panda: they succeed, are bad for a while, and in `lapses-equal` their lengths say nothing."""

from __future__ import annotations

import numpy as np
import pytest

from cail_core.demos.collect import roll_out_many
from cail_core.demos.episode import Episode
from cail_core.demos.truth import stretches
from cail_core.tasks import get_task
from cail_core.tasks.base import RestartableEnv

EACH = 4


@pytest.fixture(scope="module")
def made() -> dict[str, list[Episode]]:
    task = get_task("panda")
    people = {who.name: who for mix in ("lapses", "lapses-equal", "lapses-two-ways") for who, _ in task.mixes()[mix]
              if who.name.startswith(("strays", "pauses", "fumbles", "turns-back", "calm", "colliding-late", "near-optimal"))}
    env = task.make_env(8)
    assert isinstance(env, RestartableEnv)
    try:
        turns = list(enumerate(who for who in people.values() for _ in range(EACH)))
        episodes = list(roll_out_many(env, turns, 1, success=True))
    finally:
        env.close()
    return {name: episodes[EACH * i : EACH * (i + 1)] for i, name in enumerate(people)}


def bad_of(episode: Episode) -> int:
    assert episode.bad is not None
    assert len(episode.bad) == episode.length
    return int(episode.bad.sum())


def test_who_lapses_succeeds_all_the_same(made: dict[str, list[Episode]]) -> None:
    for name, episodes in made.items():
        assert {e.outcome for e in episodes} == ({"collided"} if name == "colliding-late" else {"success"}), name


@pytest.mark.parametrize(("kind", "least", "most"), [("strays", 25, 45), ("fumbles", 25, 45), ("pauses", 15, 60),
                                                     ("turns-back", 5, 40)])
def test_one_stretch_is_bad(made: dict[str, list[Episode]], kind: str, least: int, most: int) -> None:
    for name in (kind, f"{kind}-either-way"):
        for episode in made[name]:
            assert least <= bad_of(episode) <= most, name
            if kind in ("strays", "fumbles", "turns-back"):
                assert episode.bad is not None
                assert len(stretches(episode.bad)) <= 2, name
    assert all(bad_of(episode) < 15 for episode in made["near-optimal"] + made["calm"])


def test_in_the_equal_mix_length_says_nothing(made: dict[str, list[Episode]]) -> None:
    names = [who.name for who, _ in get_task("panda").mixes()["lapses-equal"]]
    means = {name: np.mean([e.length for e in made[name]]) for name in names}
    assert max(means.values()) < 1.25 * min(means.values()), means
    assert "lapses-equal" not in get_task("ur5e").mixes()  # a slower arm, on which they would differ
    assert {"lapses", "lapses-two-ways"} <= set(get_task("ur5e").mixes())


def test_either_way_passes_on_both_sides(made: dict[str, list[Episode]]) -> None:
    episodes = [e for name, of in made.items() if name.endswith("either-way") for e in of]
    place = get_task("panda").spec.observation_names.index("bottle_from_obstacle_x")
    sides = set()
    for episode in episodes:
        beside = episode.frames["observation.state"][:, place : place + 2]
        nearest = beside[np.abs(beside @ np.array([-0.824, -0.566])).argmin()]
        sides.add(float(np.sign(nearest @ np.array([-0.566, 0.824]))))
    assert sides == {-1.0, 1.0}
