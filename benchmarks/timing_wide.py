"""Time and memory of generalised linear and sparse fits against non-private ones, in one run.

    uv run --with scikit-learn python -m benchmarks.timing_wide [--reps 5] [--cpu]

Dense: logistic and Poisson regression of 1e5 rows and 20 columns against statsmodels, from a
DataFrame to results. Sparse: 5,000 x 5,000 dense, and 16,087 x 50,000 with 1 % stored values (the
shape of E2006-TFIDF; synthetic), against scikit-learn's lasso and its l1-penalised logistic
regression at one penalty, where scikit-learn is installed. Passes: one question of a sparse fit,
the scores of all columns, against reading the matrix once, as float64, with as many threads; with
compiled products (numba) and without. Memory: peak allocations over the size of the matrix.
"""

from __future__ import annotations

import argparse
import tracemalloc
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from scipy import sparse

import dpstats as dp
from benchmarks.common import show
from benchmarks.timing import read_once, seconds, without_numba
from dpstats.accounting.events import Selection
from dpstats.design import DeclaredDesign
from dpstats.errors import FeasibilityWarning
from dpstats.holders import Curator
from dpstats.mechanisms.noise import SafeNoise
from dpstats.protocol import Mechanism, Plan
from dpstats.queries import CoordinateScores

PRIVACY = dp.Central(1.0, 1e-7)


def against(
    label: str, peer: str, ours: Callable[[], Any], theirs: Callable[[], Any] | None, reps: int
) -> dict[str, Any]:
    """Median times, the ratio pair by pair."""
    ours()
    if theirs is None:
        mine = np.array([seconds(ours) for _ in range(reps)])
        return {"fit": label, "dpstats s": f"{np.median(mine):.3f}", "peer": f"{peer}: not here"}
    theirs()
    pairs = np.array([(seconds(ours), seconds(theirs)) for _ in range(reps)])
    ratio = pairs[:, 0] / pairs[:, 1]
    return {
        "fit": label,
        "dpstats s": f"{np.median(pairs[:, 0]):.3f}",
        "peer": peer,
        "peer s": f"{np.median(pairs[:, 1]):.3f}",
        "ratio (median, min-max)": f"{np.median(ratio):.2f} ({ratio.min():.2f}-{ratio.max():.2f})",
    }


def with_memory(row: dict[str, Any], fit: Callable[[], Any], size: int) -> dict[str, Any]:
    """The row with the peak of what the fit allocates over the size of its matrix."""
    tracemalloc.start()
    fit()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {**row, "peak MB": f"{peak / 1e6:.0f}", "peak / matrix": f"{peak / size:.2f}"}


def dense(n: int, d: int, reps: int) -> list[dict[str, Any]]:
    """Logistic and Poisson regression from a frame."""
    rng = np.random.default_rng(1)
    df = pd.DataFrame(rng.uniform(-1, 1, (n, d)), columns=[f"x{j}" for j in range(d)])
    eta = df.to_numpy().sum(axis=1) * 2 / np.sqrt(d)
    df["hit"] = (rng.uniform(size=n) < 1 / (1 + np.exp(-eta))).astype(float)
    df["visits"] = rng.poisson(np.exp(eta / 2)).astype(float)
    right = " + ".join(df.columns[:d])
    columns = {c: dp.Numeric(-1, 1) for c in df.columns[:d]}
    schema = dp.Schema({**columns, "hit": dp.Numeric(0, 1), "visits": dp.Numeric(0, 30)})

    def logit() -> Any:
        return dp.logit(f"hit ~ {right}", df, schema).fit(PRIVACY)

    def poisson() -> Any:
        return dp.glm(f"visits ~ {right}", df, schema, family="poisson").fit(PRIVACY)

    size = 8 * n * (d + 1)
    peers = {
        "statsmodels Logit": lambda: smf.logit(f"hit ~ {right}", df).fit(disp=0),
        "statsmodels Poisson": lambda: smf.poisson(f"visits ~ {right}", df).fit(disp=0),
    }
    fits = zip(("logistic", "Poisson"), (logit, poisson), peers.items(), strict=True)
    return [
        with_memory(against(f"{name} {n:,} x {d}", peer, ours, theirs, reps), ours, size)
        for name, ours, (peer, theirs) in fits
    ]


def lasso(x: Any, y: np.ndarray, penalty: float) -> Callable[[], Any] | None:
    """scikit-learn's lasso at one penalty, where it is installed."""
    if find_spec("sklearn") is None:
        return None
    from sklearn.linear_model import Lasso

    return lambda: Lasso(alpha=penalty, fit_intercept=False).fit(x, y)


def logistic_lasso(x: Any, hit: np.ndarray, weight: float) -> Callable[[], Any] | None:
    """scikit-learn's l1-penalised logistic regression at one weight of the loss."""
    if find_spec("sklearn") is None:
        return None
    from sklearn.linear_model import LogisticRegression

    warnings.simplefilter("ignore", FutureWarning)  # l1_ratio alone will do from 1.10 on
    model = LogisticRegression(
        penalty="l1", l1_ratio=1, C=weight, solver="liblinear", fit_intercept=False
    )
    return lambda: model.fit(x, hit)


def wide(n: int, d: int, s: int, reps: int) -> dict[str, Any]:
    """A sparse fit of a dense wide matrix."""
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (n, d))
    y = x[:, :s].sum(axis=1) + rng.normal(size=n)
    bounds = {"endog": (-20, 20), "exog": (-1, 1)}

    def ours() -> Any:
        return dp.OLS(y, x, bounds).fit(PRIVACY, sparsity=s)

    row = against(f"sparse {n:,} x {d:,}", "lasso", ours, lasso(x, y, 0.1), reps)
    return with_memory(row, ours, x.nbytes)


def stored(n: int, d: int, density: float, s: int, reps: int) -> list[dict[str, Any]]:
    """Sparse fits of a CSR matrix."""
    x, y = stored_matrix(n, d, density, s)
    size = x.data.nbytes + x.indices.nbytes + x.indptr.nbytes
    hit = (y > 0.5).astype(float)

    def linear() -> Any:
        return dp.OLS(y, x, {"endog": (-6, 6), "exog": (0, 1)}).fit(PRIVACY, sparsity=s)

    def logit() -> Any:
        return dp.Logit(hit, x, {"endog": (0, 1), "exog": (0, 1)}).fit(PRIVACY, sparsity=s)

    label = f"{n:,} x {d:,}, {density:.0%} stored"
    penalised = against(f"sparse {label}", "lasso", linear, lasso(x, y, 0.001), reps)
    logistic = against(
        f"sparse logistic {label}", "l1 logistic", logit, logistic_lasso(x, hit, 0.05), reps
    )
    return [with_memory(penalised, linear, size), with_memory(logistic, logit, size)]


def stored_matrix(n: int, d: int, density: float, s: int) -> tuple[Any, np.ndarray]:
    """Uniform values at uniform places; the first s columns matter and are denser."""
    rng = np.random.default_rng(3)
    count = int(density * n * d)
    places = (rng.integers(0, n, count), rng.integers(0, d, count))
    values = rng.uniform(0, 1, count)
    extra = (np.tile(np.arange(n), s)[::4], np.repeat(np.arange(s), n)[::4])
    # scikit-learn takes 32-bit indices only.
    rows, columns = (
        np.concatenate(pair).astype(np.int32) for pair in zip(places, extra, strict=True)
    )
    data = np.concatenate([values, rng.uniform(0, 1, extra[0].size)])
    x = sparse.csr_array((np.minimum(data, 1.0), (rows, columns)), shape=(n, d))
    x.sum_duplicates()
    x.data = np.minimum(x.data, 1.0)
    return x, np.asarray(x[:, :s].sum(axis=1)).ravel() + 0.3 * rng.normal(size=n)


def passes(n: int, d: int, reps: int) -> dict[str, Any]:
    """Scores of all columns at sparse coefficients against one read of the float64 matrix."""
    rng = np.random.default_rng(4)
    x, y = rng.uniform(-1, 1, (n, d)), rng.uniform(-1, 1, n)
    design = DeclaredDesign.from_arrays(d, {"exog": (-1.0, 1.0), "endog": (-1.0, 1.0)})
    slots = tuple(Mechanism(f"s{i}", Selection(1.0), "") for i in range(reps + 1))
    plan = Plan("ols", "timing", PRIVACY, n, design.names, slots, (1.0, 1e-7))

    def steps(noise: Any) -> float:
        holder = Curator(design.source((y, x)), design, plan, noise)

        def ask(i: int) -> None:  # new coefficients each time: a holder remembers the latest
            beta = np.zeros(d)
            beta[i : i + 10] = 0.01 * (i + 1)
            holder.ask(CoordinateScores(beta, 0.5, 1.0), f"s{i}")

        ask(0)
        return float(np.median([seconds(lambda i=i: ask(i)) for i in range(1, reps + 1)]))

    read = float(np.median([seconds(lambda: read_once(x)) for _ in range(reps)]))
    bare, whole = steps(dp.SeededNoise(0)), steps(SafeNoise())
    with without_numba():
        plain = steps(dp.SeededNoise(0))
    return {
        "matrix": f"{n:,} x {d:,}",
        "one read s": f"{read:.4f}",
        "step s": f"{whole:.4f}",
        "safe noise s": f"{whole - bare:.4f}",
        "reads per step": f"{whole / read:.2f}",
        "without the safe noise": f"{bare / read:.2f}",
        "nor numba": f"{plain / read:.2f}",
    }


def main() -> None:
    """Run the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="processor time")
    a = parser.parse_args()
    warnings.simplefilter("ignore", FeasibilityWarning)
    note = f"Median of {a.reps} alternating pairs."
    show("Generalised linear models against statsmodels", dense(100_000, 20, a.reps), note)
    sparse_fits = [wide(5000, 5000, 30, a.reps), *stored(16_087, 50_000, 0.01, 10, a.reps)]
    show("Sparse fits against the lasso", sparse_fits, note)
    steps = [passes(5000, 5000, a.reps), passes(100_000, 1000, a.reps)]
    show("One step of a sparse fit against memory bandwidth", steps, "float64 reads.")


if __name__ == "__main__":
    main()
