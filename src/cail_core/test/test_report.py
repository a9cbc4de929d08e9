"""`cail report`: one page from run folders, read by a person and by a real browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import Browser, find_chromium
from builders import fast_folder
from safetensors.numpy import save_file

from cail_core.cli import main
from cail_core.config import find_config
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.episode import Episode, end_flags
from cail_core.demos.features import REWARD, STATE, frame_features
from cail_core.demos.writer import DemoWriter
from cail_core.evaluation import evaluate
from cail_core.policy import load_policy
from cail_core.report import findings
from cail_core.report.findings import gather
from cail_core.report.motion import motion_of, thinned
from cail_core.report.played import EVALUATION, play
from cail_core.report.plots import COLOURS, confidence_colours, rank_colours
from cail_core.report.svg import number, ticks
from cail_core.report.trust import pairs_in_order, rank_correlation, segments
from cail_core.tasks import BatchEnv, TaskSpec, Thing, View, get_task
from cail_core.tasks.variation import NOTHING, Variation

CHROMIUM = find_chromium()
MISCHIEF = "<script>alert(1)</script>&\"x'"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Two short runs on 30 demonstrations, one of them with a report that `cail train` left."""
    with fast_folder() as place:
        demos = str(Path(place, "demos"))
        assert main(["demos", "collect", "--task", "pointmass", "--episodes", "30", "--out", demos]) == 0
        assert main(["demos", "rank", demos, "--by", "return", "--fraction", "0.2"]) == 0
        short = Path(place, "short.yaml")
        short.write_text(find_config("cail-bc").read_text().replace("confidence: {steps: 300", "confidence: {steps: 60"))
        for method, config in (("cail-bc", str(short)), ("bc", "bc")):
            assert main(["train", "--task", "pointmass", "--demos", demos, "--method", method, "--steps", "100",
                         "--config", config, "--out", str(Path(place, method))]) == 0
        yield Path(place)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    shutil.copytree(folder, tmp_path / "lab")
    return tmp_path / "lab"


def refused(argv: list[str], capsys: pytest.CaptureFixture[str], *said: str) -> None:
    capsys.readouterr()
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    for text in said:
        assert text in error, error


def test_training_ends_with_a_report_that_needs_nothing_else(folder: Path) -> None:
    text = (folder / "cail-bc" / "report.html").read_text()
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)""", text)
    assert "url(" not in text and "@import" not in text  # noqa: PT018
    for part in ("How good is the policy?", "Whom did it trust?", "Most trusted", "Does it see the ranking?", "How did it learn?",
                 "What to do next", "How it was made", "expert", "idle", "random", "trusted_fraction: 0.1", "95% interval"):
        assert part in text, part


class Blown:
    """The point mass, said to be seen with a delay; with a delay nothing moves."""

    variation = Variation(delay_s=(0.0, 0.06))

    def __init__(self, played_under: Variation = NOTHING) -> None:
        self._task, self._still = get_task("pointmass"), played_under.delay_s[1] > 0
        self.spec, self.mixes = self._task.spec, self._task.mixes

    def under(self, variation: Variation) -> Blown:
        return Blown(variation)

    def make_env(self, num_envs: int) -> BatchEnv:
        env = self._task.make_env(num_envs)
        if self._still:
            step = env.step
            env.step = lambda action: step(0 * action)
        return env


def test_the_page_and_the_card_say_what_makes_the_policy_fail(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, card = copy / "cail-bc", copy / "cail-bc" / "policy" / "policy.json"
    assert main(["report", str(run), "--out", str(copy / "plain.html")]) == 0
    plain = (copy / "plain.html").read_text()
    assert "another arm" not in plain, "a task without other conditions has nothing to say of them"
    monkeypatch.setattr(findings, "get_task", lambda name: Blown())
    steers = np.concatenate([3 * np.eye(2), -2 * np.eye(2)], axis=1).astype(np.float32)  # as the best demonstrator
    save_file({"observation_mean": np.zeros(4, np.float32), "observation_scale": np.ones(4, np.float32),
               "layer0.weight": steers, "layer0.bias": np.zeros(2, np.float32)}, run / "policy" / "policy.safetensors")
    assert main(["report", str(run), "--no-stress", "--out", str(copy / "without.html")]) == 0
    assert "cail stress --policy" in (copy / "without.html").read_text()
    assert json.loads(card.read_text())["stress"] == {}
    assert main(["report", str(run), "--out", str(copy / "with.html")]) == 0
    text = (copy / "with.html").read_text()
    assert "Does it hold on another arm?" in text
    assert "fails from delay 60 ms on: 0% succeed" in text
    assert json.loads(card.read_text())["stress"]["holds"]["delay_s"] == 0.0
    assert "fails from delay 60 ms on" in (run / "policy" / "README.md").read_text()
    (run / "stress.json").unlink()
    assert main(["report", str(run), "--episodes", "0", "--out", str(copy / "again.html")]) == 0
    assert "fails from delay 60 ms on: 0% succeed" in (copy / "again.html").read_text(), "from the card, nothing is played"
    assert not (run / "stress.json").exists()


@pytest.mark.parametrize("words", [[], ["--no-stress"]])
def test_training_plays_the_short_form_unless_told_not_to(copy: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setattr(findings, "get_task", lambda name: Blown())
    run = copy / "again"
    assert main(["train", "--task", "pointmass", "--demos", str(copy / "demos"), "--method", "bc", "--steps", "50",
                 "--out", str(run), *words]) == 0
    told = load_policy(run / "policy").card.stress
    assert [case["what"] for case in told.get("cases", [])] == ([] if words else ["as trained"]), "so weak that no more is played"
    assert (run / "stress.json").exists() is not bool(words)


def test_the_page_says_who_goes_another_way(copy: Path) -> None:
    card = copy / "cail-bc" / "policy" / "policy.json"
    about = json.loads(card.read_text())
    about["provenance"]["another_way"] = [3, 4]
    card.write_text(json.dumps(about))
    assert main(["report", str(copy / "cail-bc")]) == 0
    assert "2 trusted demonstrations (episodes 3, 4) go another way than most" in (copy / "cail-bc" / "report.html").read_text()


def test_the_page_tells_the_numbers_that_an_evaluation_gives(folder: Path) -> None:
    assert main(["report", str(folder / "bc"), str(folder / "cail-bc"), "--out", str(folder / "both.html")]) == 0
    text = (folder / "both.html").read_text()
    result = evaluate(get_task("pointmass"), load_policy(folder / "bc" / "policy"), 100, 0)
    low, high = result.success_interval()
    assert f"{int(result.success.sum())} of 100 episodes succeed" in text
    assert f"95% interval {100 * low:.0f}–{100 * high:.0f}%" in text
    assert f"{abs(result.mean):.1f}" in text
    rows = DemoDataset(folder / "demos").rows
    expert = np.mean([row.undiscounted_return for row in rows if row.demonstrator == "expert"])
    assert f"expert ({number(float(expert))})" in text


def test_recorded_episodes_are_those_that_are_evaluated(folder: Path) -> None:
    """21 episodes over 20 environments: the first environment gives two of them."""
    task, policy = get_task("pointmass"), load_policy(folder / "bc" / "policy")
    played, result = play(task, policy, 21, 5), evaluate(task, policy, 21, 5)
    assert played.returns == result.returns.tolist()
    assert len(played.paths) == len(played.top_speed) == 21
    ends = np.linalg.norm([path[-1] for path in played.paths], axis=1)
    assert (ends[result.success] < 0.1).all()  # the goal's radius
    assert played.closest == []


def test_episodes_are_played_once_and_again_for_another_policy(copy: Path) -> None:
    run = copy / "bc"
    before = (run / EVALUATION).read_bytes()
    assert main(["report", str(run)]) == 0
    assert (run / EVALUATION).read_bytes() == before
    shutil.rmtree(run / "policy")
    shutil.copytree(copy / "cail-bc" / "policy", run / "policy")
    assert main(["report", str(run)]) == 0
    assert (run / EVALUATION).read_bytes() != before
    (run / EVALUATION).write_text("{")
    assert main(["report", str(run)]) == 0


def test_motion_is_measured_in_metres_from_what_the_task_says() -> None:
    """Positions 0, 0.3, 0.9 m along x at 10 Hz beside an obstacle of radius 0.1 m at (0.3, 0.5), tool of 0.05 m."""
    spec = TaskSpec("t", "", "r", 10, 5, ("far_x", "far_y", "beside"), ("a",), view=View(
        "tool", ({"far_x": -0.1, "1": 1.0}, {"far_y": 0.1}),
        (Thing("box", ({"beside": 1.0, "1": 0.1}, {"1": 0.5}), radius_m=0.1, keep_clear=True),), radius_m=0.05))
    states = np.array([[10.0, 0, 0.2], [7.0, 0, 0.2], [1.0, 0, 0.2]])
    motion = motion_of(spec, states)
    assert motion is not None
    assert motion.path == pytest.approx(np.array([[0, 0], [0.3, 0], [0.9, 0]]))
    assert motion.top_speed == pytest.approx(6.0)
    assert motion.closest == pytest.approx(0.5 - 0.1 - 0.05)
    assert motion.things["box"] == pytest.approx([0.3, 0.5])
    with pytest.raises(ValueError, match="nearby"):
        TaskSpec("t", "", "r", 10, 5, ("far_x",), ("a",), view=View("tool", ({"nearby": 1.0}, {"far_x": 1.0})))


def test_the_pandas_view_turns_its_observation_around() -> None:
    from cail_core.tasks.pick_place_avoid import OBSERVATION_NAMES, PickPlaceAvoid, PickPlaceAvoidConfig, Scene, view

    config = PickPlaceAvoidConfig()
    task = PickPlaceAvoid(config, 100)
    up = (0.1, 0.0, float(np.sqrt(0.99)))
    scene = Scene(tool=(0.6, 0.05, 0.22), bottle=(0.7, -0.03, 0.0), bottle_up=up, obstacle=(0.5, -0.165, 0.085),
                  obstacle_up=(0.0, 0.0, 1.0), target=(0.3, -0.31, 0.04), opening=1.0)
    task.begin(scene)
    spec = TaskSpec("p", "", "r", 50, 5, OBSERVATION_NAMES, ("a",), view=view(config, 0.03, 0.04, 0.17))
    motion = motion_of(spec, np.array([task.observe(scene)] * 2))
    assert motion is not None
    assert motion.path[0] == pytest.approx(scene.tool)
    assert motion.things["obstacle"] == pytest.approx(scene.obstacle)
    assert motion.things["target"] == pytest.approx(scene.target, abs=2e-3)  # the lean's third component is not observed
    assert motion.closest == pytest.approx(np.hypot(0.1, 0.215) - 0.07)


def test_trust_worked_out_by_hand(folder: Path) -> None:
    assert rank_correlation(np.array([1.0, 2, 3, 4]), np.array([10.0, 20, 40, 30])) == pytest.approx(0.8)
    assert rank_correlation(np.array([1.0, 1, 3, 4]), np.array([1.0, 1, 3, 4])) == pytest.approx(1.0)
    assert rank_correlation(np.ones(4), np.arange(4.0)) is None
    assert pairs_in_order([1, 2, 3, 3], [5.0, 6.0, 1.0, 2.0]) == (4, 5)
    dataset = DemoDataset(folder / "demos")
    confidence = np.ones(dataset.frames, np.float32)
    row = dataset.rows[7]
    confidence[row.from_index + 20 : row.from_index + 25] = 5.0
    confidence[row.from_index + 45 : row.from_index + 50] = 0.2
    most, least = segments(dataset, confidence)
    assert (most[0].episode, most[0].start, most[0].end, most[0].confidence) == (7, 20, 25, 5.0)
    assert (least[0].episode, least[0].start, least[0].end) == (7, 45, 50)
    assert (most[1].start, most[1].end) == (0, 50)  # the others trust all of their steps alike


def test_colours_and_numbers_are_what_they_say() -> None:
    middle = (COLOURS - 1) // 2
    assert confidence_colours(np.array([0.0, 1.0, 2.0, 3.0, 9.0]), 3.0).tolist() == [0, middle, 6, 8, 8]
    assert rank_colours(np.array([-2000.0, -1.0, -2.0])).tolist() == [0, 8, 4]
    assert [number(v) for v in (0.0, -9.863, 123.4, 0.0004, 1234567.0, float("nan"))] == [
        "0", "−9.86", "123", "0.000400", "1\u202f234\u202f567", "–"]
    assert ticks(-0.3, 1.1) == pytest.approx([-0.25, 0.0, 0.25, 0.5, 0.75, 1.0])
    points, which = thinned(np.stack([np.arange(300.0), np.zeros(300)], axis=1))
    assert (len(points), which[0], which[-1]) == (40, 0, 299)


def test_bad_input_is_one_clear_line(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(["report", str(tmp_path / "nothing")], capsys, "expected a run folder", "nothing there")
    refused(["report", str(copy / "demos")], capsys, "a folder without one")
    refused(["report", str(copy / "bc"), "--out", str(copy)], capsys, "expected --out to be a file")
    refused(["report", str(copy / "bc"), "--out", str(copy / "no" / "r.html")], capsys, "create it first")
    refused(["report", str(copy / "bc"), "--demos", str(copy / "bc")], capsys, "expected --demos to be a dataset")
    old = (copy / "bc" / "report.html").read_bytes()
    (copy / "bc" / "confidence.parquet").write_bytes(b"PAR1 and then nothing")
    (copy / "bc" / "policy" / "policy.json").write_text("{")
    refused(["report", str(copy / "bc")], capsys, "is damaged", "2 faults", "confidence.parquet", "policy.json")
    assert (copy / "bc" / "report.html").read_bytes() == old
    (copy / "bc" / "config.yaml").write_text("task: pointmass\n")
    refused(["report", str(copy / "bc")], capsys, "expected method (str), given None")
    config = (copy / "cail-bc" / "config.yaml").read_text()
    shutil.copytree(folder := copy / "cail-bc", copy / "other")
    (copy / "other" / "config.yaml").write_text(config.replace("task: pointmass", "task: reacher"))
    shutil.rmtree(copy / "demos")
    refused(["report", str(folder), str(copy / "other")], capsys, "expected runs of one task", "reacher")


def test_a_metrics_file_that_is_being_written_is_no_damage(copy: Path) -> None:
    with open(copy / "bc" / "metrics.csv", "a") as file:
        file.write("99,100")
    assert main(["report", str(copy / "bc")]) == 0


def test_what_is_missing_is_said_on_the_page(copy: Path) -> None:
    shutil.rmtree(copy / "demos")
    shutil.rmtree(copy / "cail-bc" / "policy")
    assert main(["report", str(copy / "cail-bc")]) == 0
    text = (copy / "cail-bc" / "report.html").read_text()
    assert "the demonstrations &#x27;demos&#x27; were not found" in text
    assert "has not reached its first checkpoint yet" in text
    assert "How did it learn?" in text
    assert "Whom did it trust?" not in text


def test_changed_demonstrations_are_noticed(copy: Path) -> None:
    assert main(["demos", "rank", str(copy / "demos"), "--by", "return", "--fraction", "0.3", "--seed", "9"]) == 0
    found = gather([copy / "cail-bc"], None, 0, 0)
    assert any("has changed since the training" in text for text in found.missing)
    assert main(["demos", "delete", str(copy / "demos"), "3", "--yes"]) == 0
    found = gather([copy / "cail-bc"], None, 0, 0)
    assert found.dataset is None
    assert any("the run was trained on 1500" in text for text in found.missing)


def test_a_report_that_fails_costs_one_line_and_not_the_run(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "new").mkdir()
    (copy / "new" / "report.html").mkdir()  # in the way
    (copy / "new" / "config.yaml").write_bytes((copy / "bc" / "config.yaml").read_bytes())
    argv = ["train", "--task", "pointmass", "--demos", str(copy / "demos"), "--method", "bc", "--steps", "50"]
    assert main([*argv, "--out", str(copy / "new")]) == 0
    said = capsys.readouterr()
    assert (copy / "new" / "policy" / "policy.json").is_file()
    assert said.err.splitlines()[-1].startswith("warning: the run is complete, its report is not")


def test_a_video_stands_inside_the_page_unless_it_is_large(copy: Path) -> None:
    (copy / "bc" / "episode.mp4").write_bytes(b"\0\0\0\x18ftypmp42 not really a film")
    (copy / "bc" / "long.mp4").write_bytes(bytes(13_000_000))
    assert main(["report", str(copy / "bc")]) == 0
    text = (copy / "bc" / "report.html").read_text()
    assert text.count('src="data:video/mp4;base64,') == 1
    assert "long.mp4 (13 MB) is too large" in text


def test_two_hundred_long_episodes_stay_a_small_page() -> None:
    """200 episodes of 300 frames with a confidence of its own at every step."""
    import pyarrow as pa
    import pyarrow.parquet
    import yaml

    rng = np.random.default_rng(0)
    like = frame_features(get_task("pointmass").spec.observation_names, ("ax", "ay"))
    with fast_folder() as place:
        demos, run = Path(place, "demos"), Path(place, "run")
        with DemoWriter.create(demos, task="pointmass", text="", robot_type="x", fps=10, features=like) as writer:
            for i in range(200):
                frames = {name: np.zeros((300, *feature.shape) if not feature.is_scalar else 300, feature.dtype)
                          for name, feature in like.items()} | end_flags(300, truncated=True)
                frames[STATE] = rng.normal(size=(300, 4)).cumsum(axis=0).astype(np.float32)
                frames[REWARD] = rng.normal(size=300).astype(np.float32)
                writer.save_episode(Episode(frames, frames[STATE][-1], f"person {i % 5}", "timeout"))
        dataset = DemoDataset(demos)
        run.mkdir()
        about = {"task": "pointmass", "method": "cail", "seed": 0, "steps": 1, "settings": {}, "demos": "demos"}
        (run / "config.yaml").write_text(yaml.safe_dump(about))
        noise = rng.exponential(size=dataset.frames).astype(np.float32)
        pyarrow.parquet.write_table(pa.table({"episode_index": np.zeros(dataset.frames, np.int64), "confidence": noise,
                                              "frame_index": np.zeros(dataset.frames, np.int64)}), run / "confidence.parquet")
        assert main(["report", str(run)]) == 0
        assert 200_000 < (run / "report.html").stat().st_size < 4_000_000


def test_an_episode_is_shown_in_the_terminal(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demos, run = str(folder / "demos"), str(folder / "cail-bc")
    capsys.readouterr()
    assert main(["demos", "show", demos, "3", "--run", run, "--plot", str(tmp_path / "one.png")]) == 0
    said = capsys.readouterr().out
    row = DemoDataset(folder / "demos").rows[3]
    for part in (row.demonstrator, row.outcome, f"{row.undiscounted_return:.2f}", "○", "+ goal", "confidence  ", "5.0 s"):
        assert part in said, part
    assert any("\u2801" <= c <= "\u28ff" for c in said)
    assert main(["demos", "plot", demos, "--out", str(tmp_path / "all.png")]) == 0
    for file in ("one.png", "all.png"):
        assert (tmp_path / file).read_bytes().startswith(b"\x89PNG")
    refused(["demos", "show", demos, "30"], capsys, "expected an episode out of 0 … 29, given 30")
    refused(["demos", "show", demos, "1", "--run", demos], capsys, "expected --run to be a run folder")
    refused(["demos", "plot", demos, "--out", str(tmp_path / "all.xyz")], capsys, "ends in .png, .svg, .pdf")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all.png", "one.png"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine; on Debian: apt-get install chromium")
    with Browser(CHROMIUM) as opened:
        yield opened


def test_the_page_in_a_real_browser(folder: Path, browser: Browser) -> None:
    """No console errors, no request beyond the file itself, nothing wider than a phone, dark where the reader wants it dark."""
    page = folder / "cail-bc" / "report.html"
    papers = set()
    for width in (390, 1200):
        for dark in (False, True):
            browser.open(page, width=width, dark=dark)
            assert browser.said == []
            assert browser.asked == [page.resolve().as_uri()]
            browser.value("document.querySelectorAll('details').forEach(d => d.open = true)")
            assert browser.value("document.documentElement.scrollWidth") <= width
            wide = browser.value("[...document.querySelectorAll('main *')].filter(e => !e.closest('svg') && "
                                 f"e.getBoundingClientRect().right > {width} + 0.5).map(e => e.outerHTML.slice(0, 80))")
            assert wide == []
            papers.add((dark, browser.value("getComputedStyle(document.body).backgroundColor")))
            assert browser.screenshot(whole=False).startswith(b"\x89PNG")
    light, night = (next(colour for dark, colour in papers if dark is kind) for kind in (False, True))
    assert len(papers) == 2
    assert sum(map(int, re.findall(r"\d+", light)[:3])) > 600 > 200 > sum(map(int, re.findall(r"\d+", night)[:3]))


def test_hovering_tells_and_choosing_a_demonstrator_dims_the_others(folder: Path, browser: Browser) -> None:
    browser.open(folder / "cail-bc" / "report.html", width=1200)
    assert browser.value("document.querySelectorAll('.track').length") >= 60
    browser.value("document.querySelector('.choose button').click()")
    shown = browser.value("[...document.querySelectorAll('.track[data-who]')].filter(g => !g.classList.contains('off'))"
                          ".map(g => g.dataset.who)")
    assert set(shown) == {"0"}
    browser.value("document.querySelector('.choose button').click()")
    assert browser.value("document.querySelectorAll('.off').length") == 0
    browser.value("document.querySelector('.track').dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: 1190, "
                  "clientY: 840}))")
    assert browser.value("document.getElementById('tip').textContent").startswith("episode ")
    assert browser.value("document.getElementById('tip').getBoundingClientRect().right") <= 1200


def test_names_cannot_break_the_page(copy: Path, browser: Browser) -> None:
    """People may be called anything."""
    given = DemoDataset(copy / "demos")
    with DemoWriter.create(copy / "odd", task="pointmass", text=MISCHIEF, robot_type="x", fps=10,
                           features=given.features) as writer:
        for one in given.iterate():
            writer.save_episode(Episode(one.frames, one.final_state, MISCHIEF + one.demonstrator, one.outcome, one.rank))
    assert main(["report", str(copy / "cail-bc"), "--demos", str(copy / "odd")]) == 0
    browser.open(copy / "cail-bc" / "report.html", width=390)
    assert browser.said == []
    assert browser.value("document.querySelectorAll('script').length") == 1
    assert MISCHIEF in browser.value("document.body.textContent")
