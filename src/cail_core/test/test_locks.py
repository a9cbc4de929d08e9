"""Folders that one process holds for writing, also on file systems whose locks need a file."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from cail_core import durable
from cail_core.errors import CailError


def as_over_nfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """flock(2): there it is a lock of bytes, and one to write needs a file that is open for writing."""
    flock = fcntl.flock

    def nfs(handle: int, what: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(handle, what)

    monkeypatch.setattr(fcntl, "flock", nfs)


@pytest.mark.parametrize("nfs", [False, True])
def test_a_folder_is_held_by_one_and_free_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nfs: bool) -> None:
    if nfs:
        as_over_nfs(monkeypatch)
    assert not durable.is_locked(tmp_path)
    with durable.locked(tmp_path):
        assert durable.is_locked(tmp_path)
        with pytest.raises(CailError, match="is being written by another process"), durable.locked(tmp_path):
            pass
    assert not durable.is_locked(tmp_path)


def test_a_file_system_without_locks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(handle: int, what: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(CailError, match="cannot be locked"), durable.locked(tmp_path):
        pass
