"""Fixtures that several test files share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import fast_folder
from reach import install


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A scratch folder in which the task `reach` is installed."""
    with fast_folder() as scratch:
        install(Path(scratch))
        monkeypatch.syspath_prepend(scratch)
        yield Path(scratch)
