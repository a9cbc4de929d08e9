"""Imitation learning: inner learners, outer losses, the bi-level step, and the methods made of them.

Nothing but the standard library is imported here: launch files ask for the names of the methods with the system's Python.
"""

from __future__ import annotations

from importlib.metadata import entry_points

GROUP = "cail.methods"


def method_names() -> tuple[str, ...]:
    """All installed methods, of this package and of others that register under `cail.methods`."""
    return tuple(dict.fromkeys(entry.name for entry in entry_points(group=GROUP)))
