"""Films of the simulated arm, and what `cail watch` says where it cannot show one."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pybullet")

from PIL import Image

from cail_core.cli import main
from cail_core.tasks.pick_place_avoid import Outcome
from cail_sim.bullet.render import Camera, Film, observed_start, picture_of, render_episode, save_film, trust_colour
from cail_sim.tasks.panda import Panda


@pytest.fixture(scope="module")
def film() -> Film:
    """Some decisions of the best script, all of them trusted."""
    task = Panda()
    policy = task.demonstrators()["best"].start(np.random.default_rng(0))
    return render_episode(task, policy, seed=0, title="a title", confidence=[2.0] * 12, size=(160, 120))


def test_the_film_shows_the_scene_and_the_path_in_the_colour_of_confidence(film: Film) -> None:
    first, last = film.frames[0], film.frames[-1]
    assert first.shape == (120, 160, 3)
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 100  # not an empty picture
    assert film.decisions == 12
    before, after = ({tuple(pixel) for pixel in frame[12:108].reshape(-1, 3).tolist()} for frame in (first, last))
    drawn = [np.array(colour) for colour in after - before]
    trusted = np.array(trust_colour(2.0))
    assert min(int(np.abs(trusted - colour).max()) for colour in drawn) < 40


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_film_becomes_a_file(film: Film, tmp_path: Path, suffix: str) -> None:
    if suffix == ".mp4":
        pytest.importorskip("imageio_ffmpeg")
    file, remark = save_film(film, tmp_path / f"film{suffix}")
    assert (file.suffix, remark) == (suffix, "")
    assert file.stat().st_size > 1000
    if suffix == ".gif":
        assert getattr(Image.open(file), "n_frames", 1) > 3
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_without_ffmpeg_a_gif_is_made_and_said(film: Film, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    file, remark = save_film(film, tmp_path / "film.mp4")
    assert file == tmp_path / "film.gif"
    assert "no MP4 here" in remark
    assert "\n" not in remark


def test_pictures_are_the_same_with_and_without_numpy_in_pybullet() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 4), dtype=np.uint8)
    for given in (pixels, tuple(pixels.ravel().tolist())):
        picture = picture_of(given, 6, 4)
        assert picture.flags.writeable
        assert np.array_equal(picture, pixels[:, :, :3])


def test_points_are_drawn_where_they_are_seen() -> None:
    env = Panda().one(visible=True)
    try:
        camera = Camera(env.world, 160, 120)
        (left, _), (right, _) = camera.where([(0.3, -0.3, 0.04), (0.7, 0.0, 0.04)])  # target, bottle
        _, (_, low), (_, high) = camera.where([(0.5, 0.0, 0.0), (0.5, 0.0, 0.0), (0.5, 0.0, 0.3)])
        assert 0 < left < right < 160
        assert 0 < high < low < 120
    finally:
        env.close()


def test_a_start_is_read_back_from_the_first_observation() -> None:
    task = Panda()
    env = task.one()
    try:
        scene = env.start(np.random.default_rng(4))
        start = observed_start(task, np.array(env.observe(), dtype=np.float32))
        assert start.bottle == pytest.approx(scene.bottle[:2], abs=1e-5)
        assert start.target == pytest.approx(scene.target[:2], abs=1e-5)
        assert start.tool == pytest.approx(scene.tool, abs=1e-5)
    finally:
        env.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "nobody"], "expected a policy folder, script, random or one of best"),
        (["--task", "pointmass"], "expected a task with a simulated arm"),
        (["--out", "film.avi"], "expected a file that ends in .mp4 or .gif"),
        (["--demos", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", *words]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize("display", ["", ":7777"])
def test_without_a_display_watch_makes_a_film(
    display: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISPLAY", display)
    seen = []

    def quick(*args: object, **options: object) -> Film:
        seen.append(options["title"])
        return Film([np.zeros((20, 20, 3), np.uint8)] * 3, 25, Outcome.SUCCESS, -47.0, 3)

    monkeypatch.setattr("cail_sim.bullet.render.render_episode", quick)
    assert main(["watch", "--task", "panda", "--policy", "random"]) == 0
    said = capsys.readouterr()
    assert "no display here, so a film" in said.err
    assert "panda, random: success, return -47.00" in said.out
    assert seen == ["panda, random"]
    assert len(list(tmp_path.glob("watch-panda-0.*"))) == 1
