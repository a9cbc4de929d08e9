"""What there would be to reach: clones that are told the truth (`demos/truth.py`), with the settings of `cail-bc` otherwise.

`bc-experts` clones the demonstrations without a single bad frame, `bc-good-frames` all good frames of everybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cail_core.algorithms.method import method_config
from cail_core.algorithms.methods.bc import BcConfig
from cail_core.demos.demonstrations import Demonstrations
from cail_core.errors import BadInput

TOLD = ("bc-experts", "bc-good-frames")
CLONE = "bc"
"""The method by which they are trained."""


def told_config(task: str, changes: Mapping[str, Any]) -> BcConfig:
    """All that `bc` reads, as `cail-bc` has it."""
    config = method_config("cail-bc", task, changes)
    return BcConfig(**{each.name: getattr(config, each.name) for each in fields(BcConfig)})


def told(demos: Demonstrations, bad: NDArray[np.bool_], which: str) -> Demonstrations:
    """The frames that such a clone is given; those of one demonstration stay together, none is ranked."""
    episode = demos.episode_of_pair
    if which == "bc-experts":
        kept = ~np.isin(episode, np.unique(episode[bad]))
    else:
        kept = ~bad
    if not kept.any():
        raise BadInput(f"{which}: expected some frames that are not bad, given none")
    counts = np.bincount(episode[kept], minlength=demos.episodes)
    some = counts > 0
    who = [name for name, has in zip(demos.demonstrator, some, strict=True) if has] if demos.demonstrator else []
    return replace(demos, states=demos.states[kept], actions=demos.actions[kept], next_states=demos.next_states[kept],
                   terminated=demos.terminated[kept], starts=np.concatenate([[0], np.cumsum(counts[some])]),
                   rank=np.zeros(int(some.sum()), np.int64), demonstrator=who)
