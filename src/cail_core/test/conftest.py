"""A small dataset for the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import episode, fast_folder, features, write

from cail_core.demos.dataset import DemoDataset


@pytest.fixture
def dataset() -> Iterator[DemoDataset]:
    like = features()
    with fast_folder() as folder:
        yield write(Path(folder, "demos"), [episode(4 + i % 3, i, like, truncated=i % 2 == 0) for i in range(30)], like)
