"""How good a confidence of pairs is, against the truth that scripted people kept (`demos/truth.py`).

No one of these numbers is enough: a good detector of bad frames may leave too little to learn from, and a cautious one may tell
nothing. They are always reported together, with the policy's success and return.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Flags = NDArray[np.bool_]


def auc(score: Floats, bad: Flags) -> float:
    """The chance that a good frame scores higher than a bad one, ties half: the area under the ROC curve. NaN where one kind is
    missing."""
    good_n, bad_n = int((~bad).sum()), int(bad.sum())
    if good_n == 0 or bad_n == 0:
        return float("nan")
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    return float((rank[~bad].sum() - good_n * (good_n + 1) / 2) / (good_n * bad_n))


def auc_within(score: Floats, bad: Flags, starts: NDArray[np.int64], episodes: Sequence[int] | None = None) -> float:
    """The mean of `auc` over the demonstrations (or those of `episodes`) that have good and bad frames; NaN where none has."""
    chosen = range(len(starts) - 1) if episodes is None else episodes
    found = [auc(score[starts[e] : starts[e + 1]], bad[starts[e] : starts[e + 1]]) for e in chosen]
    known = [value for value in found if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def share_on_bad(weight: Floats, bad: Flags) -> float:
    """How much of the weight lies on bad frames."""
    return float(weight[bad].sum() / weight.sum())


def effective_share(weight: Floats) -> float:
    """(Σw)² / (n Σw²): the share of the pairs that the weights count as."""
    w = weight.astype(np.float64)
    return float(w.sum() ** 2 / (len(w) * (w**2).sum()))


def measured(confidence: Floats, weight: Floats, bad: Flags, starts: NDArray[np.int64],
             demonstrator: Sequence[str]) -> dict[str, float | dict[str, float]]:
    """All of them, the areas under the curve by demonstrator too."""
    who = np.array(demonstrator)
    by_kind = {name: auc_within(confidence, bad, starts, np.flatnonzero(who == name).tolist())
               for name in dict.fromkeys(demonstrator)}
    within = auc_within(confidence, bad, starts)
    return {
        **({} if np.isnan(within) else {"auc_within": round(within, 4)}),  # nobody has good and bad frames
        "bad_share": round(share_on_bad(weight, bad), 4),
        "bad_share_of_data": round(float(bad.mean()), 4),
        "effective_share": round(effective_share(weight), 4),
        "auc": {name: round(value, 4) for name, value in by_kind.items() if not np.isnan(value)},
    }
