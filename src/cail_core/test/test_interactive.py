"""Ranking by asking, as a person does it: in a real terminal, with undo, ties, stopping and going on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from builders import episode, fast_folder, features, write
from person import Window, at_terminal

from cail_core.cli import main
from cail_core.demos import sketch as sketches
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.edit import delete
from cail_core.demos.episode import Episode, end_flags
from cail_core.demos.facts import facts_of, view_of
from cail_core.demos.features import ACTION, STATE, frame_features
from cail_core.demos.sketch import sketch
from cail_core.errors import DatasetError
from cail_core.ranking.comparisons import FILE, Comparisons, choose
from cail_core.ranking.ranks import from_groups, read_ranking
from cail_core.tasks import TaskSpec
from cail_core.tasks.base import Thing, View
from cail_core.terminal import fit, split_keys

RANK = [sys.executable, "-m", "cail_core.cli", "demos", "rank"]


@pytest.fixture
def collected() -> Iterator[Path]:
    with fast_folder() as folder:
        out = Path(folder, "demos")
        assert main(["demos", "collect", "--task", "pointmass", "--episodes", "20", "--seed", "3", "--out", str(out)]) == 0
        yield out


def shown_pair(window: Window) -> tuple[int, int]:
    left, right = re.findall(r"episode (\d+),", window.wait_for("Which is better?"))
    return int(left), int(right)


def press(window: Window, key: str, question: int | str) -> None:
    """Press a key and wait for what must be on the screen after it."""
    window.type(key)
    window.wait_for(f"question {question} of" if isinstance(question, int) else question)


def ranks(root: Path) -> dict[int, int]:
    return {row.episode_index: row.rank for row in DemoDataset(root).rows if row.rank}


def test_a_person_ranks_undoes_stops_and_goes_on(collected: Path) -> None:
    worth = {0: 5, 3: 4, 7: 4, 11: 1, 12: 0}  # 3 and 7 are tied

    def better(window: Window) -> str:
        left, right = shown_pair(window)
        return "=" if worth[left] == worth[right] else "1" if worth[left] > worth[right] else "Right"

    with at_terminal([*RANK, str(collected), "--episodes", "0,3,7", "11-12", "--who", "anna"]) as window:
        first = window.wait_for("question 1 of at most 7, 5 episodes, by anna")
        for part in ("episode 0, expert", "outcome  ", "length      5.0 s, 50 frames", "path  ", "smoothness  ", "+ goal"):
            assert part in first, first
        assert len(first.splitlines()) <= 24
        assert max(map(len, first.splitlines())) <= 80
        wrong = "Right" if better(window) == "1" else "1"
        press(window, wrong, 2)
        press(window, "u", 1)
        press(window, better(window), 2)
        press(window, better(window), 3)
        window.resize(100, 30)
        window.wait_for("question 3 of")
        window.type("q")
        window.wait_for("goes on from there")
        window.wait_for("ended with 0")
    kept = json.loads((collected / FILE).read_text())
    assert [answer["by"] for answer in kept["answers"]] == ["anna", "anna"]
    assert len(ranks(collected)) >= 2, "what is known is in the dataset"

    with at_terminal([*RANK, str(collected), "--who", "ben"]) as window:
        asked = 3
        window.wait_for("question 3 of at most 7, 5 episodes, by ben")
        while "all answered" not in (screen := window.screen):
            if f"question {asked} of" in screen:
                window.type(better(window))
                asked += 1
            time.sleep(0.02)
        window.wait_for("0 > 3 = 7 > 11 > 12")
        window.type("Enter")
        window.wait_for("ended with 0")
    assert asked - 1 <= 7
    assert ranks(collected) == {0: 1, 3: 2, 7: 2, 11: 4, 12: 5}
    how = json.loads((collected / "meta/ranking.json").read_text())
    assert (how["by"], how["who"]) == ("person", ["anna", "ben"])
    assert how["at"].startswith("20")
    assert read_ranking(collected / "meta/ranking.json", episodes=20) == ranks(collected)


def test_a_tiny_window_and_ascii_only(collected: Path) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with at_terminal([*RANK, str(collected), "--count", "4"], size=(50, 12), **ascii_only) as window:
        window.wait_for("make this window at least")
        window.resize(80, 24)
        seen = window.wait_for("1 left   2 right")
        assert not [c for c in seen if 0x2800 <= ord(c) <= 0x28FF]
        window.type("C-c")
        window.wait_for("no ranks were set")
        window.wait_for("ended with 0")
    assert ranks(collected) == {}


def test_answers_survive_sigkill_and_the_terminal_survives_sigterm(collected: Path) -> None:
    command = [*RANK, str(collected), "--count", "5"]
    for number, stop in enumerate((signal.SIGKILL, signal.SIGTERM), start=1):
        with at_terminal(["sh", "-c", f"echo $$ > {collected}/pid; exec \"$@\"", "sh", *command]) as window:
            window.wait_for(f"question {number} of")
            press(window, "1", number + 1)
            os.kill(int((collected / "pid").read_text()), stop)
            seen = window.wait_for(f"ended with {128 + stop}")
            assert stop == signal.SIGKILL or "question" not in seen, "the screen is as it was before"
        assert len(json.loads((collected / FILE).read_text())["answers"]) == number


def test_without_a_terminal_one_line_says_what_to_do(collected: Path) -> None:
    done = subprocess.run([*RANK, str(collected)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "expected a terminal" in done.stderr
    assert "--by return" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (collected / FILE).exists()


def test_options_of_another_way_are_refused(collected: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["demos", "rank", str(collected), "--by", "return", "--count", "3"]) == 2
    assert "--count" in capsys.readouterr().err
    for wrong in (["--count", "1"], ["--count", "21"], ["--episodes", "4"], ["--episodes", "4,20"]):
        assert main(["demos", "rank", str(collected), *wrong]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_chosen_episodes_are_spread_over_the_demonstrators(collected: Path) -> None:
    dataset = DemoDataset(collected)
    for seed in range(3):
        people = [dataset.rows[e].demonstrator for e in choose(dataset, 10, seed)]
        assert {who: people.count(who) for who in people} == dict.fromkeys(("expert", "good", "fair", "poor", "hopeless"), 2)
    assert choose(dataset, 10, 0) == choose(dataset, 10, 0) != choose(dataset, 10, 1)


def test_answers_follow_their_episodes_when_others_are_deleted(collected: Path) -> None:
    comparisons = Comparisons.of(DemoDataset(collected), [2, 5, 9])
    comparisons.answer((2, 5), 5, "anna")
    comparisons.answer((5, 9), None, "anna")
    comparisons.answer((2, 9), 9, "anna")
    delete(collected, [0, 2])
    found = Comparisons.last(DemoDataset(collected))
    assert found is not None
    assert found.episodes == [3, 7]
    assert [(answer.pair, answer.better) for answer in found.answers] == [((3, 7), None)]


def test_a_damaged_file_of_answers_is_said(collected: Path) -> None:
    for text in ("{", "[]", '{"ranking": [1], "episodes": {"1": "x"}, "answers": [3]}'):
        (collected / FILE).write_text(text)
        with pytest.raises(DatasetError, match="comparisons"):
            Comparisons.last(DemoDataset(collected))


def test_undo_takes_back_only_what_concerns_these_episodes(collected: Path) -> None:
    first = Comparisons.of(DemoDataset(collected), [0, 1])
    first.answer((0, 1), 0, "anna")
    second = Comparisons.of(DemoDataset(collected), [2, 3])
    second.answer((2, 3), 3, "anna")
    again = Comparisons.of(DemoDataset(collected), [0, 1])
    assert again.undo()
    assert not again.undo()
    assert [answer.pair for answer in again.answers] == [(2, 3)]


def test_facts_of_a_path_worked_out_by_hand() -> None:
    names = ("dx", "dy", "ox", "oy")
    like = frame_features(names, ("a",), reward=False, success=False)
    box = Thing("box", ({"dx": -1, "ox": 1}, {"dy": -1, "oy": 1}), 0.5, keep_clear=True)
    things = (Thing("goal", ({"1": 1.0}, {"1": 2.0})), box)
    view = View("tool", ({"dx": -1.0}, {"dy": -1.0}), things, radius_m=0.25)
    spec = TaskSpec("t", "", "", 10, 9, names, ("a",), view=view)
    states = np.array([[0, 0, 3, 4], [-3, -4, 0, 2], [-3, -4, 5, 0]], dtype=np.float32)
    actions = np.array([[0.0], [1.0], [0.5]], dtype=np.float32)
    one = Episode({STATE: states, ACTION: actions, **end_flags(3, truncated=False)}, np.array([-3, 0, 9, 9], np.float32))
    with fast_folder() as folder:
        facts = facts_of(write(Path(folder, "demos"), [one], like), 0, spec)
    assert (facts.frames, facts.seconds) == (3, 3 / 50)
    assert facts.path_length == 5 + 0 + 4
    assert facts.roughness == (1.0 + 0.5) / 2
    assert facts.clearance == 2.0 - 0.5 - 0.25
    assert facts.things == {"goal": (1.0, 2.0), "box": (3.0, 4.0)}
    assert facts.path.tolist() == [[0, 0], [3, 4], [3, 4], [3, 0]]


def test_other_tasks_show_the_first_two_numbers_and_no_obstacle() -> None:
    like = features()
    with fast_folder() as folder:
        dataset = write(Path(folder, "demos"), [episode(4, 0, like)], like)
        assert view_of(dataset) is None, "the task pointmass observes other things"
        facts = facts_of(dataset, 0, None)
    assert facts.clearance is None
    assert np.array_equal(facts.path[:4], episode(4, 0, like).frames[STATE][:, :2])


def test_a_sketch_worked_out_by_hand() -> None:
    path = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 7.0]])
    view = sketches.View((1.5, 3.5), 1.0)  # 4 × 8 dots: x 0 … 3 to the right, y 0 … 7 up
    assert sketch(path, view, 2, 2, {}) == ["\u2800\u28b8".replace("\u2800", " "), "\u28c0\u28f8"]
    assert sketch(path, view, 2, 2, {"o": (0.0, 0.0)}, unicode=False) == [" .", "o."]


def test_a_sketch_fits_and_keeps_shape() -> None:
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([5 + 3 * np.cos(angle), 3 * np.sin(angle)], axis=1)
    lines = sketch(circle, sketches.View.of([circle], 40, 12), 40, 12, {})
    inked = [[x for x, c in enumerate(line) if c != " "] for line in lines]
    rows = [i for i, line in enumerate(inked) if line]
    width = max(map(max, filter(None, inked))) - min(map(min, filter(None, inked))) + 1
    assert (rows[0], rows[-1]) == (0, 11), "the circle fills the height"
    assert 2 * width == pytest.approx(4 * len(rows), abs=4), "as wide as high, in dots"
    still = np.zeros((3, 2))
    assert sketch(still, sketches.View.of([still], 10, 3), 10, 3, {"o": (0.0, 0.0)})[1].strip() == "o"


def test_keys_are_told_apart() -> None:
    keys = split_keys("a\x1b[A\x1bOD\x7f\r \x03\x1b[1;5Cé\x1b")
    assert keys == ["a", "up", "left", "backspace", "enter", "space", "ctrl-c", "é", "escape"]
    assert fit("céline", 4) == "cél…"
    assert fit("日本語", 5) == "日本…"
    assert fit("ab", 4) == "ab  "


def test_groups_become_ranks() -> None:
    assert from_groups([[5], [3, 2], [1]]) == {5: 1, 3: 2, 2: 2, 1: 4}


def test_a_second_person_at_the_same_time_is_told_so(dataset: DemoDataset) -> None:
    with at_terminal([*RANK, str(dataset.root), "--count", "3"]) as window:
        window.wait_for("question 1 of")
        with at_terminal([*RANK, str(dataset.root)]) as other:
            other.wait_for("being written by another process")
            other.wait_for("ended with 2")
        window.type("q")
        window.wait_for("ended with 0")


def test_a_dataset_without_positions_or_rewards_can_be_ranked() -> None:
    like = frame_features(("x",), ("v",), reward=False, success=False)
    with fast_folder() as folder:
        root = Path(folder, "demos")
        made = [
            Episode({STATE: np.full((3, 1), i, np.float32), ACTION: np.zeros((3, 1), np.float32), **end_flags(3, truncated=True)},
                    np.zeros(1, np.float32))
            for i in range(2)
        ]  # fmt: skip
        write(root, made, like)
        with at_terminal([*RANK, str(root), "--count", "2"]) as window:
            press(window, "Left", "all answered")
            window.type("Enter")
            window.wait_for("best first: 0 >1")
        assert ranks(root) == {0: 1, 1: 2}
