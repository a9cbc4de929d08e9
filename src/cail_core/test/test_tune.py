"""Settings by held-out rankings: what is searched, what is refused, and that the file trains."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from line import STEPS, demonstrations

from cail_core.algorithms.method import method_config
from cail_core.algorithms.methods.cail import CailConfig
from cail_core.cli import main
from cail_core.demos.demonstrations import Demonstrations
from cail_core.errors import BadInput
from cail_core.layers import flat
from cail_core.training.tune import Judge, here, tune, write_config

torch.set_num_threads(1)


def quick(method: str = "cail") -> CailConfig:
    config: CailConfig = method_config(method, changes={
        "offline_confidence.steps": 10, "offline_confidence.batch_size": 50, "offline_confidence.hidden": [16, 16]})
    return config


@pytest.fixture(scope="module")
def demos() -> Demonstrations:
    return demonstrations((0.5, 0.1, -0.3, -0.7), (0.1,) * 4, episodes=5, ranked=2)


def test_tuning_never_ends_below_where_it_began_and_repeats(demos: Demonstrations) -> None:
    pytest.importorskip("optuna")
    spoilt = quick()
    spoilt = replace(spoilt, beta=replace(spoilt.beta, alpha=1e-9))  # a confidence that does not move orders nothing
    found = tune(demos, spoilt, 4, 0, STEPS)
    assert found.after > found.before
    assert found.config.beta.alpha > 1e-4
    assert tune(demos, spoilt, 4, 0, STEPS) == found


def test_how_many_are_drawn_at_once_decides_and_not_who_judges(demos: Demonstrations) -> None:
    pytest.importorskip("optuna")
    asked: list[int] = []

    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:

        def elsewhere(judge: Judge, settings: Sequence[dict[str, float]]) -> list[float]:
            asked.append(len(settings))
            return list(pool.map(judge, settings))

        assert tune(demos, quick(), 3, 0, STEPS, at_once=2, judges=elsewhere) == tune(demos, quick(), 3, 0, STEPS, at_once=2)
    assert asked == [1, 2, 1]  # as given, then three trials
    with pytest.raises(BadInput, match="at least 1 trial at once, given 0"):
        tune(demos, quick(), 3, 0, STEPS, at_once=0)


def test_ray_judges_as_this_process_does(demos: Demonstrations) -> None:
    pytest.importorskip("ray")
    from cail_core.training.engines import RayEngine

    judge = Judge(demos, quick(), 0, STEPS)
    settings = [{"alpha": 0.02, "mu": 0.1, "learning_rate": rate} for rate in (1e-4, 1e-3, 1e-2)]
    engine = RayEngine(workers=2)
    try:
        assert engine.judge(judge, settings) == here(judge, settings)
    finally:
        engine.close()


def test_an_address_without_ray_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["tune", "--task", "pointmass", "--demos", str(tmp_path), "--address", "here:1", "--out", str(tmp_path / "a.yaml")]
    assert main(argv) == 2
    assert capsys.readouterr().err.endswith("expected --address with --engine ray, given --engine local; add --engine ray\n")


def found_value(config: object, key: str) -> object:
    for part in key.split("."):
        config = getattr(config, part)
    return config


def test_only_alpha_mu_and_the_rate_change(demos: Demonstrations, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    config = quick()
    result = tune(demos, config, 2, 0, STEPS)
    found = result.config
    back = replace(found, beta=replace(found.beta, alpha=config.beta.alpha),
                   offline_confidence=replace(found.offline_confidence, mu=config.offline_confidence.mu,
                                              learning_rate=config.offline_confidence.learning_rate))
    assert back == config
    write_config(result, tmp_path / "tuned.yaml", "found", {"steps": 7, "beta": {"share": 1.0}})
    written = yaml.safe_load((tmp_path / "tuned.yaml").read_text())
    assert written.pop("steps") == 7
    assert written["beta"].pop("share") == 1.0
    assert set(flat(written)) <= {"beta.alpha", "offline_confidence.mu", "offline_confidence.learning_rate"}
    assert all(found_value(found, key) == value for key, value in flat(written).items())


def test_what_cannot_be_tuned_is_refused(demos: Demonstrations) -> None:
    pytest.importorskip("optuna")
    with pytest.raises(BadInput, match="at least 4 episodes of different rank"):
        tune(replace(demos, rank=np.minimum(demos.rank, 3)), quick(), 1, 0, STEPS)
    with pytest.raises(BadInput, match="learns its confidence"):
        tune(demos, method_config("airl"), 1, 0, STEPS)
    with pytest.raises(BadInput, match="at least 1 trial"):
        tune(demos, quick(), 0, 0, STEPS)
