"""Which demonstrations are better: ranks 1 (best), 2, …, ties share one. A learner sees this order and nothing else."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cail_core.config import read_yaml
from cail_core.errors import BadInput, listed

Ranking = dict[int, int]
"""Episode -> rank."""


def share(n: int, fraction: float) -> int:
    """How many of n episodes `fraction` is, at least 2."""
    if not 0 < fraction <= 1:
        raise BadInput(f"expected a fraction above 0 and at most 1, given {fraction}")
    if n < 2:
        raise BadInput(f"expected at least 2 episodes to rank, given {n}")
    return min(n, max(2, round(fraction * n)))


def rank_by_return(returns: NDArray[np.float64], fraction: float, seed: int) -> Ranking:
    """Rank a subset spread over all qualities: the episodes, ordered by return, are cut into k equal parts and one is
    drawn from each, k = `fraction` of the episodes, at least 2."""
    rng = np.random.default_rng(seed)
    best_first = np.argsort(-returns, kind="stable")
    return order_by_return(returns, [int(rng.choice(part)) for part in np.array_split(best_first, share(len(returns), fraction))])


def order_by_return(returns: NDArray[np.float64], chosen: Sequence[int]) -> Ranking:
    """Ranks of the chosen episodes by their returns."""
    return from_order(sorted(chosen, key=lambda e: -returns[e]), {e: float(returns[e]) for e in chosen})


def from_order(best_first: Sequence[int], worth: Mapping[int, float] | None = None) -> Ranking:
    """Ranks of episodes given best first; those of equal `worth` share a rank."""
    ranking: Ranking = {}
    for place, episode in enumerate(best_first, start=1):
        before = best_first[place - 2] if place > 1 else None
        tied = worth is not None and before is not None and worth[before] == worth[episode]
        ranking[episode] = ranking[before] if tied and before is not None else place
    return ranking


def from_groups(groups: Sequence[Sequence[int]]) -> Ranking:
    """Ranks of groups of equally good episodes given best first."""
    ranking: Ranking = {}
    for group in groups:
        ranking.update(dict.fromkeys(group, len(ranking) + 1))
    return ranking


def read_ranking(path: Path, episodes: int) -> Ranking:
    """A hand-written ranking, best first. YAML: a list of episode ids, a nested list is a tie. CSV: a line per place,
    several ids on a line are a tie; or a table with the columns `episode,rank`. A `meta/ranking.json` that a person's
    answers made is read like YAML, which JSON is."""
    if path.suffix in (".yaml", ".yml", ".json"):
        groups = _from_yaml(read_yaml(path), path)
    elif path.suffix == ".csv":
        groups = _from_csv(path)
    else:
        raise BadInput(f"expected a ranking as .yaml or .csv (or a dataset's ranking.json), given {path}")
    return _checked(groups, path, episodes)


def provenance(how: str, **details: Any) -> dict[str, Any]:
    """What `meta/ranking.json` keeps of how the ranks came about."""
    return {"by": how, **details, "at": datetime.now(timezone.utc).isoformat(timespec="seconds")}


def _from_yaml(value: Any, path: Path) -> list[list[Any]]:
    if isinstance(value, dict) and "ranking" in value:
        value = value["ranking"]
    if not isinstance(value, list):
        raise BadInput(f"{path}: expected a list of episode ids, best first, given {type(value).__name__}")
    return [entry if isinstance(entry, list) else [entry] for entry in value]


def _from_csv(path: Path) -> list[list[Any]]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as handle:
            lines = [[cell.strip() for cell in line if cell.strip()] for line in csv.reader(handle)]
    except (FileNotFoundError, IsADirectoryError):
        raise BadInput(f"{path}: no such file") from None
    except (UnicodeDecodeError, csv.Error) as fault:
        raise BadInput(f"{path}: not a CSV file ({fault})") from None
    lines = [line for line in lines if line and not line[0].startswith("#")]
    if not lines:
        return []
    header = [cell.lower() for cell in lines[0]]
    if header == ["episode", "rank"]:
        places: dict[int, list[Any]] = {}
        wrong = [",".join(line) for line in lines[1:] if len(line) != 2 or not line[1].isdecimal()]
        if wrong:
            raise BadInput(listed(str(path), [f"expected lines 'episode,rank', given '{line}'" for line in wrong]))
        for line in lines[1:]:
            places.setdefault(int(line[1]), []).append(line[0])
        return [places[place] for place in sorted(places)]
    return lines[1:] if header == ["episode"] else lines


def _checked(groups: list[list[Any]], path: Path, episodes: int) -> Ranking:
    faults, ranking, place = [], {}, 1
    for group in groups:
        for entry in group:
            try:
                episode = int(str(entry))
            except ValueError:
                faults.append(f"expected an episode id, given {entry!r}")
                continue
            if not 0 <= episode < episodes:
                faults.append(f"names episode {episode}, the dataset has 0 … {episodes - 1}")
            elif episode in ranking:
                faults.append(f"names episode {episode} twice")
            ranking[episode] = place
        place += len(group)
    if not faults and len(ranking) < 2:
        faults.append(f"expected at least 2 episodes, given {len(ranking)}")
    if not faults and len(set(ranking.values())) < 2:
        faults.append("all episodes are tied: that orders nothing")
    if faults:
        raise BadInput(listed(str(path), faults))
    return ranking
