"""Files that appear whole or not at all, folders that change in one step, and the lock that keeps two writers apart.

Every byte that this package puts on disk for keeps goes through here: written under a temporary name, flushed to the
device, renamed, and the folder's entry flushed too. A process killed at any moment leaves the old state or the new one.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cail_core.errors import BadInput, DatasetError, StorageFull

TEMPORARY = ".tmp"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def full_disk_is_said(path: Path) -> Iterator[None]:
    """Turns the system's "no space left" into one clear line."""
    try:
        yield
    except OSError as fault:
        if fault.errno not in _FULL and "No space left" not in str(fault):  # HDF5 gives the reason as text only
            raise
        raise StorageFull(
            f"the disk under {path} is full ({fault.strerror}); what was saved before is intact: "
            "free some space, or choose a folder on another disk"
        ) from None


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Put `data` at `path`: whole or not at all, and on the device when this returns."""
    temporary = path.with_name(path.name + TEMPORARY)
    with full_disk_is_said(path):
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(handle, rest) :]
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        sync_folder(path.parent)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Let the caller write a file out of sight, then put it at `path`; after an error nothing is at `path`."""
    if path.exists():
        raise BadInput(f"expected a file that does not exist yet, given {path}; choose another name or remove it first")
    if not path.absolute().parent.is_dir():
        raise BadInput(f"expected {path.absolute().parent} to be a folder in which {path.name} can be made; create it first")
    temporary = path.with_name(f".{path.name}{TEMPORARY}")
    with full_disk_is_said(path):
        try:
            yield temporary
            handle = os.open(temporary, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            os.rename(temporary, path)
        finally:
            with suppress(OSError):
                os.unlink(temporary)
        sync_folder(path.absolute().parent)


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def make_folder(path: Path) -> None:
    """Create `path` and its parents, each entry on the device."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    for folder in reversed(missing):
        with full_disk_is_said(folder):
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_leftovers(folder: Path, patterns: Sequence[str]) -> None:
    """Delete the temporary files of a killed writer: those whose final names fit `patterns`."""
    for pattern in patterns:
        for leftover in folder.glob(f"{pattern}{TEMPORARY}"):
            with suppress(OSError):
                leftover.unlink()


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Build a folder out of sight and put it at `path` in one step; after an error nothing is at `path`.

    An empty folder may stand at `path` already.
    """
    path = path.resolve()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BadInput(f"expected a folder that does not exist yet, given {path}; choose another name or remove it first")
    with _workplace(path) as building:
        yield building
        os.rename(building, path)
        sync_folder(path.parent)


@contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """Build a folder out of sight and exchange it with the one at `path` in one step; the old one is kept until then."""
    path = path.resolve()  # a link to a dataset stays a link
    with _workplace(path) as building:
        yield building
        shutil.copystat(path, building)
        _exchange(building, path)
        sync_folder(path.parent)


@contextmanager
def _workplace(path: Path) -> Iterator[Path]:
    parent = path.parent
    if not parent.is_dir():
        raise BadInput(f"expected {parent} to be a folder in which {path.name} can be made; create it first")
    for stale in parent.glob(f".{path.name}.*.building"):
        if not is_locked(stale):  # its owner is gone
            shutil.rmtree(stale, ignore_errors=True)
    place = parent / f".{path.name}.{uuid.uuid4().hex[:12]}.building"
    building = place / path.name  # inside, because the one who builds may lock it too
    with full_disk_is_said(path):
        place.mkdir()
        try:
            with locked(place):
                building.mkdir()
                yield building
        finally:
            shutil.rmtree(place, ignore_errors=True)


def is_locked(folder: Path) -> bool:
    """Whether some process holds the folder for writing."""
    try:
        os.close(_lock(folder))
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _lock(folder: Path) -> int:
    """A handle that holds the folder; BlockingIOError where another process has it.

    Over NFS a lock is one of bytes, which needs a file that is open for writing: there it is that of `.lock` in the folder.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            if fault.errno != errno.EBADF:
                raise
            os.close(handle)
            handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _exchange(one: Path, other: Path) -> None:
    """Swap two folders' names atomically (Linux renameat2 with RENAME_EXCHANGE)."""
    libc = ctypes.CDLL(None, use_errno=True)
    at_cwd, rename_exchange = -100, 2
    renameat2 = getattr(libc, "renameat2", None)
    if renameat2 is not None:
        if renameat2(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), rename_exchange) == 0:
            return
        if ctypes.get_errno() not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other))
    # A file system without the exchange: two renames; the old folder stays beside under a name that says what it is.
    aside = other.with_name(f"{other.name}.before-change")
    os.rename(other, aside)
    os.rename(one, other)
    os.rename(aside, one)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for writing; a second writer is told who has it. The lock dies with its process."""
    before = folder.stat().st_ino
    try:
        handle = _lock(folder)
    except BlockingIOError:
        raise DatasetError(f"{folder} is being written by another process; wait for it to end, then try again") from None
    except OSError as fault:
        raise DatasetError(f"{folder} cannot be locked ({fault.strerror}); its file system has no locks: use another") from None
    try:
        if before != folder.stat().st_ino:
            raise DatasetError(f"{folder} was replaced while it was opened; try again")
        yield
    finally:
        os.close(handle)
