"""The paper's tables: cells that are kept, resumed, skipped or lost, and what is published of them."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cail_bench import cells, publish, tables
from cail_bench.cells import ORACLE, UNTRAINED, Cell, config_of, finished, prepare_demonstrations, run_cell
from cail_bench.command import OURS, PAPER
from cail_bench.studies import BUDGETS, POINTMASS, REACHER, SMOKE, STUDIES, UR5E, Study, cell
from cail_core.algorithms.method import method_config
from cail_core.cli import main
from cail_core.errors import BadInput, CailError
from cail_core.training import TrainingDiverged
from cail_core.training.engines import LocalEngine

torch.set_num_threads(1)


def tiny(method: str = "bc", seed: int = 0, **changes: Any) -> Cell:
    return cell(SMOKE, POINTMASS, method, seed, at="here", changes=changes)


def without_seconds(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "seconds"}


# --- the whole, at the smallest budget --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("paper")
    for name in ("paper", *OURS):
        assert main(["bench", name, "--budget", "smoke", "--workers", "1", "--out", str(out)]) == 0
    return out


def test_every_table_has_every_seed_of_every_method(everything: Path) -> None:
    for name, study in STUDIES.items():
        wanted = {(c.at, c.method, str(c.seed)) for c in study.make(SMOKE, 0)}
        rows = list(csv.DictReader((everything / f"{name}.csv").open()))
        assert {(row["at"], row["method"], row["seed"]) for row in rows} == wanted
        assert {row["outcome"] for row in rows} == {"done"}
        about = json.loads((everything / f"{name}.json").read_text())
        assert about["budget"] == "smoke"
        assert about["versions"]["numpy"]


def test_the_page_holds_all_tables_and_figures_in_one_file(everything: Path) -> None:
    page = (everything / "index.html").read_text()
    assert "<code>oracle</code> is the best demonstrator" in page
    assert "`" not in page
    for name, study in STUDIES.items():
        assert f"<h2>{name}: " in page
        for kind in study.figures:
            assert (everything / f"{name}-{kind}.png").read_bytes().startswith(b"\x89PNG")
            assert f'alt="{name}-{kind}"' in page
    assert page.count("src=") == page.count('src="data:image/png')


def test_a_done_cell_is_not_run_again(everything: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in everything.glob("cells/*/row.json")}
    assert main(["bench", "table1", "--budget", "smoke", "--workers", "1", "--out", str(everything)]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in everything.glob("cells/*/row.json")}
    assert "oracle" in capsys.readouterr().out


def test_tables_share_their_cells(everything: Path) -> None:
    asked = [c for study in STUDIES.values() for c in study.make(SMOKE, 0)]
    assert len(list(everything.glob("cells/*/row.json"))) == len({c.key for c in asked}) < len(asked)


def test_the_theory_table_has_both_theorems(everything: Path) -> None:
    rows = [row for row in csv.DictReader((everything / "theory.csv").open()) if row["method"] == "eq-7"]
    assert {row["at"] for row in rows} == {"rk T=5", "rk T=20", "logistic T=5", "logistic T=20"}
    assert all(float(row["rising"]) == 0.0 and float(row["outer_last"]) < float(row["outer_first"]) for row in rows)
    assert all(float(row["gradient_least"]) <= float(row["gradient_bound"]) for row in rows)
    text = (everything / "theory.md").read_text()
    assert "`eq-7` is Eq. 7" in text
    assert "Welch" not in text  # nobody is compared
    assert "oracle" not in text


# --- which cells ------------------------------------------------------------------------------------------------------------


def test_the_commands_tables_are_the_studies() -> None:
    assert list(PAPER) == list(STUDIES)


def test_full_is_the_papers_ten_seeds_four_environments_and_nine_methods() -> None:
    made = STUDIES["table1"].make(BUDGETS["full"], 0)
    assert {c.task for c in made} == {"pointmass", "reacher", "ant", "panda", "ur5e"}
    assert {c.seed for c in made} == set(range(10))
    assert {c.method for c in made} >= {"cail", "2iwil", "ic-gail", "airl", "gail", "t-rex", "d-rex", "ssrr", "oracle"}
    assert {c.at for c in STUDIES["label-ratio"].make(BUDGETS["full"], 0)} == {"1%", "2%", "5%", "10%", "20%", "50%", "100%"}


def test_every_cell_of_every_budget_has_settings_and_a_whole_mix() -> None:
    for study in STUDIES.values():
        for budget in BUDGETS.values():
            for one in {c.method + str(c.changes): c for c in study.make(budget, 0)}.values():
                assert sum(one.mix.values()) == pytest.approx(1.0)
                if one.method not in UNTRAINED:
                    config_of(one)


def test_the_suboptimal_study_has_no_optimal_demonstrator() -> None:
    assert all(REACHER.people[0] not in c.mix for c in STUDIES["suboptimal"].make(BUDGETS["short"], 0))


def test_short_takes_every_second_value_and_on_long_tasks_what_needs_no_environment_or_little() -> None:
    made = {name: study.make(BUDGETS["short"], 0) for name, study in STUDIES.items()}
    assert {c.at for c in made["label-ratio"]} == {"1%", "5%", "20%", "100%"}
    assert {c.at for c in made["optimality"]} == {"early-9", "early-42", "early-78"}
    made_few = {"cail", "2iwil", "airl", "gail"}
    assert {c.method for c in made["ratio"]} == made_few
    assert {c.method for c in made["table1"] if c.task == "ant"} == {"cail", "airl", "cail-bc", "bc", "oracle"}
    assert {c.method for c in made["table1"] if c.task == "panda"} == {"cail-hybrid", "cail-bc", "bc", "oracle"}
    assert {c.method for c in made["suboptimal"] if c.task == "reacher"} == {*made_few, "cail-bc", "bc", "oracle"}
    assert {c.method for c in made["confidence"] if c.task == "ant"} == {"cail"}
    assert not any(c.task == "ant" for c in made["alpha-mu"])


def test_the_parts_of_a_clone_differ_in_nothing_else() -> None:
    made = {(c.method, c.at): config_of(c) for c in STUDIES["panda-parts"].make(BUDGETS["short"], 0)}
    whole = method_config("cail-bc", "panda")
    assert made["cail-bc", "paper both"] == whole
    assert made["bc", "hard neither"] == method_config("bc", "panda")
    cloning = replace(whole.cloning, corrective_noise_steps=0.0)
    assert made["cail-bc", "hard one way"] == replace(whole, cloning=cloning)
    assert made["cail-bc", "paper neither"] == replace(whole, cloning=cloning, dominant_mode_distance=0.0)


def test_only_keeps_what_is_named() -> None:
    made = STUDIES["table1"].make(BUDGETS["short"], 0)
    kept = tables.chosen(made, tables.parse_only("method=cail,method=airl,env=reacher,seed=1"))
    assert [(c.method, c.task, c.seed) for c in kept] == [("cail", "reacher", 1), ("airl", "reacher", 1)]


@pytest.mark.parametrize(
    ("text", "said"), [("cail", "NAME=VALUE"), ("robot=ur5e", "out of method, env"), ("method=", "NAME=VALUE")])
def test_a_wrong_only_is_refused(text: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["bench", "table1", "--only", text, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_goes_with_the_papers_tables_is_refused_with_others(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["--only", "method=cail", "--workers", "1", "--out", str(tmp_path / "out")]
    assert main(["bench", "dataset", "--budget", "smoke", *words]) == 2
    assert "expected --only and --workers with one of the paper's tables" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_only_that_leaves_nothing_says_what_there_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["bench", "table1", "--budget", "smoke", "--only", "method=cial", "--out", str(tmp_path / "out")]) == 2
    assert "method: 2iwil" in capsys.readouterr().err


def test_tasks_that_are_not_there_are_skipped_with_a_line() -> None:
    elsewhere = replace(UR5E, task="a-task-of-another-lab")
    kept, lines = tables.runnable([tiny(), cell(SMOKE, elsewhere, "bc", 0)])
    assert [c.task for c in kept] == ["pointmass"]
    assert len(lines) == 1
    assert lines[0].startswith("a-task-of-another-lab: expected a task out of")


def test_cells_that_differ_have_folders_that_differ() -> None:
    one = tiny()
    assert replace(one, at="elsewhere").key == one.key
    others = [replace(one, seed=1), replace(one, steps=11), replace(one, ranked=0.5), replace(one, mix={"expert": 1.0}),
              replace(one, changes={**one.changes, "cloning.sigma": 0.5})]
    assert len({one.key, *(c.key for c in others)}) == 6
    assert replace(one, ranked=0.5).demos_key == one.demos_key


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(CailError, match=r"unknown key 'beta\.alfa'"):
        config_of(tiny("cail", **{"beta.alfa": 1.0}))


# --- a cell -----------------------------------------------------------------------------------------------------------------


def test_a_diverged_seed_stays_in_the_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one = tiny()
    prepare_demonstrations(one, tmp_path)

    def diverge(*_: Any, **__: Any) -> None:
        raise TrainingDiverged("training diverged at step 50: inner_loss is nan;\n lower the rate")

    monkeypatch.setattr(cells, "train", diverge)
    row = run_cell(one, tmp_path)
    assert row["outcome"] == "diverged: training diverged at step 50: inner_loss is nan; lower the rate"
    assert finished(one, tmp_path) == row  # the same seed diverges again: no need to try
    summary = publish.summarise([(one, row), (one, {"outcome": "done", "return": -3.0})], "return")["here"]["bc"]
    assert summary.text(percent=False) == "-3.00 (1 diverged)"


def test_a_failed_cell_keeps_its_reason_and_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one = tiny()
    prepare_demonstrations(one, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(cells, "train", lambda *_, **__: (_ for _ in ()).throw(OSError("no space left on device")))
        assert run_cell(one, tmp_path)["outcome"] == "failed: no space left on device"
    assert finished(one, tmp_path) is None
    assert run_cell(one, tmp_path)["outcome"] == "done"


def test_ranked_share_and_true_returns_of_a_cell(tmp_path: Path) -> None:
    one = replace(tiny(), ranked=0.2)
    prepare_demonstrations(one, tmp_path)
    demos, returns = cells.demonstrations(one, tmp_path)
    assert (len(demos.ranked), demos.episodes) == (4, 20)
    assert list(returns[demos.ranked]) == sorted(returns[demos.ranked], reverse=True)
    oracle = run_cell(replace(one, method="oracle", changes={}), tmp_path)
    who = np.array(demos.demonstrator)
    assert oracle["return"] == pytest.approx(returns[who == "expert"].mean(), abs=1e-3)


# --- what is published ------------------------------------------------------------------------------------------------------


def test_welch_by_hand() -> None:
    """Means 5 and 2, variances 1 and 4, three each: t = 3 / sqrt(5/3) = 2.3238, 2.94 degrees of freedom."""
    a, b = np.array([4.0, 5.0, 6.0]), np.array([0.0, 2.0, 4.0])
    t = pytest.importorskip("scipy.stats").t
    freedom = (1 / 3 + 4 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (4 / 3) ** 2 / 2)
    assert publish.welch(a, b) == pytest.approx(t.sf(3 / math.sqrt(5 / 3), freedom))
    assert publish.welch(b, a) == pytest.approx(1 - publish.welch(a, b))  # type: ignore[operator]
    assert publish.welch(a, b[:1]) is None
    always, never = np.ones(3), np.zeros(3)
    assert (publish.welch(always, never), publish.welch(never, always), publish.welch(always, always)) == (0.0, 1.0, None)


def test_a_table_stands_beside_the_papers_numbers() -> None:
    study = Study("text", lambda *_: [], published={"reacher": {"cail": (-7.816, 1.518), "oracle": (-4.312, None)}})
    results = [(replace(tiny(method, seed), at="reacher"), {"outcome": "done", "return": value})
               for method, values in {"cail": (-5.0, -6.0), "airl": (-8.0, -9.0), "oracle": (-4.0, -4.0)}.items()
               for seed, value in enumerate(values)]
    rows = publish.table(study, results)
    assert rows[0] == ["method", "reacher", "reacher, paper", "p"]
    assert rows[1] == ["cail", "-5.50 ± 0.71", "-7.82 ± 1.52", ""]
    assert rows[2][:3] == ["airl", "-8.50 ± 0.71", ""]
    assert float(rows[2][3]) == pytest.approx(0.0257, abs=2e-3)  # t = 3 / 0.7071 = 4.243 with 2 degrees of freedom
    assert rows[3] == ["oracle", "-4.00 ± 0.00", "-4.31", ""]
    text = publish.markdown("table1", study, results, "short", ["ur5e: not installed"])
    assert "| cail | -5.50 ± 0.71 | -7.82 ± 1.52 |  |" in text
    assert "Skipped: ur5e: not installed" in text


def test_a_column_without_cail_is_compared_with_the_next_of_ours() -> None:
    results = [(replace(tiny(method, seed), at=at), {"outcome": "done", "return": value})
               for at, methods in {"reacher": {"cail": (-5.0, -6.0), "cail-bc": (-8.0, -9.0)},
                                   "ant": {"cail-bc": (-5.0, -6.0), "bc": (-8.0, -9.0)}}.items()
               for method, values in methods.items() for seed, value in enumerate(values)]
    rows = publish.table(Study("text", lambda *_: []), results)
    p = pytest.approx(0.0257, abs=2e-3)
    assert rows[0] == ["method", "reacher", "p", "ant", "p"]
    assert rows[1][2] == rows[1][4] == ""
    assert float(rows[2][2]) == p
    assert rows[2][4] == ""
    assert float(rows[3][4]) == p


def test_success_is_shown_in_percent() -> None:
    study = replace(STUDIES["success"], published={"here": {"bc": (0.87, None)}})
    results = [(tiny(seed=seed), {"outcome": "done", "success": share}) for seed, share in enumerate((0.5, 1.0))]
    rows = publish.table(study, results)
    assert rows[1][:3] == ["bc", "75% ± 35", "87%"]


def test_the_band_is_over_seeds_at_equal_steps() -> None:
    steps, mean, std = publish.band([[(10.0, 1.0), (20.0, 3.0)], [(10.0, 3.0), (20.0, 5.0)]], 20.0)
    assert mean.tolist() == [2.0, 4.0]
    assert std.tolist() == [1.0, 1.0]
    assert steps.tolist() == [10.0, 20.0]


# --- engines ----------------------------------------------------------------------------------------------------------------


def long_cell(seed: int) -> Cell:
    return replace(tiny("airl", seed, checkpoint_every=1), steps=20_000)


def test_a_killed_ray_worker_costs_only_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from cail_core.training.engines import RayEngine

    wanted = [long_cell(0), long_cell(1)]
    here, there = tmp_path / "local", tmp_path / "ray"
    for out in (here, there):
        for one in wanted:
            prepare_demonstrations(one, out)
    expected = {one.key: without_seconds(run_cell(one, here)) for one in wanted}

    def work(one: Cell, out: Path) -> Any:  # by value to the workers, which cannot import a test
        with open(out / f"{one.key}.pids", "a") as pids:
            pids.write(f"{os.getpid()}\n")
        return run_cell(one, out)

    engine = RayEngine(workers=2)
    killer = threading.Thread(target=kill_after_checkpoint, args=(there, wanted[0]))
    killer.start()
    try:
        rows = {one.key: without_seconds(row) for one, row in engine.run(work, wanted, there)}
    finally:
        engine.close()
        killer.join()
    assert rows == expected
    assert len((there / f"{wanted[0].key}.pids").read_text().split()) == 2
    for one in wanted:
        name = f"cells/{one.key}/run/metrics.csv"
        assert (there / name).read_bytes() == (here / name).read_bytes()


def kill_after_checkpoint(out: Path, one: Cell) -> None:
    pids, checkpoint = out / f"{one.key}.pids", out / "cells" / one.key / "run" / "checkpoint.safetensors"
    _wait(lambda: pids.exists() and checkpoint.exists())
    os.kill(int(pids.read_text().split()[0]), signal.SIGKILL)


def _wait(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + 240
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError("the worker wrote no checkpoint")
        time.sleep(0.01)


def test_processes_give_the_rows_that_one_process_gives(tmp_path: Path) -> None:
    wanted = [tiny("bc", 0), tiny("bc", 1)]
    rows = []
    for workers, out in ((1, tmp_path / "one"), (2, tmp_path / "two")):
        for one in wanted:
            prepare_demonstrations(one, out)
        found = {one.key: without_seconds(row) for one, row in LocalEngine(workers).run(run_cell, wanted, out)}
        rows.append(found)
    assert rows[0] == rows[1]


def test_ray_is_asked_for_by_name_when_it_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                                    tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    assert main(["bench", "table1", "--engine", "ray", "--out", str(tmp_path / "out")]) == 2
    assert ".[ray]" in capsys.readouterr().err


def test_an_unknown_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises((SystemExit, BadInput)):
        main(["bench", "table9", "--out", str(tmp_path)])


def test_no_worker_outlives_a_killed_bench(tmp_path: Path) -> None:
    options = ["--budget", "smoke", "--workers", "2", "--out", str(tmp_path)]
    bench = subprocess.Popen([sys.executable, "-m", "cail_core.cli", "bench", "table1", *options], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    try:
        until, workers = time.monotonic() + 120, set[int]()
        while len(workers) < 2 and time.monotonic() < until:
            time.sleep(0.1)
            workers = {pid for pid in children(bench.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}
        assert len(workers) == 2
        time.sleep(4.0)  # they are at work, and know whom they work for
    finally:
        bench.kill()
        bench.wait()
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < until:
        time.sleep(0.2)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_cell_that_was_run_with_other_settings_is_another_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed decides the outcome as much as what the cell itself says."""
    known = Cell("pointmass", {"expert": 1.0}, "bc", 0, 50)
    before, oracle = known.key, replace(known, method=ORACLE).key
    config = method_config("bc", "pointmass")
    monkeypatch.setattr(cells, "method_config", lambda method, task, changes: replace(config, dominant_mode_distance=0.5))
    cells._settings.cache_clear()
    assert known.key != before
    assert replace(known, method=ORACLE).key == oracle
    cells._settings.cache_clear()
