"""What README and docs tell people to type is what commands and launch files take; links lead somewhere; README is a page."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from cail_core.cli import build_parser

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docker" / "README.md",
         *sorted((ROOT / "examples").glob("*/README.md"))]
README_WORDS = 700


def typed(page: Path, program: str) -> Iterator[tuple[str, list[str]]]:
    """Lines of code blocks that call a program: the line, and the words after the program's name.

    A comment may follow after # or two spaces; [words] in brackets are optional and left out, … stands for others.
    """
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
        for line in () if language not in ("", "bash", "sh") else block.replace("\\\n", " ").splitlines():
            found = re.match(rf"(?:\$ |. venv/bin/activate && |\.venv/bin/)?{program}\s+(\S.*)", line)
            if found is None or "…" in line:
                continue
            words = re.sub(r"\s+#.*|\s*&&?.*|\s+\|.*|\[[^\]]*\]", "", found[1])
            yield line, shlex.split(re.split(r"\s{4,}", words)[0])


def commands() -> list[tuple[Path, str, list[str]]]:
    return [(page, line, words) for page in PAGES for line, words in typed(page, "cail")]


def test_there_are_commands_to_check() -> None:
    assert len(commands()) >= 40


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_ones_that_cail_takes(page: Path) -> None:
    parser, refused = build_parser(), []
    for line, words in typed(page, "cail"):
        if any(word in ("--help", "--version", "-h") for word in words):
            continue
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                parser.parse_known_args(words) if "--ros-args" in words else parser.parse_args(words)
        except SystemExit:
            refused.append(f"{line}\n    {said.getvalue().strip()}")
    assert not refused, "\n".join(refused)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_launch_arguments_are_declared(page: Path) -> None:
    for line, words in typed(page, "ros2 launch"):
        package, file, *given = words
        assert package == "cail_robot", line
        assert (ROOT / "launch" / file).is_file(), line
        declared = (ROOT / "launch" / file).read_text(encoding="utf-8")
        shared = (ROOT / "src/cail_robot/cail_robot/ros/launching.py").read_text(encoding="utf-8")
        for argument in given:
            name = argument.partition(":=")[0]
            assert name == "--show-args" or f'"{name}"' in declared + shared, f"{line}: {name}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "results" / "README.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        file = page if not name else (page.parent / name).resolve()
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            heads = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.M)
            anchors = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in anchors, target


def test_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= README_WORDS
