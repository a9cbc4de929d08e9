"""Brings demonstrations of other tools into a new dataset: the format is told from the file, the task checks the sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cail_core import durable
from cail_core.demos import layout
from cail_core.demos.dataset import DemoDataset
from cail_core.demos.features import ACTION, REQUESTED, STATE, Feature
from cail_core.demos.formats.source import Source
from cail_core.demos.writer import DemoWriter
from cail_core.errors import BadInput, CailError, listed
from cail_core.tasks import TaskSpec

EXPORTS = {"npz": (".npz",), "robomimic": (".hdf5", ".h5"), "minari": ("",)}
"""Format -> how its file's name ends."""
USUAL_HZ = 10
MALFORMED = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, MemoryError, OverflowError)
"""What reading a file that only looks like its format can raise, beside what the readers check themselves."""


@contextmanager
def malformed_is_said(path: Path) -> Iterator[None]:
    """Files come in more broken shapes than a reader can check one by one: each is one clear line with the file's name."""
    try:
        yield
    except CailError as fault:
        raise fault if str(path) in str(fault) else BadInput(f"{path}: {fault}") from None
    except MALFORMED as fault:
        text = (str(fault).splitlines() or [""])[0]
        raise BadInput(f"{path}: not a well-formed file of its kind ({type(fault).__name__}: {text})") from None


def open_source(path: Path, episode_length: int | None = None, task: str | None = None) -> Source:
    """The demonstrations in `path`, whatever wrote them; `task` where the caller expects a particular one."""
    from cail_core.demos.formats import lerobot, mcap, minari, npz, robomimic

    if path.suffix != ".npz" and episode_length is not None:
        raise BadInput(f"--episode-length is for .npz files only; {path} marks its episodes itself")
    if path.suffix == ".npz":
        return npz.read(path, episode_length)
    if path.suffix in (".hdf5", ".h5"):
        return robomimic.read(path)
    if (path / layout.INFO).is_file():
        return lerobot.read(path)
    folder = minari.find(path)
    if folder is not None:
        return minari.read(folder)
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder")
    bags = mcap.find(path)
    if bags:
        return mcap.read(bags, task)
    raise BadInput(
        f"expected an .npz archive, a robomimic .hdf5, a Minari folder, a LeRobot v3 folder, an .mcap bag or a folder of bags,"
        f" given {path}"
    )


KINDS = {"observation": STATE, "action": ACTION}


@dataclass(frozen=True)
class Given:
    """What a person says of a file, in the place of what the file says itself. Names and units by kind: observation, action."""

    name: str | None = None
    text: str | None = None
    robot: str | None = None
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    units: Mapping[str, Sequence[str]] = field(default_factory=dict)


def split(text: str | None) -> list[str]:
    """Names or units from the command line: separated by commas."""
    return [] if text is None else [part.strip() for part in text.split(",")]


def import_demos(
    path: Path, out: Path, *, spec: TaskSpec | None = None, fps: int | None = None, episode_length: int | None = None,
    given: Given | None = None,
) -> tuple[DemoDataset, list[str]]:
    """Write the demonstrations in `path` as a new dataset at `out`; it appears whole or not at all. Returns notes too."""
    given = given or Given()
    with malformed_is_said(path):
        source = open_source(path, episode_length, spec.name if spec else None)
    if source.recorded:
        spec = None
        if fps is not None:
            raise BadInput(f"{path}: recorded at {source.fps} frames a second, given --fps {fps}; leave it out")
    features = dict(source.features)
    if spec is not None:
        _check_sizes(path, source, spec)
        features[STATE] = Feature(features[STATE].dtype, features[STATE].shape, spec.observation_names)
        features[ACTION] = Feature(features[ACTION].dtype, features[ACTION].shape, spec.action_names)
    units = _apply(path, given, features, source.units)
    notes = list(source.notes)
    if not (fps or spec or source.fps):
        notes.append(f"nothing says at what rate it was recorded: {USUAL_HZ} Hz is assumed; --fps HZ gives another")
    durable.make_folder(out.absolute().parent)
    with durable.new_folder(out) as building:
        writer = DemoWriter.create(
            building,
            task=given.name or (spec.name if spec else source.task or path.stem or "custom"),
            text=given.text or (spec.text if spec else source.text or path.stem),
            robot_type=given.robot or (spec.robot_type if spec else source.robot_type or "unknown"),
            fps=fps or (spec.fps if spec else source.fps) or USUAL_HZ,
            features=features,
            about={"units": units} if units else None,
            in_place=True,
        )
        with writer:
            with malformed_is_said(path):
                writer.save_all(source.episodes())
        if writer.episodes == 0:
            raise BadInput(f"{path}: holds no episodes")
    return DemoDataset(out), notes


def _apply(path: Path, given: Given, features: dict[str, Feature], known: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Put the names into `features`; gives the units. All faults at once."""
    faults, units = [], {kind: list(found) for kind, found in known.items()}
    for kind, name in KINDS.items():
        feature, names, said = features[name], given.names.get(kind), given.units.get(kind)
        n = feature.shape[0]
        if names:
            if len(names) != n or len(set(names)) != n or not all(names):
                faults.append(f"--{kind}-names: expected {n} different names, given {len(names)}: {', '.join(names)}")
            for other in (name, *([REQUESTED] if kind == "action" and REQUESTED in features else [])):
                features[other] = Feature(features[other].dtype, features[other].shape, tuple(names))
        if said:
            if len(said) not in (1, n):
                faults.append(f"--{kind}-units: expected {n} units or one for all, given {len(said)}: {', '.join(said)}")
            units[kind] = list(said) * (n if len(said) == 1 else 1)
    if faults:
        raise BadInput(listed(str(path), faults))
    return units


def export_demos(dataset: DemoDataset, form: str, out: Path) -> None:
    """Write the dataset as another tool's file or folder."""
    from cail_core.demos.formats import minari, npz, robomimic

    if not dataset.rows:
        raise BadInput(f"{dataset.root} holds no episodes to export")
    if out.suffix not in EXPORTS[form] and "" not in EXPORTS[form]:
        raise BadInput(f"expected a name that ends in {' or '.join(EXPORTS[form])} for {form}, given {out}")
    writers = {"npz": npz.write, "robomimic": robomimic.write, "minari": minari.write}
    writers[form](dataset, out)


def _check_sizes(path: Path, source: Source, spec: TaskSpec) -> None:
    faults = []
    for what, feature, expected in (("states", STATE, spec.observation_dim), ("actions", ACTION, spec.action_dim)):
        given = source.features[feature].shape[0]
        if given != expected:
            faults.append(f"{what}: task '{spec.name}' has {expected} numbers, given {given}")
    if faults:
        raise BadInput(listed(str(path), faults))
