"""`cail stress`: what is played, what counts as a loss, what is said of it, and that it goes onto the policy's card."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stopping import Plain, Stopping, write_policy

from cail_core import durable
from cail_core.cli import main
from cail_core.errors import BadInput
from cail_core.policy import load_policy
from cail_core.stress import card, findings, played, show
from cail_core.stress.played import AS_TRAINED, Case, Result, cases, chance, loses, moved, stress, stressable
from cail_core.tasks.base import Sensor
from cail_core.tasks.variation import FIELDS, Variation


def played_by(folder: Path, tmp_path: Path | None = None, **options: Any) -> list[Result]:
    return stress(load_policy(folder), Stopping(), tmp_path, **options)


def result(success: float, episodes: int = 16, what: str = "delay_s", strength: float = 1.0, value: float = 0.06,
           observation: str = "") -> Result:
    return Result(what, strength, value, observation, success, None, episodes, 0.0)


# What is played.


def test_every_condition_is_played_at_three_strengths_and_all_together() -> None:
    found = [(case.what, case.value) for case in cases(Stopping(), short=False)]
    assert found == [(AS_TRAINED, 0.0), ("delay_s", 0.1), ("delay_s", 0.2), ("delay_s", 0.3),
                     ("bias_m", 0.02), ("bias_m", 0.04), ("bias_m", 0.06), ("all", 0.5), ("all", 1.0), ("all", 1.5)]
    assert [(case.what, case.value) for case in cases(Stopping(), short=True)] == [
        (AS_TRAINED, 0.0), ("delay_s", 0.2), ("bias_m", 0.04), ("all", 1.0)]


def test_factors_are_played_both_ways_and_stay_above_zero() -> None:
    task = Stopping()
    task.variation = Variation(period=(0.4, 1.5), speed=(0.3, 1.0))
    found = {(case.what, case.value) for case in cases(task, short=False)}
    assert {("period", 0.7), ("period", 0.4), ("period", 0.25), ("period", 1.25), ("period", 1.75)} <= found
    assert {("speed", 0.65), ("speed", 0.3), ("speed", 0.1)} <= found
    beyond = Case("all", 1.5, 1.5).variation(task)
    assert beyond.period == (0.25, 1.75)
    assert beyond.speed == (0.1, 1.0)


def test_each_observation_is_moved_both_ways_by_what_its_sensors_may_be_wrong_by(tmp_path: Path) -> None:
    spec = replace(Stopping.spec, sensors=(*Stopping.spec.sensors, Sensor("arm", "m", 0.03, {"x": -1.0})))
    found = [(case.observation, case.value) for case in moved(spec, load_policy(write_policy(tmp_path / "p")))]
    assert found == [("x", -0.05), ("x", 0.05), ("grip", -0.002), ("grip", 0.002)], "3 and 4 cm make 5"


def test_delay_is_found_as_what_makes_it_fail(tmp_path: Path) -> None:
    """A gain of 2 takes 0.4 of the way in a step: without delay it comes to rest, three steps late it swings ever further."""
    found = played_by(write_policy(tmp_path / "p"))
    said = findings.sentences(found)
    assert said[0] == "as trained: 100% of 48 episodes succeed"
    assert any(text.startswith("fails from delay 300 ms on: ") for text in said), said
    assert not any("bias" in text or "steers" in text for text in said), said
    held = findings.holds(found)
    assert held["delay_s"] == 0.2
    assert held["bias_m"] == 0.06


@pytest.mark.parametrize(("by_grip", "leans"), [(0.0, []), (300.0, ["grip"]), (-300.0, ["grip"])])
def test_a_policy_that_leans_on_what_means_nothing_is_found(tmp_path: Path, by_grip: float, leans: list[str]) -> None:
    """`grip` is always 0 here, so the policy succeeds; 2 mm of it are then 0.6 of the full speed."""
    found = played_by(write_policy(tmp_path / "p", by_grip=by_grip))
    assert findings.baseline(found).success == 1.0
    assert [one.observation for one in findings.leans(found)] == leans
    assert [text.split(":")[0] for text in findings.sentences(found) if "steers" in text] == [f"steers by {n}" for n in leans]


def test_what_a_gate_hides_from_the_policy_it_does_not_lean_on(tmp_path: Path) -> None:
    gates = [{"hidden": ["grip"], "when": {"x": [-10.0, 10.0]}}]
    assert findings.leans(played_by(write_policy(tmp_path / "p", by_grip=300.0, gates=gates))) == []


# What counts as a loss.


def test_the_chance_of_a_fall_is_that_of_fisher_s_exact_test() -> None:
    """3 failures, all among the 16 of 64: C(16, 3) / C(64, 3) = 560 / 41664."""
    assert chance(3, 16, 0, 48) == pytest.approx(560 / 41664)
    assert chance(0, 16, 5, 48) == 1.0
    assert chance(2, 3, 1, 3) == pytest.approx((3 * 3 + 1) / 20)


def test_a_few_failures_of_few_episodes_are_not_a_loss_and_many_are() -> None:
    usual = result(1.0, 48, AS_TRAINED)
    assert not loses(result(14 / 16), usual)
    assert not loses(result(13 / 16), usual), "three of 16: once in 74 times"
    assert loses(result(11 / 16), usual)
    assert not loses(result(0.95, 2000), result(1.0, 2000, AS_TRAINED)), "sure, but small"


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 40), st.integers(1, 120), st.data())
def test_the_chance_is_a_probability_and_falls_with_failures(episodes: int, usual_episodes: int, data: st.DataObject) -> None:
    usual_failures = data.draw(st.integers(0, usual_episodes))
    values = [chance(k, episodes, usual_failures, usual_episodes) for k in range(episodes + 1)]
    assert all(0.0 < value <= 1.0 for value in values)
    assert all(b <= a + 1e-12 for a, b in pairwise(values))


def test_a_good_policy_is_rarely_said_to_lose_by_luck() -> None:
    """80 cases of a policy that succeeds in 95% whatever happens, 200 times, decided as `stress` decides."""
    rng, wrong = np.random.default_rng(0), 0

    def more(episodes: int, what: str = "delay_s") -> Result:
        return result(1 - rng.binomial(episodes, 0.05) / episodes, episodes, what)

    for _ in range(200):
        usual, lost = more(48, AS_TRAINED), False
        for _ in range(80):
            found = more(16)
            for _ in range(played.ROUNDS - 1):
                if played.falls(found, usual) and not loses(found, usual):
                    found = found.with_more(more(16))
            lost |= loses(found, usual)
        wrong += lost
    assert wrong <= 20


@pytest.mark.parametrize(("failures", "episodes", "lost"), [
    ([0], 16, False),
    ([1], 16, False),
    ([6], 16, True),
    ([3, 0], 32, False),
    ([3, 3], 32, True),
    ([2, 3, 3], 48, True),
    ([2, 2, 2, 1], 64, False),
])
def test_what_may_be_chance_is_played_on_until_it_is_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: list[int],
                                                           episodes: int, lost: bool) -> None:
    """So many of 16 fail in each round of delay. 3 of 16 are 19 points, but in one of 74 by chance."""
    left, seeds = list(failures), set()

    def scripted(case: Case, task: Any, policy: Any, n: int, seed: int) -> Result:
        if case.what != "delay_s":
            return result(1.0, n, case.what)
        seeds.add(seed)
        return result(1 - left.pop(0) / n, n)

    monkeypatch.setattr(played, "_played", scripted)
    found = played_by(write_policy(tmp_path / "p"), short=True)
    delayed = next(one for one in found if one.what == "delay_s")
    assert (delayed.episodes, loses(delayed, found[0])) == (episodes, lost)
    assert len(seeds) == episodes // 16, "other starts in each round"


def test_two_rounds_count_as_one() -> None:
    more = replace(result(0.5, 8), closest_m=0.01, returns=-4.0)
    both = replace(result(0.75, 16), closest_m=0.02, returns=-1.0).with_more(more)
    assert (both.episodes, both.failures, both.closest_m, both.returns) == (24, 8, 0.01, -2.0)
    assert both.success == pytest.approx(16 / 24)


def test_a_policy_that_fails_as_trained_is_not_said_to_hold_anything(tmp_path: Path) -> None:
    folder = write_policy(tmp_path / "p", gain=0.0)
    found = played_by(folder, short=True)
    assert [one.what for one in found] == [AS_TRAINED], "what it loses by cannot be seen, and is not played"
    assert findings.holds(found) == {}
    assert card.write_card(folder, found)
    assert "| as trained | 0% |" in (folder / "README.md").read_text()
    assert show.figure(found, "p", tmp_path / "p.png").is_file()
    assert "cannot be said what it holds" in findings.sentences(found)[-1]


def test_conditions_hold_up_to_the_last_value_before_the_first_loss() -> None:
    found = [result(1.0, 48, AS_TRAINED),
             *(result(s, value=v, strength=k) for s, v, k in ((1, 0.03, 0.5), (0.4, 0.06, 1), (1, 0.09, 1.5))),
             *(result(s, what="speed", value=v, strength=k) for s, v, k in ((1, 0.75, 0.5), (1, 0.5, 1), (0.2, 0.25, 1.5))),
             result(1.0, what="period", value=1.5), result(0.0, what="period", value=0.5)]
    assert findings.holds(found) == {"delay_s": 0.03, "speed_least": 0.5, "period": 1.5, "period_least": 1.0}
    assert findings.sentences(found)[1:] == [
        "fails from delay 60 ms on: 40% succeed", "fails from speed limit × 0.25 down: 20% succeed",
        "fails from control period × 0.5 down: 0% succeed"]


def test_what_may_be_chance_is_said_to_be_so() -> None:
    found = [result(1.0, 48, AS_TRAINED), result(14 / 16), result(1.0, what="all", strength=1.0, value=1.0)]
    assert findings.sentences(found)[1:] == ["perhaps fails from delay 60 ms on: 88% of 16 succeed, which may be chance"]
    assert findings.holds(found)["delay_s"] == 0.06
    assert findings.sentences([found[0], found[2]])[1:] == [
        "holds every condition that was played, each alone and all together over the whole practised ranges"]


# Files.


def test_it_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    policy, task = load_policy(write_policy(tmp_path / "p")), Stopping()

    def stop(done: int, of: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stress(policy, task, tmp_path, advance=stop)
    assert 4 <= task.made < 8
    found = stress(policy, task, tmp_path)
    once = task.made
    assert stress(policy, task, tmp_path) == found
    assert task.made == once, "everything was known"
    fresh = Stopping()
    assert stress(policy, fresh, None) == found
    assert fresh.made == once, "nothing was played twice"


def test_short_and_whole_do_not_undo_each_other(tmp_path: Path) -> None:
    policy, task = load_policy(write_policy(tmp_path / "p")), Stopping()
    stress(policy, task, tmp_path)
    before = task.made
    stress(policy, task, tmp_path, short=True)
    stress(policy, task, tmp_path, short=True, episodes=4)
    mixed = task.made
    stress(policy, task, tmp_path)
    assert before < mixed == task.made, "only the four episodes each were new"


@pytest.mark.parametrize("change", ["policy", "ranges", "seed", "damage"])
def test_what_was_played_of_something_else_does_not_count(tmp_path: Path, change: str) -> None:
    policy, task = load_policy(write_policy(tmp_path / "p")), Stopping()
    stress(policy, task, tmp_path, short=True)
    other = load_policy(write_policy(tmp_path / "q", gain=1.9)) if change == "policy" else policy
    task = Stopping()
    if change == "ranges":
        task.variation = Variation(delay_s=(0.0, 0.2), bias_m=(0.0, 0.05))
    if change == "damage":
        (tmp_path / "stress.json").write_text('{"key": ')
    stress(other, task, tmp_path, short=True, seed=int(change == "seed"))
    assert task.made >= len(cases(task, short=True))


def test_the_card_tells_what_was_found_and_the_policy_stays_the_same(tmp_path: Path) -> None:
    folder = write_policy(tmp_path / "run" / "policy")
    before = {name: (folder / name).read_bytes() for name in ("policy.safetensors",)}
    found = played_by(folder)
    assert card.write_card(folder, found)
    about = load_policy(folder).card.stress
    assert about["holds"] == findings.holds(found)
    assert about["sentences"] == findings.sentences(found) == findings.sentences(findings.results_of(about))
    text = (folder / "README.md").read_text()
    assert text.index("## What it holds") < text.index("fails from delay 300 ms on") < text.index("## Where it comes from")
    assert "| delay | 100 ms: 100% | 200 ms: 100% | 300 ms: 0% (loss) |" in text
    assert all((folder / name).read_bytes() == content for name, content in before.items())
    assert card.write_card(folder, found)
    assert (folder / "README.md").read_text() == text, "the section is replaced, not repeated"
    assert sorted(path.name for path in folder.parent.iterdir()) == ["policy"]


def test_a_card_that_rests_on_more_episodes_is_kept(tmp_path: Path) -> None:
    folder = write_policy(tmp_path / "policy")
    assert card.write_card(folder, played_by(folder))
    whole = (folder / "policy.json").read_bytes()
    assert not card.write_card(folder, played_by(folder, short=True))
    assert (folder / "policy.json").read_bytes() == whole


def test_a_writer_that_dies_leaves_the_old_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_policy(tmp_path / "policy")
    found = played_by(folder, short=True)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "write_bytes", full)
    with pytest.raises(Exception, match="full"):
        card.write_card(folder, found)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_cards_of_before_load_and_damaged_ones_are_refused_in_a_line(tmp_path: Path) -> None:
    folder = write_policy(tmp_path / "p")
    about = json.loads((folder / "policy.json").read_text())
    del about["stress"]
    (folder / "policy.json").write_text(json.dumps(about))
    assert load_policy(folder).card.stress == {}
    good = findings.summary(played_by(folder, short=True))
    for wrong in ({"holds": "much"}, {"holds": {"delay_s": "0.06"}}, {"cases": [{"what": "delay_s"}]}, {"cases": []},
                  {"sentences": [1]}, {"success": None}, {"holds": {"delay_s": float("nan")}}):
        (folder / "policy.json").write_text(json.dumps(about | {"stress": good | wrong}))
        with pytest.raises(BadInput, match="key 'stress': expected what `cail stress` writes") as fault:
            load_policy(folder)
        assert "\n" not in str(fault.value)
    (folder / "policy.json").write_text(json.dumps(about | {"stress": ["much"]}))
    with pytest.raises(BadInput, match="key 'stress': expected dict"):
        load_policy(folder)
    (folder / "policy.json").write_text(json.dumps(about | {"stress": good}))
    assert load_policy(folder).card.stress == good


def test_what_was_played_lies_in_the_run_or_beside_a_policy_of_another_name(tmp_path: Path) -> None:
    assert card.place(tmp_path / "run" / "policy") == tmp_path / "run"
    assert card.place(tmp_path / "shipped") == tmp_path / "shipped-stress"


# What a person sees.


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    from cail_core.commands import stress as command

    monkeypatch.setattr(command, "get_task", lambda name: {"stopping": Stopping, "plain": Plain}[name]())


@pytest.mark.usefixtures("_installed")
def test_the_command_ends_with_the_sentences_and_fits_80_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    write_policy(tmp_path / "run" / "policy", by_grip=300.0)
    assert main(["stress", "--policy", "run/policy"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in out[: out.index(next(line for line in out if line.startswith("plot:")))])
    assert any(line.split()[7:10] == ["300", "ms", "0%!"] for line in out), out
    assert out[-1].startswith("steers by grip: moved by 0.002")
    assert (tmp_path / "run" / "stress.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "run" / "stress.json").is_file()
    assert load_policy(tmp_path / "run" / "policy").card.stress["leans"] == ["grip"]


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(("words", "said"), [
    (["--policy", "nowhere"], "expected a policy folder"),
    (["--policy", "run/policy", "--episodes", "0"], "expected at least 1 episode"),
    (["--policy", "run/policy", "--episodes", "-1"], "expected a whole number"),
    (["--policy", "run/policy", "--task", "plain"], "which has no variation to play"),
])
def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
                               words: list[str], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    write_policy(tmp_path / "run" / "policy")
    try:
        code = main(["stress", *words])
    except SystemExit as ended:
        code = int(ended.code or 0)
    error = capsys.readouterr().err
    assert code == 2
    assert said in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["policy"], "nothing half-written"


@pytest.mark.usefixtures("_installed")
def test_another_task_s_results_do_not_go_onto_the_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_policy(tmp_path / "policy", task="another")
    assert main(["stress", "--policy", str(folder), "--task", "stopping", "--short", "--out", str(tmp_path / "out")]) == 0
    assert "card: not changed" in capsys.readouterr().out
    assert load_policy(folder).card.stress == {}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["stress.json", "stress.png"]


def test_tasks_without_ranges_success_or_environment_are_not_stressed() -> None:
    assert stressable(Stopping())
    assert not stressable(Plain())
    for change in ({"has_success": False}, {"on_arm": True}):
        task = Stopping()
        task.spec = replace(Stopping.spec, **change)
        assert not stressable(task)


def test_every_condition_has_a_name_and_a_unit() -> None:
    for name in FIELDS:
        assert show.row_name(name, True)
        assert show.value_text(result(1.0, what=name, value=0.5))


def test_the_short_form_is_played_once_and_is_on_the_card(tmp_path: Path) -> None:
    folder, task = write_policy(tmp_path / "run" / "policy"), Stopping()
    policy = card.short_form(folder, load_policy(folder), task)
    assert policy.card.stress["holds"]["bias_m"] == 0.04
    made = task.made
    card.short_form(folder, policy, task)
    assert task.made == made
    shutil.rmtree(tmp_path / "run")
    plain = write_policy(tmp_path / "run" / "policy")
    assert card.short_form(plain, load_policy(plain), Plain()).card.stress == {}
