"""`cail new`: a package of one's own, outside of this tree, with a test that passes."""

from __future__ import annotations

import argparse
import keyword
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from cail_core import durable
from cail_core.errors import BadInput

TEMPLATES = files("cail_core") / "templates"
SUFFIX = ".in"
"""Of a template's files, so that they are not taken for modules and tests of this package."""
NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")


def register(commands: Any) -> None:
    p = commands.add_parser(
        "new",
        help="begin a package with a task, an arm or a method of your own",
        description="Write a package with a task, an arm or a method of your own: installed, it is one of cail's; see"
        " docs/extending.md.",
    )
    p.add_argument("kind", choices=kinds(), help="what it brings")
    p.add_argument("name", metavar="NAME", help="small letters and digits, words parted by _ or -")
    p.add_argument("--out", type=Path, metavar="DIR", help="the package's folder (default: its name, here)")
    p.set_defaults(run=_run)


def kinds() -> list[str]:
    return sorted(folder.name for folder in TEMPLATES.iterdir() if folder.is_dir())


def _run(args: argparse.Namespace) -> int:
    if not NAME.fullmatch(args.name) or keyword.iskeyword(args.name):
        raise BadInput(f"expected a name of small letters and digits, words parted by _ or -, given '{args.name}'")
    module = args.name.replace("-", "_")
    out = args.out or Path(module)
    if not out.absolute().parent.is_dir():
        raise BadInput(f"expected a place in a folder that exists, given {out}")
    with durable.new_folder(out) as building:
        for path, text in written(args.kind, args.name).items():
            (building / path).parent.mkdir(parents=True, exist_ok=True)
            (building / path).write_text(text, encoding="utf-8")
    print(f"{out}: {args.kind} '{args.name}'")
    print(f"Next: pip install --no-deps -e {out} && pytest {out}")
    return 0


def written(kind: str, name: str) -> dict[str, str]:
    """The files of a package of this name, path -> content."""
    words = re.split("[_-]", name)
    # What the template calls itself, as module, class, distribution and in sentences.
    called = {f"my_{kind}": "_".join(words), f"My{kind.capitalize()}": "".join(w.capitalize() for w in words),
              f"my-{kind}": "-".join(words), f"my {kind}": " ".join(words), f"My {kind}": " ".join(words).capitalize()}
    pattern = re.compile("|".join(map(re.escape, called)))
    return {
        pattern.sub(lambda found: called[found[0]], path.removesuffix(SUFFIX)): pattern.sub(
            lambda found: called[found[0]], file.read_text(encoding="utf-8")
        )
        for path, file in _files(TEMPLATES / kind, "").items()
    }


def _files(folder: Traversable, prefix: str) -> dict[str, Traversable]:
    found: dict[str, Traversable] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            found |= _files(entry, f"{path}/")
        elif path.endswith(SUFFIX):
            found[path] = entry
    return found
