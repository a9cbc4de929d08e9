"""The whole loop, little of everything."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from cail_core.cli import main
from cail_core.demos.dataset import DemoDataset
from cail_core.errors import how_to_add
from cail_core.policy import load_policy


def test_the_demo_ends_with_a_report_and_a_policy_and_says_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo"
    assert main(["demo", "--task", "pointmass", "--quick", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    rows = DemoDataset(out / "demonstrations").rows
    assert (len(rows), sum(row.rank is not None for row in rows)) == (20, 10)
    assert f"The report: {out / 'report.html'}" in said
    assert "point mass" in (out / "report.html").read_text(encoding="utf-8")
    assert load_policy(out / "cail-hybrid" / "policy").card.task == "pointmass"
    assert main(["demo", "--task", "pointmass", "--quick", "--out", str(out)]) == 0  # goes on where it stopped: nothing is left


def test_without_pybullet_the_demo_says_why_it_is_a_point_mass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pybullet" else found(name))
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file" / "demo")]) == 2  # nothing can be made there, so it ends at once
    assert f"needs PyBullet, which is not here, so a point mass instead; {how_to_add('sim')}" in capsys.readouterr().out
