"""The table of methods by seeds: every row is kept, with what made it."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from cail_bench.ablation import VARIANTS, variant
from cail_bench.methods import Table, run_table, spearman
from cail_core.algorithms.method import method_config


def test_a_table_keeps_a_row_per_method_and_seed_with_what_made_it(tmp_path: Path) -> None:
    run_table(Table("tiny", "pointmass", "paper", ("bc", "cail-bc"), steps=1, cloning_steps=50), range(3, 5), tmp_path)
    rows = list(csv.DictReader((tmp_path / "tiny.csv").open()))
    assert [(row["method"], row["seed"]) for row in rows] == [("bc", "3"), ("cail-bc", "3"), ("bc", "4"), ("cail-bc", "4")]
    assert all(float(row["confidence_expert"]) == 1 for row in rows if row["method"] == "bc")
    assert all(float(row["confidence_ratio"]) > 3 for row in rows if row["method"] == "cail-bc")
    about = json.loads((tmp_path / "tiny.json").read_text())
    assert list(about["demonstrators_mean_return"]["3"]) == ["expert", "good", "fair", "poor", "hopeless"]
    assert about["table"]["cloning_steps"] == 50
    assert about["versions"]["numpy"]


def test_spearman_by_hand() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == 1
    assert spearman([1, 2, 3, 4], [40, 30, 20, 10]) == -1
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.949)  # ties at their mean rank: 4.5 / sqrt(4.5 · 5)
    assert np.isnan(spearman([1, 1], [1, 2]))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_of_the_ablation_changes_what_it_names_and_nothing_else(name: str) -> None:
    method, changes = VARIANTS[name]
    found, given = asdict(variant(name)[1]), asdict(method_config(method))
    for path, value in changes.items():
        group, _, key = path.rpartition(".")
        assert (found[group] if group else found)[key] == value
        (found[group] if group else found)[key] = (given[group] if group else given)[key]
    assert found == given


def test_no_two_variants_of_the_ablation_are_the_same() -> None:
    made = [variant(name) for name in VARIANTS]
    assert all(a != b for i, a in enumerate(made) for b in made[:i])
