"""Time and memory of a whole fit, and of one query, as ratios in one run.

    uv run python -m benchmarks.timing
    OPENBLAS_NUM_THREADS=1 uv run python -m benchmarks.timing --cpu [--parts]

Fit: from a DataFrame to results, against ``statsmodels.formula.api.ols(...).fit()`` on the same
frame, alternating, after one warm-up each. Memory: peak allocations of the fit against the size of
the float64 design matrix. Query: one clipped score on 1e6 x 100 against reading that matrix once,
with compiled products (numba) and without.

With ``--cpu`` processor time is measured, which says more on a busy machine. ``--parts``: where the
time of a fit goes, and what bare passes of numpy over as many numbers would take.
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
from dpstats.holders import Curator, curator, rows
from dpstats.mechanisms.noise import SafeNoise
from dpstats.protocol import Mechanism, Plan
from dpstats.queries import Geometry, Score

_clock = time.process_time if "--cpu" in sys.argv else time.perf_counter


def frame(n: int, d: int, scaled: bool = False) -> tuple[pd.DataFrame, dp.Schema, str]:
    """A numeric frame, its schema, with scales or without, and a formula."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (n, d))
    df = pd.DataFrame(x, columns=[f"x{j}" for j in range(d)])
    df["y"] = x.sum(axis=1) / d + rng.normal(0, 0.5, n)
    known = {"center": 0.0, "scale": 0.6} if scaled else {}
    columns = {c: dp.Numeric(-1, 1, **known) for c in df.columns[:-1]}
    schema = dp.Schema(columns | {"y": dp.Numeric(-4, 4, **known)})
    return df, schema, "y ~ " + " + ".join(df.columns[:-1])


def seconds(task: Callable[[], Any]) -> float:
    """Time of one call."""
    time.sleep(0.1)  # the threads of the task before stop spinning
    start = _clock()
    task()
    return _clock() - start


def fits(n: int, d: int, reps: int, scaled: bool = False) -> dict[str, Any]:
    """Median time of both, the ratio pair by pair, and our peak memory."""
    df, schema, formula = frame(n, d, scaled)
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
        "scales": "declared" if scaled else "found",
        "dpstats s": f"{np.median(pairs[:, 0]):.3f}",
        "statsmodels s": f"{np.median(pairs[:, 1]):.3f}",
        "ratio (median, min-max)": (
            f"{np.median(pairs[:, 0] / pairs[:, 1]):.2f} "
            f"({(pairs[:, 0] / pairs[:, 1]).min():.2f}-{(pairs[:, 0] / pairs[:, 1]).max():.2f})"
        ),
        "peak / design matrix": f"{peak / design:.2f}",
        "above it": f"{max(peak / design - 1, 0):.0%}",
    }


_GROUPS = {
    "ColumnCells": "cells of columns",
    "AstrayCounts": "values moved",
    "LengthQuantile": "quantiles",
    "NormQuantile": "quantiles",
    "ResponseQuantile": "quantiles",
    "NormHistogram": "lengths",
    "NormCount": "lengths",
    "WhitenedScore": "scores",
    "Gram": "second moments",
    "ScoreSquares": "second moments",
    "ScoreCurvature": "second moments",
}


def parts(n: int, d: int, reps: int) -> dict[str, Any]:
    """Processor-seconds of the parts of a fit that finds scales; the least of some fits."""
    df, schema, formula = frame(n, d)
    spent: dict[str, float] = {}

    def counted(name: Callable[..., str], call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            start, inside = time.process_time(), sum(spent.values())
            made = call(*args)
            nested = sum(spent.values()) - inside
            spent[name(*args)] = spent.get(name(*args), 0.0) + time.process_time() - start - nested
            return made

        return timed

    def asked(_: Any, question: Any, *__: Any) -> str:
        return _GROUPS.get(type(question).__name__, "count")

    rounds = []
    load = counted(lambda *_: "preparing rows", rows.ResidentRows._load)
    answer = counted(asked, rows.ResidentRows.answer)
    release = counted(lambda *_: "noise", curator.release)
    for _ in range(reps):
        spent.clear()
        with (
            mock.patch.object(rows.ResidentRows, "_load", load),
            mock.patch.object(rows.ResidentRows, "answer", answer),
            mock.patch.object(curator, "release", release),
        ):
            start = time.process_time()
            dp.ols(formula, data=df, schema=schema).fit(dp.Central(1.0, 1e-7))
            total = time.process_time() - start
        rounds.append({**spent, "plan, estimates": total - sum(spent.values()), "all": total})
    return {"n": n, **{name: f"{min(r[name] for r in rounds):.3f}" for name in rounds[0]}}


def bare(n: int, d: int, reps: int) -> dict[str, Any]:
    """Processor-seconds of single passes over as many numbers by numpy, and of statsmodels."""
    df, _, formula = frame(n, d)
    x = df.to_numpy()
    narrow, edges = x.astype(np.float32), np.linspace(-1, 1, 65)
    b = np.ones(d + 1, dtype=np.float32)
    tasks: dict[str, Callable[[], Any]] = {
        "one histogram of each column": lambda: [np.histogram(df[c], edges) for c in df],
        "to float32 by rows": lambda: df.to_numpy().astype(np.float32, order="C"),
        "X'X": lambda: x.T @ x,
        "Xb, float32": lambda: narrow @ b,
        "statsmodels": lambda: smf.ols(formula, df).fit(),
    }
    took = {name: [] for name in tasks}  # type: dict[str, list[float]]
    for _ in range(reps):
        for name, task in tasks.items():
            start = time.process_time()
            task()
            took[name].append(time.process_time() - start)
    return {"n": n, **{name: f"{min(times):.3f}" for name, times in took.items()}}


def query(n: int, d: int, reps: int) -> dict[str, Any]:
    """A score against reading the float64 matrix once with the same number of threads."""
    rng = np.random.default_rng(2)
    x, y = rng.uniform(-1, 1, (n, d)), rng.uniform(-1, 1, n)
    design = DeclaredDesign.from_arrays(d, {"exog": (-1.0, 1.0), "endog": (-1.0, 1.0)})
    slots = tuple(Mechanism(f"s{i}", Gaussian(1.0), "") for i in range(reps + 1))
    plan = Plan("ols", "timing", dp.Central(1.0, 1e-7), n, design.names, slots, (1.0, 1e-7))
    geometry = Geometry(float(np.sqrt(d / 3)) * 1.2)

    def scores() -> list[float]:  # new coefficients each time: a holder remembers the latest
        holder = Curator(design.source((y, x)), design, plan, SafeNoise())
        asked = [Score(geometry, np.full(d, 0.01 * (i + 1)), 0.5) for i in range(reps + 1)]
        return [seconds(lambda i=i: holder.ask(asked[i], f"s{i}")) for i in range(reps + 1)][1:]

    ask = scores()
    with without_numba():
        plain = scores()
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
    parser.add_argument("--parts", action="store_true", help="where the time of a fit goes")
    a = parser.parse_args()
    warnings.simplefilter("ignore", FeasibilityWarning)
    sizes = 100_000, 1_000_000
    if a.parts:
        show("Parts of a fit", [parts(n, 20, a.reps) for n in sizes], "Processor-seconds.")
        show("Bare passes", [bare(n, 20, a.reps) for n in sizes], "Processor-seconds.")
        return
    whole = [fits(n, 20, a.reps, scaled) for n in sizes for scaled in (False, True)]
    show("A whole fit against statsmodels", whole, f"Median of {a.reps} alternating pairs.")
    show("One query against memory bandwidth", [query(1_000_000, 100, a.reps)], "float64 reads.")


if __name__ == "__main__":
    main()
