"""A policy as a folder: `policy.safetensors`, `policy.json`, `README.md`, and where it was trained on demonstrations its guard,
`guard.safetensors`. Loading and acting need NumPy only, never a pickle.

The network is an MLP on (observation − mean) / scale whose output goes through tanh: actions in [-1, 1].
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from cail_core import durable, machine
from cail_core.errors import BadInput, listed
from cail_core.guard import Guard, read_guard
from cail_core.tasks.base import DATA, Array, Demonstrator, Gate, Policy, TaskSpec, in_units

if TYPE_CHECKING:
    from cail_core.rl.networks import TanhGaussianActor

FORMAT = "cail-policy"
FORMAT_VERSION = 1
FILES = ("policy.safetensors", "policy.json", "README.md")
ACTION_BOUND = 1.0 - 1e-4
"""Actions are inverted through tanh no closer to ±1 than this: at 1 the inverse is infinite, and in float32 already
inexact long before. Demonstrations that press against the limit so keep a finite log-probability."""
GUARD = "guard.safetensors"
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0.0, dtype=np.float32)}


@dataclass(frozen=True)
class PolicyCard:
    """The content of `policy.json`: what the policy is for, how its numbers are meant and where it comes from."""

    task: str
    method: str
    observation_names: list[str]
    action_names: list[str]
    action_scale: str
    fps: int
    activation: str = "tanh"
    robot: str = ""
    """Which robot gave the demonstrations; empty where that is not known."""
    observation_units: str = ""
    guard: dict[str, float] = field(default_factory=dict)
    """Thresholds of the out-of-distribution guard; its states are in `guard.safetensors`."""
    limits: dict[str, float] = field(default_factory=dict)
    gates: list[dict[str, Any]] = field(default_factory=list)
    """What it does not see in which phase; none in policies of before there were gates, which see everything."""
    action_low: list[float] = field(default_factory=list)
    action_high: list[float] = field(default_factory=list)
    """What actions of -1 and 1 mean in the units of the demonstrations; empty where these are in [-1, 1] themselves."""
    action_units: list[str] = field(default_factory=list)
    stress: dict[str, Any] = field(default_factory=dict)
    """What it holds when the arm or the tracker differs (`cail stress`); empty where that was not played."""
    provenance: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    format: str = FORMAT
    format_version: int = FORMAT_VERSION


class Gates:
    """What a policy does not see in which phase (`tasks.base.Gate`), by the places of the observations."""

    def __init__(self, gates: Sequence[Gate], names: Sequence[str]) -> None:
        place = {name: i for i, name in enumerate(names)}
        self.about = [{"hidden": list(gate.hidden), "when": {name: list(ends) for name, ends in gate.when.items()}}
                      for gate in gates]
        self.names = list(names)
        self.indexed: list[tuple[Array, list[int], Array, Array]] = []
        """Of each: 1 for what is hidden and 0 for the rest, the entries that are asked, and their bounds."""
        for gate in gates:
            hidden = np.zeros(len(names), np.float32)
            hidden[[place[name] for name in gate.hidden]] = 1.0
            low, high = np.array(list(gate.when.values()), np.float32).T
            self.indexed.append((hidden, [place[name] for name in gate.when], low, high))

    @classmethod
    def read(cls, about: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Gates | None:
        """From what a card says; None where nothing is hidden."""
        gates = [Gate(tuple(one["hidden"]), {name: (float(low), float(high)) for name, (low, high) in one["when"].items()})
                 for one in about]
        return cls(gates, names) if gates else None

    def hide(self, observation: Array, seen: Array) -> Array:
        """`seen`, which is the observation standardised, with 0 for what is hidden."""
        for hidden, columns, low, high in self.indexed:
            asked = observation[..., columns]
            here = ((asked >= low) & (asked <= high)).all(axis=-1, keepdims=True)
            seen = seen * (np.float32(1.0) - here * hidden)
        return seen


class Network:
    """The policy's MLP in NumPy, without the tanh at its end: one observation [d] or a batch [n, d]."""

    def __init__(self, weights: Mapping[str, NDArray[Any]], activation: str, gates: Gates | None = None) -> None:
        self.weights, self.activation, self.gates = weights, activation, gates
        self._activation = ACTIVATIONS[activation]
        self._mean, self._scale = (weights[name].astype(np.float32) for name in ("observation_mean", "observation_scale"))
        depth = sum(name.endswith(".weight") for name in weights)
        self._layers = [
            (np.ascontiguousarray(weights[f"layer{i}.weight"].T, dtype=np.float32), weights[f"layer{i}.bias"].astype(np.float32))
            for i in range(depth)
        ]

    @property
    def inputs(self) -> int:
        return len(self._mean)

    def one_by_one(self, observations: Array) -> Array:
        """A batch [n, d], each with the result that it has alone: in one product the last bits of a row depend on the others."""
        out: Array = self(observations[:, None])[:, 0]
        return out

    def __call__(self, observation: Array) -> Array:
        x: Array = (observation - self._mean) / self._scale
        if self.gates is not None:
            x = self.gates.hide(observation, x)
        for weight, bias in self._layers[:-1]:
            x = self._activation(np.asarray(x @ weight + bias))
        weight, bias = self._layers[-1]
        out: Array = x @ weight + bias
        return out


class Mode:
    """tanh(network): what a policy does without exploration, on one observation [d] or a batch [n, d]."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def __call__(self, observation: Array) -> Array:
        action: Array = np.tanh(self.network(np.asarray(observation, dtype=np.float32)))
        return action


class PolicyRunner(Mode):
    """A loaded policy."""

    def __init__(self, card: PolicyCard, weights: Mapping[str, NDArray[Any]], guard: Guard | None = None) -> None:
        super().__init__(Network(weights, card.activation, Gates.read(card.gates, card.observation_names)))
        self.card = card
        self.guard = guard

    def __call__(self, observation: Array) -> Array:
        given = np.shape(observation)[-1]
        if given != self.network.inputs:
            raise BadInput(f"the policy for '{self.card.task}' expects {self.network.inputs} observations, given {given}")
        return super().__call__(observation)

    def act(self, observation: Array) -> Array:
        """What to do in the units of the demonstrations, such as rad or m/s: between the card's `action_low` and `action_high`.
        Called as a function, the policy gives the same in [-1, 1]."""
        return in_units(self(observation), self.card.action_low, self.card.action_high)

    def faults(self, spec: TaskSpec) -> list[str]:
        """In what a task's observations or actions are not the ones that the policy was trained on."""
        card = self.card
        faults = [
            f"its {what} are {', '.join(trained)}; the task '{spec.name}' has {', '.join(given)}"
            for what, trained, given in (
                ("observations", card.observation_names, spec.observation_names),
                ("actions", card.action_names, spec.action_names),
            )
            if list(trained) != list(given)
        ]
        if card.action_scale != spec.action_scale:
            faults.append(f"its action of 1 means {card.action_scale}; in the task '{spec.name}' {spec.action_scale}")
        if card.observation_units and card.observation_units != spec.observation_units:
            faults.append(f"its observations are {card.observation_units}; in the task '{spec.name}' {spec.observation_units}")
        return faults

    def check(self, spec: TaskSpec) -> None:
        """Refuse a task that it does not fit."""
        if faults := self.faults(spec):
            raise BadInput(listed(f"the policy was trained for the task '{self.card.task}' and does not fit", faults))


def load_policy(folder: Path) -> PolicyRunner:
    """The policy in `folder`; everything that is wrong with it is listed in one BadInput."""
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(f"{folder}: expected a policy folder with {', '.join(FILES[:2])}, " + (
            "found a file" if folder.exists() else "found nothing; `cail train` writes one into RUN/policy"))
    missing = [name for name in FILES[:2] if not (folder / name).is_file()]
    if missing:
        raise BadInput(f"{folder}: expected a policy folder, but {' and '.join(missing)} is missing")
    card = _read_card(folder / "policy.json")
    weights = _load(folder / FILES[0])
    faults = _weight_faults(card, weights)
    if faults:
        raise BadInput(listed(str(folder / FILES[0]), faults))
    if not card.guard:
        return PolicyRunner(card, weights)
    guard = read_guard(str(folder / GUARD), _load(folder / GUARD), card.guard, len(card.observation_names))
    return PolicyRunner(card, weights, guard)


def _load(path: Path) -> dict[str, NDArray[Any]]:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as fault:
        raise BadInput(f"{path}: not a safetensors file or damaged: {fault}") from None


def save_policy(
    folder: Path,
    actor: TanhGaussianActor,
    spec: TaskSpec,
    method: str,
    provenance: Mapping[str, Any],
    *,
    limits: Mapping[str, float] | None = None,
    guard: Guard | None = None,
    robot: str = "",
    card_text: str = "",
    network: Network | None = None,
) -> PolicyCard:
    """Write the deterministic policy of `actor` into `folder`, all of it or nothing; an older policy there is replaced.

    `provenance` (JSON values) says what made it: data, seed, steps, command. `limits` are the speeds and accelerations that
    it was trained for (default: the task's), `guard` tells where it may be trusted, `robot` gave the demonstrations.
    `card_text` is Markdown for the card, for instance the demonstrations that it trusted. `network` stands in for that of the
    actor where this was trained on other numbers than the policy will see.
    """
    network = network or network_of(actor)
    card = PolicyCard(
        task=spec.name, method=method, observation_names=list(spec.observation_names), action_names=list(spec.action_names),
        action_scale=spec.action_scale, fps=spec.fps, activation=network.activation, robot=robot,
        observation_units=spec.observation_units, action_low=list(spec.action_low), action_high=list(spec.action_high),
        action_units=list(spec.action_units), guard=guard.thresholds() if guard else {},
        limits=dict(spec.limits if limits is None else limits), gates=network.gates.about if network.gates else [],
        provenance=dict(provenance), versions=_versions(),
    )
    content = (save(dict(network.weights)), (json.dumps(asdict(card), indent=2, ensure_ascii=False) + "\n").encode(),
               _readme(card, spec, card_text + (f"\n{guard.text()}" if guard else "")).encode())
    files = dict(zip(FILES, content, strict=True)) | ({GUARD: save(guard.arrays())} if guard else {})
    _write(Path(folder), files)
    return card


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """All of `files` or nothing at `folder`, in place of an older policy if there is one."""
    if folder.exists() and (not folder.is_dir() or any(p.name not in (*FILES, GUARD) for p in folder.iterdir())):
        raise BadInput(f"{folder}: expected a free place or an older policy to replace, found something else")
    durable.make_folder(folder.absolute().parent)
    with (durable.replaced_folder if folder.exists() else durable.new_folder)(folder) as building:
        for name, content in files.items():
            durable.write_bytes(building / name, content)


def demonstrator(folder: Path, spec: TaskSpec) -> Demonstrator:
    """A saved policy as a source of demonstrations, called by its folder's name. It acts without noise."""
    runner = load_policy(folder)
    runner.check(spec)

    def start(rng: np.random.Generator) -> Policy:
        return runner

    return Demonstrator(folder.name, start, hashlib.sha256((folder / FILES[0]).read_bytes()).hexdigest()[:16])


def load_demonstrators(folders: Sequence[Path], spec: TaskSpec) -> list[Demonstrator]:
    """Demonstrators from saved policies; a folder may be a policy or hold policies (taken in the order of their names)."""
    found: list[Path] = []
    for folder in map(Path, folders):
        inside = sorted(p.parent for p in folder.glob(f"*/{FILES[1]}"))
        if (folder / FILES[1]).exists() or not inside:
            inside = [folder]
        found += inside
    names = [folder.name for folder in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"expected policies in folders of different names, given twice: {', '.join(twice)}")
    return [demonstrator(folder, spec) for folder in found]


def network_of(actor: TanhGaussianActor) -> Network:
    """The network of an actor's mean, as it is now."""
    linear, activations = list(actor.net)[::2], list(actor.net)[1::2]
    arrays = {"observation_mean": actor.standardise.mean, "observation_scale": actor.standardise.scale}
    for i, layer in enumerate(linear):
        rows = actor.action_dim if i == len(linear) - 1 else None  # a second head would be log σ, which acting does not need
        for kind, tensor in layer.named_parameters():
            arrays[f"layer{i}.{kind}"] = tensor[:rows]
    activation = type(activations[0]).__name__.lower()
    return Network({name: np.array(tensor.detach().cpu().numpy()) for name, tensor in arrays.items()}, activation,
                   actor.standardise.gates)


def _versions() -> dict[str, str]:
    packages = ("cail", "numpy", "torch", "safetensors", "mujoco", *machine.PYBULLETS)
    return {"python": platform.python_version(), **{name: found for name in packages if (found := machine.installed(name))}}


def _read_card(path: Path) -> PolicyCard:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as fault:
        raise BadInput(f"{path}: not valid JSON: {fault}") from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise BadInput(f"{path}: expected \"format\": \"{FORMAT}\"; this is not a policy of `cail`")
    if values.get("format_version") != FORMAT_VERSION:
        raise BadInput(f"{path}: expected format_version {FORMAT_VERSION}, given {values.get('format_version')!r}; update cail")
    kinds = {"task": str, "method": str, "observation_names": list, "action_names": list, "action_scale": str, "fps": int,
             "activation": str, "limits": dict, "provenance": dict, "versions": dict}
    later = {"robot": str, "observation_units": str, "guard": dict, "gates": list, "stress": dict,
             "action_low": list, "action_high": list, "action_units": list}  # older policies lack these
    kinds |= {name: kind for name, kind in later.items() if name in values}
    faults = [f"key '{name}': expected {kind.__name__}, given {values.get(name)!r}" for name, kind in kinds.items()
              if not isinstance(values.get(name), kind)]
    if not faults and values["activation"] not in ACTIVATIONS:
        faults.append(f"key 'activation': expected one of {', '.join(ACTIVATIONS)}, given {values['activation']!r}")
    if not faults:
        faults += _number_faults(values)
        faults += _range_faults(*(values.get(name, []) for name in ("action_low", "action_high", "action_names")))
    if not faults:
        faults += _gate_faults(values.get("gates", []), values.get("observation_names", []))
    if not faults and values.get("stress"):
        from cail_core.stress.findings import faults as stress_faults  # it plays policies, and so comes after them

        faults += stress_faults(values["stress"])
    if faults:
        raise BadInput(listed(str(path), faults))
    known = {f.name for f in fields(PolicyCard)}
    return PolicyCard(**{name: value for name, value in values.items() if name in known})


def _range_faults(low: list[Any], high: list[Any], names: list[Any]) -> list[str]:
    if not low and not high:
        return []
    numbers = all(isinstance(value, (int, float)) and math.isfinite(value) for value in (*low, *high))
    fits = numbers and len(low) == len(high) == len(names) and all(a < b for a, b in zip(low, high, strict=True))
    return [] if fits else [f"keys 'action_low' and 'action_high': expected {len(names)} numbers each, low below high, "
                            f"given {low} and {high}"]


def _number_faults(values: dict[str, Any]) -> list[str]:
    """What would make an arm faster, turn its motion round or stop a program half-way: numbers out of range, names no text."""

    def sound(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)

    faults = [f"key '{key}': expected names, given {name!r}" for key in ("observation_names", "action_names")
              for name in values[key] if not isinstance(name, str)]  # fmt: skip
    if isinstance(values["fps"], bool) or not 1 <= values["fps"] <= 1000:
        faults.append(f"key 'fps': expected 1 … 1000, given {values['fps']!r}")
    faults += [f"key 'limits.{name}': expected a number above 0, given {value!r}" for name, value in values["limits"].items()
               if not (sound(value) and value > 0)]  # fmt: skip
    fastest = values["provenance"].get("fastest_action", 1.0)
    if not (sound(fastest) and 0.0 <= fastest <= 1e3):
        faults.append(f"key 'provenance.fastest_action': expected a number from 0 on, given {fastest!r}")
    faults += [f"key 'guard.{name}': expected a number, given {value!r}" for name, value in values.get("guard", {}).items()
               if not sound(value)]  # fmt: skip
    return faults


def _gate_faults(gates: Any, names: Any) -> list[str]:
    try:
        if gates:
            Gates.read(gates, names)
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        return [f"key 'gates': expected what each has 'hidden' and 'when' (bounds of observations), given {gates!r}: {fault!r}"]
    return []


def _weight_faults(card: PolicyCard, weights: Mapping[str, NDArray[Any]]) -> list[str]:
    depth = sum(name.endswith(".weight") for name in weights)
    layers = {f"layer{i}.{kind}" for i in range(depth) for kind in ("weight", "bias")}
    if depth == 0 or set(weights) != layers | {"observation_mean", "observation_scale"}:
        return [f"expected observation_mean, observation_scale and layer0 … layerN (weight, bias), given {sorted(weights)}"]
    faults = [f"{name}: holds NaN or infinite numbers" for name, array in weights.items() if not np.isfinite(array).all()]
    inputs = len(card.observation_names)
    for name in ("observation_mean", "observation_scale"):
        if weights[name].shape != (inputs,):
            faults.append(f"{name}: expected {inputs} numbers, given shape {weights[name].shape}")
    if np.any(weights["observation_scale"] == 0):
        faults.append("observation_scale: expected numbers other than 0")
    for i in range(depth):
        weight, bias = weights[f"layer{i}.weight"], weights[f"layer{i}.bias"]
        outputs = len(card.action_names) if i == depth - 1 else bias.size
        if weight.shape != (outputs, inputs) or bias.shape != (outputs,):
            faults.append(f"layer{i}: expected ({outputs}, {inputs}) and ({outputs},), given {weight.shape} and {bias.shape}")
        inputs = outputs
    return faults


def _readme(card: PolicyCard, spec: TaskSpec, text: str) -> str:
    facts = "\n".join(f"| {name} | {json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value} |"
                      for name, value in card.provenance.items())
    limits = "".join(f"- {name}: {value:g}\n" for name, value in card.limits.items())
    return (
        f"# Policy for `{card.task}`, learned by {card.method}\n\n{spec.text}\n\n"
        + (f"{text.strip()}\n\n" if text.strip() else "")
        + f"## Where it comes from\n\n| what | value |\n| --- | --- |\n{facts}\n\n"
        f"## Input and output\n\n"
        f"{len(card.observation_names)} observations at {card.fps} Hz: {', '.join(card.observation_names)}"
        + (f" ({card.observation_units})" if card.observation_units and card.action_low else "") + ".\n\n"
        + _actions_text(card)
        + (f"Trained within these limits:\n\n{limits}\n" if limits else "")
        + "## Use\n\n    cail eval --policy FOLDER"
        + ("" if card.task.startswith(f"{DATA}:") else f" --task {card.task} --episodes 100 --seed 0")
        + "\n\nIn Python, without torch: `cail_core.load_policy(folder).act(observation)`"
        + (", in the units above.\n" if card.action_low else ".\n")
    )


def _actions_text(card: PolicyCard) -> str:
    if not card.action_low:
        return (f"{len(card.action_names)} actions in [-1, 1], where 1 means {card.action_scale}: "
                f"{', '.join(card.action_names)}.\n\n")
    units = card.action_units or [""] * len(card.action_names)
    rows = "".join(f"| {name} | {low:.6g} | {high:.6g} | {unit} |\n" for name, low, high, unit in
                   zip(card.action_names, card.action_low, card.action_high, units, strict=True))
    return (f"{len(card.action_names)} actions. The network gives numbers in [-1, 1], which stand for:\n\n"
            f"| action | -1 | 1 | unit |\n| --- | --- | --- | --- |\n{rows}\n")
