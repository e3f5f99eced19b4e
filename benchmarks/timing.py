"""Time and memory of a whole fit, and of one query, as ratios in one run.

    uv run python -m benchmarks.timing
    OPENBLAS_NUM_THREADS=1 uv run python -m benchmarks.timing --cpu

Fit: from a DataFrame to results, against ``statsmodels.formula.api.ols(...).fit()`` on the same
frame, alternating, after one warm-up each. Memory: peak allocations of the fit against the size of
the float64 design matrix. Query: one clipped score on 1e6 x 100 against reading that matrix once,
with compiled products (numba) and without.

With ``--cpu`` processor time is measured, which says more on a busy machine.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf

import dpstats as dp
from benchmarks.common import show
from dpstats.accounting.events import Gaussian
from dpstats.design import DeclaredDesign
from dpstats.errors import FeasibilityWarning
from dpstats.holders import Curator
from dpstats.mechanisms.noise import SafeNoise
from dpstats.protocol import Mechanism, Plan
from dpstats.queries import Geometry, Score

_clock = time.process_time if "--cpu" in sys.argv else time.perf_counter


def frame(n: int, d: int) -> tuple[pd.DataFrame, dp.Schema, str]:
    """A numeric frame, its schema and a formula."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (n, d))
    df = pd.DataFrame(x, columns=[f"x{j}" for j in range(d)])
    df["y"] = x.sum(axis=1) / d + rng.normal(0, 0.5, n)
    schema = dp.Schema({c: dp.Numeric(-1, 1) for c in df.columns[:-1]} | {"y": dp.Numeric(-4, 4)})
    return df, schema, "y ~ " + " + ".join(df.columns[:-1])


def seconds(task: Callable[[], Any]) -> float:
    """Time of one call."""
    time.sleep(0.1)  # the threads of the task before stop spinning
    start = _clock()
    task()
    return _clock() - start


def fits(n: int, d: int, reps: int) -> dict[str, Any]:
    """Median time of both, the ratio pair by pair, and our peak memory."""
    df, schema, formula = frame(n, d)
    privacy = dp.Central(1.0, 1e-7)

    def ours() -> Any:
        return dp.ols(formula, data=df, schema=schema).fit(privacy)

    def theirs() -> Any:
        return smf.ols(formula, df).fit()

    ours(), theirs()
    pairs = np.array([(seconds(ours), seconds(theirs)) for _ in range(reps)])
    tracemalloc.start()
    ours()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    design = 8 * n * (d + 1)
    return {
        "n": n,
        "d": d,
        "dpstats s": f"{np.median(pairs[:, 0]):.3f}",
        "statsmodels s": f"{np.median(pairs[:, 1]):.3f}",
        "ratio (median, min-max)": (
            f"{np.median(pairs[:, 0] / pairs[:, 1]):.2f} "
            f"({(pairs[:, 0] / pairs[:, 1]).min():.2f}-{(pairs[:, 0] / pairs[:, 1]).max():.2f})"
        ),
        "peak / design matrix": f"{peak / design:.2f}",
        "above it": f"{max(peak / design - 1, 0):.0%}",
    }


def query(n: int, d: int, reps: int) -> dict[str, Any]:
    """A score against reading the float64 matrix once with the same number of threads."""
    rng = np.random.default_rng(2)
    x, y = rng.uniform(-1, 1, (n, d)), rng.uniform(-1, 1, n)
    design = DeclaredDesign.from_arrays(d, {"exog": (-1.0, 1.0), "endog": (-1.0, 1.0)})
    slots = tuple(Mechanism(f"s{i}", Gaussian(1.0), "") for i in range(2 * reps + 1))
    plan = Plan("ols", "timing", dp.Central(1.0, 1e-7), n, design.names, slots, (1.0, 1e-7))
    holder = Curator(design.source((y, x)), design, plan, SafeNoise())
    geometry = Geometry(float(np.sqrt(d / 3)) * 1.2)

    def score(i: int) -> None:  # new coefficients each time: a holder remembers the latest
        holder.ask(Score(geometry, np.full(d, 0.01 * (i + 1)), 0.5), f"s{i}")

    score(0)
    ask = [seconds(lambda i=i: score(i)) for i in range(1, reps + 1)]
    with without_numba():
        plain = [seconds(lambda i=i: score(i + reps)) for i in range(1, reps + 1)]
    read = [seconds(lambda: read_once(x)) for _ in range(reps)]
    return {
        "n": n,
        "d": d,
        "score s": f"{np.median(ask):.3f}",
        "one read s": f"{np.median(read):.3f}",
        "read bandwidth GB/s": f"{x.nbytes / np.median(read) / 1e9:.1f}",
        "reads per score": f"{np.median(ask) / np.median(read):.2f}",
        "without numba": f"{np.median(plain) / np.median(read):.2f}",
    }


def without_numba() -> AbstractContextManager[Any]:
    """As where numba is not installed."""
    return mock.patch("dpstats.holders.rows.kernels", return_value=None)


def read_once(x: np.ndarray) -> float:
    """Read a matrix with two threads, as fast as a sum of squares goes."""
    from concurrent.futures import ThreadPoolExecutor

    flat = x.ravel()
    halves = np.array_split(flat, 2)
    with ThreadPoolExecutor(2) as pool:
        return float(sum(pool.map(lambda h: float(h @ h), halves)))


def main() -> None:
    """Run the three tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="processor time")
    a = parser.parse_args()
    warnings.simplefilter("ignore", FeasibilityWarning)
    rows = [fits(n, 20, a.reps) for n in (100_000, 1_000_000)]
    show("A whole fit against statsmodels", rows, f"Median of {a.reps} alternating pairs.")
    show("One query against memory bandwidth", [query(1_000_000, 100, a.reps)], "float64 reads.")


if __name__ == "__main__":
    main()
