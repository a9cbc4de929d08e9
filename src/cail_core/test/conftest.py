"""A small dataset for the tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import episode, features, write

from cail_core.demos.dataset import DemoDataset


@pytest.fixture
def dataset(tmp_path: Path) -> DemoDataset:
    like = features()
    return write(tmp_path / "demos", [episode(4 + i % 3, i, like, truncated=i % 2 == 0) for i in range(30)], like)
