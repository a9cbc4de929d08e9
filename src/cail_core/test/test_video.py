"""`cail eval --video`: a film where the task can draw itself, curves otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cail_core.cli import main
from cail_core.errors import BadInput
from cail_core.tasks.mujoco import SHIPPED, Reacher
from cail_core.tasks.pointmass import PointMass
from cail_core.video import CannotRender, film


def still(observation: np.ndarray) -> np.ndarray:
    return np.zeros((len(observation), 2), np.float32)


class Filmed(PointMass):
    """Four pictures: black, then ever brighter."""

    def render_episode(self, policy: object, seed: int) -> list[np.ndarray]:
        return [np.full((8, 8, 3), 60 * k, np.uint8) for k in range(4)]


class Blind(PointMass):
    def render_episode(self, policy: object, seed: int) -> list[np.ndarray]:
        raise CannotRender("the lamp is out")


def test_the_pictures_of_the_task_become_a_film(tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v3")
    made = film(Filmed(), still, 0, tmp_path / "a.gif")
    frames = imageio.imread(made, index=None)
    assert made == tmp_path / "a.gif"
    assert [round(float(frame.mean())) for frame in frames] == pytest.approx([0, 60, 120, 180], abs=3)


@pytest.mark.parametrize(("task", "said"), [(PointMass(), "'pointmass' has no pictures"), (Blind(), "the lamp is out")])
def test_without_pictures_one_line_says_so_and_the_curves_are_drawn(
    task: PointMass, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    made = film(task, still, 0, tmp_path / "a.gif")
    assert made == tmp_path / "a.png"
    assert made.read_bytes().startswith(b"\x89PNG")
    assert said in capsys.readouterr().out
    assert not (tmp_path / "a.gif").exists()


def test_another_kind_of_file_is_refused_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInput, match=r"ends in \.gif or \.mp4"):
        film(PointMass(), still, 0, tmp_path / "a.avi")
    pytest.importorskip("mujoco")
    assert main(["eval", "--policy", str(SHIPPED / "reacher" / "optimal"), "--video", str(tmp_path / "a.avi")]) == 2
    assert "given" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_reacher_is_filmed_where_there_is_opengl(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    imageio = pytest.importorskip("imageio.v3")
    (tmp_path / "short.yaml").write_text("max_steps: 4")
    task = Reacher(tmp_path / "short.yaml")
    made = film(task, lambda o: np.full((len(o), 2), 0.8, np.float32), 0, tmp_path / "reacher.gif")
    if made.suffix == ".png":
        pytest.skip("no OpenGL here")
    frames = imageio.imread(made, index=None)
    assert frames.shape == (4, 360, 480, 3)
    assert (frames[0] != frames[3]).any()  # the arm has moved
