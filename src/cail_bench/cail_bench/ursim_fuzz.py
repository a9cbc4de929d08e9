"""`cail bench ursim-fuzz`: hostile messages on every port of the control box while a bystander reads states at 500 Hz."""

from __future__ import annotations

import time
from pathlib import Path

from cail_bench.result import save
from cail_core.errors import CailError
from cail_core.progress import bar, console
from cail_sim.ursim.fuzz import fuzz
from cail_sim.ursim.process import BoxProcess

CASES = {"smoke": 3000, "short": 30000, "full": 120000}


def run(budget: str, out: Path, seed: int = 0) -> Path:
    with BoxProcess() as box, bar("fuzzing", CASES[budget]) as advance:
        before = box.status()
        time.sleep(2.0)
        after = box.status()
        quiet_hz = (after["cycles"] - before["cycles"]) / (after["now"] - before["now"])
        outcome = fuzz(box.host, CASES[budget], seed, advance)
        if box.process.poll() is not None:
            raise CailError("the control box ended")
    row = {
        "cases": outcome.cases,
        "seconds": round(outcome.seconds, 1),
        "box_alive": outcome.alive,
        "arm_moved": outcome.moved,
        "cycles": outcome.cycles,
        "bystander_states": outcome.bystander_states,
        "cycle_hz": round(outcome.cycles / outcome.seconds, 1),
        "cycle_hz_before": round(quiet_hz, 1),
        "bystander_longest_gap_ms": round(outcome.longest_gap_ms, 1),
        "passed": outcome.passed,
    }
    console().print("  ".join(f"{name} {value}" for name, value in row.items()))
    kept = save(out, "ursim-fuzz", [row], budget=budget, seed=seed)
    if not outcome.passed:
        raise CailError("the control box did not pass: see the row above")
    return kept
