"""A stress test on the policy's card: the key `stress` of `policy.json` and a section of `README.md`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from cail_core import durable
from cail_core.policy import FILES, PolicyRunner, load_policy
from cail_core.progress import bar
from cail_core.stress.findings import summary
from cail_core.stress.played import Result, stress, stressable
from cail_core.stress.show import markdown
from cail_core.tasks.base import Task

HEADING = "## What it holds"
BEFORE = "## Where it comes from"
"""The section stands before this one."""


def place(folder: Path) -> Path:
    """Where the played cases are kept: in the run of RUN/policy, beside any other policy folder. A policy folder itself has
    nothing in it but the policy."""
    folder = folder.resolve()
    return folder.parent if folder.name == "policy" else folder.with_name(f"{folder.name}-stress")


def write_card(folder: Path, results: Sequence[Result]) -> bool:
    """Put this on the card of the policy in `folder`, in one step. A card that rests on more episodes is kept: False."""
    before = load_policy(folder).card.stress
    told = summary(results)
    if before and before["episodes"] > told["episodes"]:
        return False
    _, about, readme = FILES
    card = json.loads((folder / about).read_text(encoding="utf-8"))
    text = (folder / readme).read_text(encoding="utf-8") if (folder / readme).is_file() else ""
    with durable.replaced_folder(folder) as building:
        for file in folder.iterdir():
            shutil.copy2(file, building / file.name)
        durable.write_json(building / about, card | {"stress": told})
        durable.write_bytes(building / readme, with_section(text, markdown(results)).encode())
    return True


def with_section(text: str, content: str) -> str:
    """A card's text with this section, in the place of an older one if it has one."""
    section = f"{HEADING}\n\n{content}\n"
    if (start := text.find(HEADING)) >= 0:
        end = text.find("\n## ", start)
        return text[:start] + section + (text[end + 1 :] if end >= 0 else "")
    if (start := text.find(BEFORE)) >= 0:
        return text[:start] + section + text[start:]
    return f"{text.rstrip()}\n\n{section}".lstrip()


def short_form(folder: Path, policy: PolicyRunner, task: Task, seed: int = 0) -> PolicyRunner:
    """The policy in `folder` with the short form on its card: as it is where the card has one, else played now."""
    if policy.card.stress or not stressable(task):
        return policy
    durable.make_folder(place(folder))
    with bar("stress", 1) as advance:
        results = stress(policy, task, place(folder), short=True, seed=seed, advance=advance)
    write_card(folder, results)
    return load_policy(folder)
