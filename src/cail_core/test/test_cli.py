"""The command as a person uses it: what it prints, and one clear line with exit code 2 for whatever is wrong."""

from __future__ import annotations

import os
import pty
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from builders import fast_folder

from cail_core.cli import main
from cail_core.config import find_config
from cail_core.demos.check import check
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.features import REWARD
from cail_core.demos.writer import DemoWriter


@pytest.fixture(scope="module")
def collected() -> Iterator[Path]:
    with fast_folder() as folder:
        out = Path(folder, "demos")
        assert main(["demos", "collect", "--task", "pointmass", "--episodes", "25", "--seed", "3", "--out", str(out)]) == 0
        yield out


def refused(argv: list[str], capsys: pytest.CaptureFixture[str], *parts: str, lines: int = 1) -> None:
    """The command says `parts` in `lines` lines on stderr, nothing else, and exits with 2."""
    capsys.readouterr()
    try:
        code = main(argv)
    except SystemExit as stop:  # argparse
        code = int(stop.code or 0)
    said = capsys.readouterr().err
    assert code == 2, said
    for part in parts:
        assert part in said, said
    assert len(said.strip().splitlines()) == lines, said
    assert "Traceback" not in said


def test_collect_grades_demonstrators_by_skill(collected: Path) -> None:
    dataset = DemoDataset(collected)
    assert dataset.returns is not None
    assert dataset.episodes == 25
    means = [
        np.mean([r.undiscounted_return for r in dataset.rows if r.demonstrator == who])
        for who in ("expert", "good", "fair", "poor", "hopeless")
    ]
    assert means == sorted(means, reverse=True)
    assert check(collected) == []


def test_collect_again_changes_nothing_and_another_recipe_is_refused(collected: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {p: p.stat().st_mtime_ns for p in collected.rglob("*.parquet")}
    assert main(["demos", "collect", "--task", "pointmass", "--episodes", "25", "--seed", "3", "--out", str(collected)]) == 0
    assert {p: p.stat().st_mtime_ns for p in collected.rglob("*.parquet")} == before
    refused(
        ["demos", "collect", "--task", "pointmass", "--episodes", "25", "--seed", "4", "--out", str(collected)],
        capsys,
        "was not collected with this",
        "choose another --out",
    )


def test_the_first_state_of_an_episode_is_its_reset_state(collected: Path) -> None:
    for episode in DemoDataset(collected).iterate():
        np.testing.assert_array_equal(episode.frames["observation.state"][0, 2:], 0)  # at rest


def test_info_shows_demonstrators_outcomes_and_ranks(collected: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demos", "rank", str(collected), "--by", "return", "--fraction", "0.2", "--seed", "1"]) == 0
    assert "5 of 25 episodes ranked" in capsys.readouterr().out
    assert main(["demos", "info", str(collected), "--episodes"]) == 0
    said = capsys.readouterr().out
    for part in ("pointmass", "expert", "5 success", "5 of 25", "10 Hz"):
        assert part in said
    assert main(["demos", "rank", str(collected), "--clear"]) == 0
    assert len(DemoDataset(collected).demonstrations().ranked) == 0


def test_export_import_split_merge_by_command(collected: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    d = str(collected)
    assert main(["demos", "export", d, "--format", "npz", "--out", str(tmp_path / "a.npz")]) == 0
    assert main(["demos", "import", str(tmp_path / "a.npz"), "--task", "pointmass", "--out", str(tmp_path / "back")]) == 0
    assert main(["demos", "split", d, "--fraction", "0.2", "--out", str(tmp_path / "test"), str(tmp_path / "train")]) == 0
    assert main(["demos", "merge", str(tmp_path / "test"), str(tmp_path / "train"), "--out", str(tmp_path / "all")]) == 0
    assert DemoDataset(tmp_path / "all").frames == DemoDataset(tmp_path / "back").frames == DemoDataset(collected).frames
    assert main(["demos", "check", str(tmp_path / "all")]) == 0
    refused(["demos", "export", d, "--format", "npz", "--out", str(tmp_path / "a.npz")], capsys, "does not exist yet")


def test_delete_asks_and_keeps_everything_on_no(collected: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert main(["demos", "merge", str(collected), "--out", str(copy)]) == 0
    for answer, left in (("n\n", 25), ("y\n", 23)):
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "cail_core.cli", "demos", "delete", str(copy), "3", "7"],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        os.write(ours, answer.encode())
        out, fault = process.communicate(timeout=60)
        os.close(ours)
        os.close(theirs)
        assert process.returncode == 0, fault
        assert b"Delete 2 of 25 episodes (3, 7)" in out
        assert DemoDataset(copy).episodes == left


def test_bad_input_is_one_clear_line(collected: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    d, out = str(collected), str(tmp_path / "new")
    collect = ["demos", "collect", "--task", "pointmass", "--out", out]
    refused(["demos", "collect", "--task", "pointmas", "--out", out], capsys, "expected a task out of", "given 'pointmas'")
    refused([*collect, "--mix", "odd"], capsys, "expected a mix out of paper", "given 'odd'")
    refused([*collect, "--episodes", "0"], capsys, "at least 1 episode")
    refused([*collect, "--episodes", "many"], capsys, "invalid int value: 'many'", "--help")
    refused(["dance"], capsys, "invalid choice: 'dance'")
    refused([], capsys, "required: COMMAND")
    refused(["demos", "info", out], capsys, "which does not exist")
    refused(["demos", "rank", d], capsys, "--by", "--file")
    refused(["demos", "rank", d, "--by", "return", "--fraction", "7"], capsys, "expected a fraction above 0")
    (tmp_path / "r.yaml").write_text("[1, 99]")
    refused(["demos", "rank", d, "--file", str(tmp_path / "r.yaml")], capsys, "names episode 99, the dataset has 0 … 24")
    refused(["demos", "rank", d, "--file", str(tmp_path / "no.csv")], capsys, "no such file")
    refused(["demos", "delete", d, "99", "--yes"], capsys, "0 … 24, given 99")
    refused(["demos", "delete", d, "3"], capsys, "give --yes")
    refused(["demos", "split", d, "--fraction", "2", "--out", out, out + "2"], capsys, "between 0 and 1")
    refused(["demos", "import", str(tmp_path / "no.npz"), "--out", out], capsys, "no such file")
    refused(["demos", "import", str(tmp_path / "no.npz"), "--task", "chess", "--out", out], capsys, "given 'chess'")
    refused(["demos", "export", d, "--format", "npz", "--out", str(tmp_path / "no" / "a.npz")], capsys, "create it first")
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "thesis.tex").write_text("years of work")
    refused(["demos", "merge", d, "--out", str(tmp_path / "occupied")], capsys, "does not exist yet")
    refused([*collect[:-1], str(tmp_path / "occupied")], capsys, "does not exist yet")
    assert (tmp_path / "occupied" / "thesis.tex").read_text() == "years of work"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["occupied", "r.yaml"]


def test_a_config_with_two_faults_lists_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "task.yaml"
    config.write_text("dt_s: fast\nmax_stepz: 7\nskills: {expert: 1.0}\nmixes: {paper: {expert: 1.0}}\n")
    argv = ["demos", "collect", "--task", "pointmass", "--config", str(config), "--out", str(tmp_path / "d")]
    refused(argv, capsys, "2 faults", "dt_s: expected float, given 'fast'", "unknown key 'max_stepz'", lines=3)
    config.write_text("mixes: {paper: {expert: 0.5, nobody: 0.25}}\nskills: {expert: 2}\n")
    refused(argv, capsys, "skills.expert: expected 0 … 1", "no demonstrator 'nobody'", "sum to 0.75", lines=4)
    config.write_text("max_steps: [")
    refused(argv, capsys, "not valid YAML")
    assert not (tmp_path / "d").exists()


def test_demos_with_nans_are_refused_with_their_place(
    dataset: DemoDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = {
        "states": np.zeros((6, 4), np.float32),
        "next_states": np.zeros((6, 4), np.float32),
        "actions": np.zeros((6, 2)),
        "rewards": np.zeros(6),
        "dones": np.zeros(6),
    }
    arrays["rewards"][4] = np.nan
    np.savez(tmp_path / "a.npz", **arrays)
    refused(
        ["demos", "import", str(tmp_path / "a.npz"), "--task", "pointmass", "--out", str(tmp_path / "d")],
        capsys,
        "rewards: 1 row(s) are not finite, the first is row 4",
    )
    assert not (tmp_path / "d").exists()


def test_truncated_files_are_named(dataset: DemoDataset, capsys: pytest.CaptureFixture[str]) -> None:
    data = sorted(dataset.root.glob("data/*/*.parquet"))[2]
    data.write_bytes(data.read_bytes()[:200])
    refused(["demos", "check", str(dataset.root)], capsys, "episode 2", "cut short")
    (dataset.root / "meta/info.json").write_text("{")
    refused(["demos", "info", str(dataset.root)], capsys, "meta/info.json: not valid JSON")


def test_a_full_disk_is_said_and_what_was_saved_is_intact(tmp_path: Path) -> None:
    """A real file system of 600 KiB where mounting is permitted; a limit on file sizes, which fails alike, elsewhere."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)], capture_output=True).returncode == 0
    try:
        command = [sys.executable, "-m", "cail_core.cli", "demos", "collect", "--task", "pointmass", "--episodes", "500"]
        done = subprocess.run(
            [*command, "--out", str(disk / "d")],
            capture_output=True,
            text=True,
            preexec_fn=None if mounted else _small_files_only,
        )
        assert done.returncode == 2, done.stderr
        assert "is full" in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
        saved = DemoDataset(disk / "d").episodes
        if mounted:
            assert saved > 5
            subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        with DemoWriter.open(disk / "d") as writer:
            assert writer.episodes >= saved
        assert check(disk / "d") == []
        assert not list((disk / "d").rglob("*.tmp"))
        if mounted:
            subprocess.run(["mount", "-o", f"remount,size={_used_kib(disk) + 40}k", str(disk)], check=True)
            for form, name in (("npz", "a.npz"), ("robomimic", "a.hdf5"), ("minari", "a")):
                full = subprocess.run(
                    [
                        sys.executable,
                        "-m",
                        "cail_core.cli",
                        "demos",
                        "export",
                        str(disk / "d"),
                        "--format",
                        form,
                        "--out",
                        str(disk / name),
                    ],
                    capture_output=True,
                    text=True,
                )
                assert full.returncode == 2, full.stderr
                assert "is full" in full.stderr
                assert "Traceback" not in full.stderr
            assert [p.name for p in disk.iterdir()] == ["d"]
    finally:
        if mounted:
            subprocess.run(["umount", str(disk)], check=True)


def _small_files_only() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))


def _used_kib(disk: Path) -> int:
    stat = os.statvfs(disk)
    return (stat.f_blocks - stat.f_bfree) * stat.f_frsize // 1024


def test_no_rewards_means_no_ranking_by_return(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "a.npz",
        states=rng.normal(size=(6, 4)),
        next_states=rng.normal(size=(6, 4)),
        actions=np.zeros((6, 2)),
        dones=np.ones(6),
    )
    assert main(["demos", "import", str(tmp_path / "a.npz"), "--out", str(tmp_path / "d")]) == 0
    assert "no rewards in the file" in capsys.readouterr().err
    assert REWARD not in DemoDataset(tmp_path / "d").features
    refused(["demos", "rank", str(tmp_path / "d"), "--by", "return"], capsys, "holds no rewards")


def test_a_folder_without_permission_is_said(collected: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        user = ["setpriv", "--reuid=65534", "--clear-groups"]
        if subprocess.run([*user, sys.executable, "-c", "import cail_core"], capture_output=True, cwd="/").returncode:
            pytest.skip("the tests run as root and another user cannot run this Python")
    else:
        user = []
        tmp_path.chmod(0o555)
    done = subprocess.run(
        [
            *user,
            sys.executable,
            "-m",
            "cail_core.cli",
            "demos",
            "collect",
            "--task",
            "pointmass",
            "--episodes",
            "2",
            "--out",
            str(tmp_path / "d"),
        ],
        capture_output=True,
        text=True,
        cwd="/",
    )
    tmp_path.chmod(0o755)
    assert done.returncode == 2, done.stderr
    assert "no permission" in done.stderr


def test_the_benchmark_leaves_its_figures_with_what_made_them(tmp_path: Path) -> None:
    assert main(["bench", "dataset", "--budget", "smoke", "--out", str(tmp_path / "results")]) == 0
    header, row = (tmp_path / "results/dataset.csv").read_text().splitlines()
    assert dict(zip(header.split(","), row.split(","), strict=True))["frames"] == "20000"
    assert '"cores"' in (tmp_path / "results/dataset.json").read_text()


def test_two_visible_installs_of_a_command_are_one_command(tmp_path: Path) -> None:
    other = tmp_path / "cail_core-0.0.1.dist-info"  # as a sourced colcon workspace beside a pip install looks
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: cail-core\nVersion: 0.0.1\n")
    (other / "entry_points.txt").write_text("[cail.commands]\nbench = cail_bench.command:register\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "cail_core.cli", "--help"], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("    bench ") == 1


def test_saved_policies_demonstrate_in_equal_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mujoco", reason="the MuJoCo tasks need the extra mujoco")
    from cail_core.tasks.mujoco import SHIPPED

    shipped = SHIPPED / "reacher"
    argv = ["demos", "collect", "--task", "reacher", "--episodes", "4", "--out", str(tmp_path / "d"), "--policies"]
    assert main([*argv, str(shipped / "optimal"), str(shipped / "early-42")]) == 0
    assert [row.demonstrator for row in DemoDataset(tmp_path / "d").rows] == ["optimal", "early-42"] * 2
    refused([*argv, str(shipped / "nobody")], capsys, "expected a policy folder")
    refused([*argv, str(shipped / "optimal"), str(shipped / "optimal")], capsys, "given twice: optimal")
    other = ["demos", "collect", "--task", "pointmass", "--policies", str(shipped / "optimal"), "--out", str(tmp_path / "e")]
    refused(other, capsys, "does not fit: 3 faults", "its observations are cos_shoulder", lines=4)


def test_collect_does_not_go_on_with_other_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["demos", "collect", "--task", "pointmass", "--episodes", "3", "--out", str(tmp_path / "d")]
    assert main(argv) == 0
    settings = find_config("pointmass").read_text().replace("max_steps: 50", "max_steps: 20")
    (tmp_path / "short.yaml").write_text(settings)
    refused([*argv, "--config", str(tmp_path / "short.yaml")], capsys, "was not collected with this")


def test_names_with_brackets_and_closed_pipes_do_no_harm(dataset: DemoDataset) -> None:
    odd = dataset.root.with_name("z[") / "red]"  # rich would take [/red] for a mark
    odd.parent.mkdir()
    dataset.root.rename(odd)
    assert main(["demos", "info", str(odd)]) == 0
    for reader in ("head -1", "true"):
        line = f"'{sys.executable}' -m cail_core.cli demos info '{odd}' --episodes | {reader}; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == "0", done.stderr
        assert "Traceback" not in done.stderr


def test_a_dataset_being_recorded_is_not_called_broken(dataset: DemoDataset, capsys: pytest.CaptureFixture[str]) -> None:
    with DemoWriter.open(dataset.root) as writer:
        writer.info["total_episodes"] += 1  # as between a data file and the tables
        assert main(["demos", "check", str(dataset.root)]) == 0
        refused(["demos", "delete", str(dataset.root), "0", "--yes"], capsys, "being written by another process")


def test_odd_places_and_numbers_are_one_clear_line(collected: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    argv = ["demos", "collect", "--task", "pointmass", "--episodes", "2", "--out"]
    refused([*argv, str(tmp_path / "file" / "x")], capsys, "file")
    refused([*argv, str(tmp_path / ("n" * 300))], capsys, "too long")
    refused([*argv, str(tmp_path / "d"), "--seed", "-1"], capsys, "whole number of 0 or more")
    refused(["demos", "info", str(tmp_path / "file")], capsys, "a file")
    refused(["demos", "export", str(collected), "--format", "robomimic", "--out", str(tmp_path / "e")], capsys, ".hdf5 or .h5")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
