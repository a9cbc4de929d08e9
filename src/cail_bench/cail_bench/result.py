"""Keeps a benchmark's rows as CSV, with a JSON beside it that says how they were made."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cail_core import durable
from cail_core.machine import describe


def save(out: Path, name: str, rows: Sequence[Mapping[str, Any]], **about: Any) -> Path:
    """Write `out/name.csv` and `out/name.json`."""
    durable.make_folder(out)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    durable.write_bytes(out / f"{name}.csv", text.getvalue().encode())
    durable.write_json(out / f"{name}.json", {**describe(), **about})
    return out / f"{name}.csv"
