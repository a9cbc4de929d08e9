"""Confidence-aware imitation learning: demonstrations, tasks, learners, evaluation, the `cail` command.

In Python: `from cail_core import load_demos, train, evaluate, load_policy`. They are loaded when they are first asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cail_core.api import evaluate, load_demos, load_policy, train

__version__ = "0.2.0"
__all__ = ["__version__", "evaluate", "load_demos", "load_policy", "train"]


def __getattr__(name: str) -> Any:
    if name in ("evaluate", "load_demos", "load_policy", "train"):
        from cail_core import api

        return getattr(api, name)
    raise AttributeError(f"module 'cail_core' has no attribute '{name}'")
