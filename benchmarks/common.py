"""What the benchmarks share: designs, peers, and tables with standard errors."""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import dpstats as dp
from dpstats.errors import FeasibilityWarning

Array = NDArray[np.float64]

SIGMA = 0.5
DELTA = 1e-6
FITS: dict[str, dict[str, str]] = {
    "default": {},
    "robust": {"target": "robust"},
    "adassp": {"method": "adassp"},
    "dp-gd": {"method": "dp-gd"},
}


def arguments(description: str, *, reps: int, **more: str) -> argparse.Namespace:
    """Command line of a benchmark: how many repetitions, which seed, whether to stay quiet.

    `more` names further options that take a value, with their help.
    """
    parser = argparse.ArgumentParser(description=description)
    for name, text in more.items():
        parser.add_argument(f"--{name}", help=text)
    parser.add_argument("--reps", type=int, default=reps)
    parser.add_argument("--seed", type=int, default=20_000)
    parser.add_argument("--quick", action="store_true", help="a few cells only")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    warnings.simplefilter("ignore", FeasibilityWarning)
    return parser.parse_args()


def progress(items: Iterable[Any], total: int, quiet: bool) -> Iterable[Any]:
    """Items, with one line of progress on standard error."""
    start = time.perf_counter()
    for i, item in enumerate(items):
        yield item
        if not quiet:
            spent = time.perf_counter() - start
            left = spent / (i + 1) * (total - i - 1)
            print(f"\r{i + 1}/{total} cells, about {left:.0f} s left ", end="", file=sys.stderr)
    if not quiet:
        print(file=sys.stderr)


def rotation(d: int, rng: np.random.Generator) -> Array:
    """A random rotation."""
    q, r = np.linalg.qr(rng.normal(size=(d, d)))
    rotated: Array = q * np.sign(np.diag(r))
    return rotated


def uniform_design(n: int, d: int, kappa: float, rng: np.random.Generator) -> Array:
    """x = S u with u ~ U(-1, 1)^d; S diagonal, singular values from 1 down to 1/sqrt(kappa)."""
    scales = kappa ** (-0.5 * np.arange(d) / max(d - 1, 1))
    x: Array = rng.uniform(-1, 1, (n, d)) * scales
    return x


def coefficients(d: int, rng: np.random.Generator, norm: float = math.sqrt(3)) -> Array:
    """A random direction of the given length."""
    b = rng.normal(size=d)
    scaled: Array = norm * b / np.linalg.norm(b)
    return scaled


def fit(
    x: Array,
    y: Array,
    epsilon: float,
    seed: int,
    *,
    delta: float = DELTA,
    bounds: dict[str, Any] | None = None,
    **options: Any,
) -> dp.Results:
    """A private fit with reproducible noise, by a method or for a target among `options`."""
    bounds = {"endog": (-3.5, 3.5), "exog": (-1.0, 1.0)} if bounds is None else bounds
    model = dp.OLS(y, x, bounds=bounds)
    privacy = dp.Central(epsilon, delta, large_delta=True)
    return model.fit(privacy, noise=dp.SeededNoise(seed), **options)


def ols(x: Array, y: Array) -> Array:
    """Non-private least squares."""
    beta: Array = np.linalg.lstsq(x, y, rcond=None)[0]
    return beta


def relative(estimate: Array, truth: Array, metric: Array | None = None) -> float:
    """||estimate - truth|| / ||truth|| in the norm of `metric` (the identity by default)."""
    error = estimate - truth
    if metric is None:
        return float(np.linalg.norm(error) / np.linalg.norm(truth))
    return float(math.sqrt(error @ metric @ error) / math.sqrt(truth @ metric @ truth))


def summarise(values: Iterable[float], digits: int = 3) -> str:
    """Mean with its standard error."""
    v = np.asarray(list(values), dtype=np.float64)
    if v.size == 0 or not np.isfinite(v).all():
        return "-"
    return (
        f"{v.mean():.{digits}f} ({v.std(ddof=1) / math.sqrt(v.size):.{digits}f})"
        if v.size > 1
        else f"{v[0]:.{digits}f}"
    )


def ratio_of_means(values: Iterable[float], reference: Iterable[float]) -> tuple[float, float]:
    """Mean of `values` over that of `reference`, paired, and its standard error (delta method)."""
    v, r = (np.asarray(list(a), dtype=np.float64) for a in (values, reference))
    ratio = float(v.mean() / r.mean())
    return ratio, float((v - ratio * r).std(ddof=1) / math.sqrt(v.size) / r.mean())


def show(title: str, rows: list[dict[str, Any]], note: str) -> None:
    """Print a table and how it was made."""
    print(f"\n{title}\n{'=' * len(title)}")
    print(pd.DataFrame(rows).to_string(index=False))
    print(note)


def attempt(task: Callable[[], float]) -> float:
    """A number, or nan where a peer refuses."""
    try:
        return task()
    except Exception:
        return math.nan
