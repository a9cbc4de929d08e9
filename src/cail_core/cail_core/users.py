"""Modules that a user names: an environment's, a demonstrator's."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from cail_core.errors import BadInput


def import_module(module: str, what: str) -> Any:
    """The module, from the folder that the command was started in too; `what` asks for it."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as fault:
        raise BadInput(f"{what}: {fault}; start from the folder that has it, or install it") from None
    except Exception as fault:  # a module may fail in any way while it is imported
        raise BadInput(f"{what}: the module {module} cannot be imported ({type(fault).__name__}: {first_line(fault)})") from fault


def first_line(fault: BaseException) -> str:
    return (str(fault).strip().splitlines() or [""])[0]
