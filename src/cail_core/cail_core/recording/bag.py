"""One MCAP bag per episode, as `ros2 bag`, Foxglove and PlotJuggler read it; complete under its name or not there at all."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from cail_core import durable
from cail_core.errors import DatasetError, MissingDependency, how_to_add
from cail_core.recording.topics import DEFINITIONS, topics_with

FOLDER = "bags"
OPEN, SAVING, DONE = ".mcap.tmp", ".saving.mcap", ".mcap"
"""How a bag's name ends: being written; complete, its episode about to enter the dataset; in the dataset."""
METADATA = "cail"
CHUNK_BYTES = 256 * 1024
"""Small, so that little waits in memory and a reader can seek."""
_FOREVER = "    sec: 9223372036\n    nsec: 854775807\n"
_QOS = (  # as ros2 bag writes it: keep the last ones, reliably
    "- history: 1\n  depth: {depth}\n  reliability: 1\n  durability: {durability}\n"
    f"  deadline:\n{_FOREVER}  lifespan:\n{_FOREVER}  liveliness: 1\n  liveliness_lease_duration:\n{_FOREVER}"
    "  avoid_ros_namespace_conventions: false"
)
_LATCHED, _VOLATILE = _QOS.format(depth=1, durability=1), _QOS.format(depth=10, durability=2)


class Message(NamedTuple):
    """One message as it was received: the topic without its namespace, the bytes, when, its publisher's count (0: unknown)."""

    topic: str
    data: bytes
    received_ns: int
    sequence: int = 0


def load_mcap() -> Any:
    try:
        import mcap.exceptions
        import mcap.reader
        import mcap.writer
    except ImportError:
        raise MissingDependency(f"recordings need the package mcap; {how_to_add('ros')}") from None
    return mcap


class BagWriter:
    """Writes a bag under a temporary name; `finish` gives it its own, with what is known of the episode by then."""

    def __init__(self, folder: Path, stem: str, namespace: str, needs: Mapping[str, str] | None = None) -> None:
        """`needs`: topic -> type of what is recorded beside the arm's topics."""
        mcap = load_mcap()
        self._folder, self.stem, self._namespace = folder, stem, namespace.rstrip("/")
        self._path = folder / f"{stem}{OPEN}"
        self._mcap, self._topics = mcap, topics_with(needs or {})
        self._last_ns = 0
        self._file = open(self._path, "wb", buffering=CHUNK_BYTES)  # noqa: SIM115
        try:
            with durable.full_disk_is_said(self._path):
                self._start()
        except BaseException:
            self.discard()
            raise

    def _start(self) -> None:
        self._writer = self._mcap.writer.Writer(self._file, chunk_size=CHUNK_BYTES)
        self._writer.start(profile="ros2", library="cail")
        schemas = {kind: self._writer.register_schema(kind, "ros2msg", text.encode()) for kind, text in DEFINITIONS.items()}
        self._channels = {
            topic.name: self._writer.register_channel(
                f"{self._namespace}/{topic.name}",
                "cdr",
                schemas[topic.type],
                {"offered_qos_profiles": _LATCHED if topic.name == "status" else _VOLATILE},
            )
            for topic in self._topics.values()
        }

    def write(self, message: Message) -> None:
        # A reader sorts by this time: it never goes back, whatever the computer's clock does.
        self._last_ns = max(self._last_ns, message.received_ns)
        with durable.full_disk_is_said(self._path):
            self._writer.add_message(
                self._channels[message.topic], self._last_ns, message.data, self._last_ns, message.sequence % 2**32
            )

    def finish(self, about: dict[str, Any]) -> Path:
        """Complete the bag: on the device, under the name that says its episode is to be saved."""
        path = self._folder / f"{self.stem}{SAVING}"
        with durable.full_disk_is_said(path):
            self._writer.add_metadata(METADATA, {key: json.dumps(value) for key, value in about.items()})
            self._writer.finish()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.rename(self._path, path)
            durable.sync_folder(self._folder)
        return path

    def discard(self) -> None:
        """Leave nothing behind."""
        with suppress(OSError):  # closing flushes, and the disk may be full
            self._file.close()
        with suppress(OSError):
            os.unlink(self._path)


def mark_done(path: Path) -> Path:
    """The bag's episode is in the dataset."""
    done = path.with_name(path.name.removesuffix(SAVING) + DONE)
    os.rename(path, done)
    durable.sync_folder(path.parent)
    return done


def bags_of(folder: Path) -> list[Path]:
    """The complete bags of a dataset, in the order in which they were recorded."""
    return sorted((path for path in folder.glob(f"*{DONE}") if not path.name.endswith(SAVING)), key=stem_of)


def stem_of(path: Path) -> str:
    """The bag's name in whatever state it is."""
    return next(path.name.removesuffix(ending) for ending in (OPEN, SAVING, DONE) if path.name.endswith(ending))


def read_about(path: Path) -> dict[str, Any]:
    """What was known of the episode when the bag was completed; empty for a bag of another tool."""
    with _opened(path) as reader:
        for record in reader.iter_metadata():
            if record.name == METADATA:
                return {key: json.loads(text) for key, text in record.metadata.items()}
    return {}


def read_messages(path: Path, needs: Mapping[str, str] | None = None) -> Iterator[Message]:
    """The messages of the arm's topics and of those that the task needs, in the order in which they were received."""
    topics = topics_with(needs or {})
    with _opened(path) as reader:
        for _, channel, message in reader.iter_messages(log_time_order=False):
            name = channel.topic.rpartition("/")[2]
            if name in topics:
                yield Message(name, message.data, message.log_time, message.sequence)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    mcap = load_mcap()
    try:
        with open(path, "rb") as stream:
            yield mcap.reader.make_reader(stream)
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing") from None
    except (mcap.exceptions.McapError, struct.error, ValueError, EOFError) as fault:
        raise DatasetError(f"{path}: empty, cut short or not MCAP ({fault})") from None
