"""Error and coverage of private mixtures of regressions.

    uv run python -m benchmarks.mixture_ols [--coverage] [--reps 12] [--first 0] [--only NAME]

epsilon = 1, delta = 1e-6; columns are declared with a centre and a scale, the response as
Numeric(-8, 8) without. Two regressions with weights .65 and .35, an intercept and errors of .5:
their mean is drawn, their difference has the length 2, and columns are uniform with variance 1.
Error: root mean square over components of the distance of their coefficients, paired with those
that were found; a fit fails if it is above 0.5. "non-private" is EM on the rows from the truth.
Coverage: of 95 % intervals, over all parameters, of fits that give intervals.
"""

from __future__ import annotations

import itertools
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import dpstats as dp
from benchmarks.mixtures import printed
from dpstats.families.mixtures import RegressionMixture

Array = NDArray[np.float64]

ACCURACY: dict[str, tuple[int, int]] = {  # name: columns, rows
    "p3 5k": (3, 5_000),
    "p3 20k": (3, 20_000),
    "p5 10k": (5, 10_000),
    "p10 10k": (10, 10_000),
    "p10 20k": (10, 20_000),
    "p10 50k": (10, 50_000),
}
PAIR = RegressionMixture(
    np.array([0.65, 0.35]), np.array([[0.45, -0.2, -0.6, -0.85], [0.6, -0.05, 0.7, 0.65]]), 0.5
)
_FIVE = np.array([[0.45, -0.2, -0.6, -0.85, 0.3, 0.0], [0.6, -0.05, 0.7, 0.65, -0.1, 0.2]])
_PARALLEL = np.array([[0.4, 0.5, -0.5, 0.3], [2.4, 0.5, -0.5, 0.3]])
_THREE = np.array([[0.0, 2.0, 0.0, 0.0], [0.0, -1.3, 2.0, 0.0], [1.3, -1.3, -2.0, 0.65]])
_FOUR = np.array([[0.0, 2, 0, 0], [0, -2, 0, 0], [1, 0, 2, 0], [-1, 0, -2, 0.5]])
# name: mixture, law of columns, law of errors, rows
COVERAGE: dict[str, tuple[RegressionMixture, str, str, int]] = {
    "uniform columns": (PAIR, "uniform", "normal", 10_000),
    "normal columns": (PAIR, "normal", "normal", 10_000),
    "exponential columns": (PAIR, "exponential", "normal", 10_000),
    "uniform columns, fewer rows": (PAIR, "uniform", "normal", 5_000),
    "normal columns, more rows": (PAIR, "normal", "normal", 20_000),
    "five uniform columns": (
        RegressionMixture(PAIR.weights, _FIVE, 0.5),
        "uniform",
        "normal",
        10_000,
    ),
    "columns that are 0 or 1": (
        RegressionMixture(PAIR.weights, PAIR.coef * [1, 2, 2, 2], 0.5),
        "binary",
        "normal",
        20_000,
    ),
    "equal weights": (
        RegressionMixture(np.array([0.5, 0.5]), PAIR.coef, 0.5),
        "uniform",
        "normal",
        20_000,
    ),
    "parallel lines": (
        RegressionMixture(PAIR.weights, _PARALLEL, 0.5),
        "uniform",
        "normal",
        10_000,
    ),
    "weights .8 .2": (
        RegressionMixture(np.array([0.8, 0.2]), PAIR.coef, 0.5),
        "uniform",
        "normal",
        10_000,
    ),
    "three regressions": (
        RegressionMixture(np.array([0.5, 0.3, 0.2]), _THREE, 0.5),
        "uniform",
        "normal",
        20_000,
    ),
    "four regressions": (
        RegressionMixture(np.array([0.4, 0.3, 0.2, 0.1]), _FOUR, 0.5),
        "uniform",
        "normal",
        50_000,
    ),
    "errors of t(4)": (PAIR, "uniform", "t", 20_000),
    "uniform errors": (PAIR, "uniform", "uniform", 20_000),
}
_ENDS = {"uniform": 1.75, "normal": 4.0, "exponential": 8.0, "binary": 1.0}


def drawn(p: int, rng: np.random.Generator) -> RegressionMixture:
    """Two regressions on p columns."""
    mean = np.append(0.5, rng.normal(size=p) * 0.5 / np.sqrt(p))
    gap = rng.normal(size=p + 1) * np.append(0.5, np.ones(p))
    gap *= 2 / np.linalg.norm(gap)
    return RegressionMixture(
        np.array([0.65, 0.35]), np.array([mean - 0.35 * gap, mean + 0.65 * gap]), 0.5
    )


def rows(
    mixture: RegressionMixture,
    n: int,
    rng: np.random.Generator,
    columns: str = "uniform",
    errors: str = "normal",
) -> pd.DataFrame:
    """Rows of a mixture; errors have the variance of sigma."""
    shape = (n, mixture.coef.shape[1] - 1)
    x = {
        "uniform": lambda: rng.uniform(-np.sqrt(3), np.sqrt(3), shape),
        "normal": lambda: rng.normal(size=shape),
        "exponential": lambda: rng.exponential(size=shape) - 1,
        "binary": lambda: (rng.uniform(size=shape) < 0.3).astype(float),
    }[columns]()
    e = {
        "normal": lambda: rng.normal(size=n),
        "t": lambda: rng.standard_t(4, n) / np.sqrt(2),
        "uniform": lambda: rng.uniform(-np.sqrt(3), np.sqrt(3), n),
    }[errors]()
    coef = mixture.coef[rng.choice(mixture.k, n, p=mixture.weights)]
    y = coef[:, 0] + np.einsum("np,np->n", x, coef[:, 1:]) + mixture.sigma * e
    return pd.DataFrame(x, columns=[f"x{j}" for j in range(shape[1])]).assign(y=y)


def fitted(table: pd.DataFrame, k: int, seed: int, columns: str = "uniform") -> Any:
    """The private fit."""
    names, end = list(table.columns[:-1]), _ENDS[columns]
    column = dp.Numeric(0, 1) if columns == "binary" else dp.Numeric(-end, end, center=0, scale=1)
    schema = dp.Schema({**dict.fromkeys(names, column), "y": dp.Numeric(-8, 8)})
    model = dp.mixture_ols(f"y ~ {' + '.join(names)}", table, schema, components=k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(dp.Central(1.0, 1e-6), noise=dp.SeededNoise(seed))


def likeliest(table: pd.DataFrame, mixture: RegressionMixture) -> RegressionMixture:
    """EM on the rows, without privacy, from the truth."""
    values = np.insert(table.to_numpy(), 0, 1.0, axis=1)
    x, y = values[:, :-1], values[:, -1]
    for _ in range(60):
        r = mixture.responsibilities(values)
        coef = np.array([np.linalg.solve((x.T * w) @ x, x.T @ (w * y)) for w in r.T])
        sigma = float(np.sqrt((r * (y[:, None] - x @ coef.T) ** 2).sum() / len(y)))
        mixture = RegressionMixture(r.mean(axis=0), coef, sigma)
    return mixture


def paired(coef: Array, truth: RegressionMixture) -> list[int]:
    """For each true component the one that was found for it."""
    orders = itertools.permutations(range(truth.k))
    return list(min(orders, key=lambda o: float(((coef[list(o)] - truth.coef) ** 2).sum())))


def error(coef: Array, truth: RegressionMixture) -> float:
    """Root mean square over components of the distance of their coefficients."""
    return float(np.linalg.norm(coef[paired(coef, truth)] - truth.coef) / np.sqrt(truth.k))


def distances(fit: Any, truth: RegressionMixture) -> Array:
    """Errors of weights, coefficients and sigma over their standard errors."""
    e, order = fit.estimate, paired(fit.estimate.coef, truth)
    found = np.column_stack([e.weights, e.coef])[order] - np.column_stack(
        [truth.weights, truth.coef]
    )
    ses = np.sqrt(np.diag(e.cov))
    by_component = found / ses[:-1].reshape(found.shape)[order]
    return np.append(by_component, (e.sigma - truth.sigma) / ses[-1])


def accuracy(name: str, reps: int, first: int) -> str:
    """A line of the table."""
    p, n = ACCURACY[name]
    found, without, seconds = [], [], []
    for seed in range(first, first + reps):
        rng = np.random.default_rng([p, n, 70_000 + seed])
        truth = drawn(p, rng)
        table = rows(truth, n, rng)
        start = time.process_time()
        found.append(error(fitted(table, 2, seed).estimate.coef, truth))
        seconds.append(time.process_time() - start)
        without.append(error(likeliest(table, truth).coef, truth))
    se = np.std(found, ddof=1) / np.sqrt(reps)
    failed = int(np.sum(np.array(found) > 0.5))
    return (
        f"| {name} | {np.median(found):.4f} | {np.mean(found):.4f} ({se:.4f}) | "
        f"{np.median(without):.4f} | {failed} of {reps} | {np.median(seconds):.1f} s |"
    )


def coverage(name: str, reps: int, first: int) -> str:
    """A line of the table."""
    truth, columns, errors, n = COVERAGE[name]
    inside = []
    for seed in range(first, first + reps):
        table = rows(truth, n, np.random.default_rng([n, 80_000 + seed]), columns, errors)
        fit = fitted(table, truth.k, seed, columns)
        if fit.has_inference:
            inside.append(np.abs(distances(fit, truth)) < 1.96)
    if not inside:
        return f"| {name} | {n:,} | 0 of {reps} | | |"
    each = np.mean(inside, axis=0)
    return f"| {name} | {n:,} | {len(inside)} of {reps} | {each.mean():.1%} | {each.min():.1%} |"


if __name__ == "__main__":
    printed(__doc__, (ACCURACY, accuracy), (COVERAGE, coverage))
