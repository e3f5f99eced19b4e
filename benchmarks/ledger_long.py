"""How long a charge, the table and opening take as a ledger grows.

    uv run python -m benchmarks.ledger_long

Charges are those of a linear regression of seven columns by `newton`, 20 Gaussian mechanisms each;
wall-clock times include the disk. "In turns" two objects have the file open, and each has to read
what the other appended.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dpstats as dp
from dpstats.accounting import Ledger
from dpstats.datasets import randhie
from dpstats.protocol import Plan

SIZES = (0, 1_000, 2_600, 10_000)
REPEATS = 20


def seconds(work: Callable[[], Any], clock: Callable[[], float], repeats: int = 1) -> float:
    """Median time of one call."""
    took = []
    for _ in range(repeats):
        start = clock()
        work()
        took.append(clock() - start)
    return float(np.median(took))


def measure(ledger: Ledger, other: Ledger, path: Path, plans: list[Plan]) -> dict[str, float]:
    """One row of the table, by the wall clock and by that of the processor."""

    def charge() -> None:
        ledger.charge(plans[0])

    def charge_in_turns() -> None:
        ledger.charge(plans[0])
        other.charge(plans[1])

    wall, cpu = time.perf_counter, time.process_time
    return {
        "charge ms": 1e3 * seconds(charge, wall, REPEATS),
        "(CPU)": 1e3 * seconds(charge, cpu, REPEATS),
        "in turns ms": 1e3 * seconds(charge_in_turns, wall, REPEATS) / 2,
        "(CPU) ": 1e3 * seconds(charge_in_turns, cpu, REPEATS) / 2,
        "to_frame s (CPU)": seconds(ledger.to_frame, cpu),
        "open s (CPU)": seconds(lambda: Ledger.open(path), cpu),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    options = parser.parse_args()
    df, schema = randhie.load()
    model = dp.ols("mdvis ~ lncoins + disea + physlm + hlthg + hlthf + hlthp", df, schema)
    plans = [model.plan(dp.Central(e, 1e-9)) for e in np.linspace(0.005, 0.01, 50)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.ledger"
        ledger = Ledger.open(path, 3.0, 1e-6)
        other = Ledger.open(path)
        for size in options.sizes:
            while len(ledger.entries) < size:
                ledger.charge(plans[len(ledger.entries) % 50], "y ~ x")
            rows.append({"entries": size, **measure(ledger, other, path, plans)})
    print(pd.DataFrame(rows).to_string(index=False, float_format="%.3g"))


if __name__ == "__main__":
    main()
