"""Multinomial logit: error beside logits of pairs of levels, and coverage.

    uv run python -m benchmarks.mnlogit --reps 20
    uv run python -m benchmarks.mnlogit --quick

Tables of n rows with d normal columns in declared scales and a response of K levels; epsilon 1,
delta 1e-6. "error" and "pairs" are root mean squared distances to statsmodels' MNLogit on the same
rows, of the joint fit and of K - 1 logits of pairs that share its budget (each has the Gaussian-DP
parameter mu / sqrt(K - 1)); "se" is the standard error of the first, "sampling" the distance of
MNLogit to the population. "covers" is the share of 95 % intervals that hold the population value,
"halved" what intervals of half the noise's standard deviation would, and "bound" how often the
stated bound on the distance to MNLogit holds. Of "wrong" the truth has a square that is left out;
its population value is MNLogit's on 10^6 rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy.optimize import brentq

import dpstats as dp
from benchmarks.common import DELTA, Array, arguments, progress, show
from dpstats.accounting import gdp_mu

CELLS = [
    (n, levels, columns, wrong)
    for n in (2_000, 10_000, 50_000)
    for levels, columns, wrong in ((3, 3, False), (3, 3, True), (5, 3, False), (5, 8, False))
]


def truth(levels: int, columns: int) -> Array:
    """Coefficients of all levels but the first, of shape (columns + 1, levels - 1)."""
    rng = np.random.default_rng(5)
    slopes = rng.normal(0, 0.7 / np.sqrt(columns / 2), (columns, levels - 1))
    return np.vstack([rng.normal(0, 0.4, levels - 1), slopes])


def rows(n: int, beta: Array, wrong: bool, rng: np.random.Generator) -> tuple[Array, Array]:
    """Columns, and the number of each row's level."""
    x = rng.normal(size=(n, len(beta) - 1))
    eta = np.column_stack([np.zeros(n), sm.add_constant(x) @ beta])
    if wrong:
        eta[:, 1] += 0.6 * x[:, 0] ** 2
    chances = np.exp(eta - eta.max(axis=1, keepdims=True))
    chances = np.cumsum(chances / chances.sum(axis=1, keepdims=True), axis=1)
    level: Array = np.minimum((rng.random((n, 1)) > chances).sum(axis=1), beta.shape[1])
    return x, level


def theirs(x: Array, level: Array) -> Array:
    """statsmodels' coefficients."""
    found: Array = sm.MNLogit(level, sm.add_constant(x)).fit(disp=0).params
    return found


def pairs(
    frame: pd.DataFrame, formula: str, schema: dp.Schema, names: list[str], rep: int
) -> Array:
    """Coefficients of logits of each level and the first, at the budget of one fit."""
    wanted = gdp_mu(1.0, DELTA) / np.sqrt(len(names) - 1)
    epsilon = brentq(lambda e: gdp_mu(e, DELTA) - wanted, 1e-3, 1.0)
    fits = [
        dp.logit(formula, frame, schema.replaced({"y": dp.Categorical([names[0], name])})).fit(
            dp.Central(epsilon, DELTA), noise=dp.SeededNoise(1000 * k + rep)
        )
        for k, name in enumerate(names[1:])
    ]
    return np.column_stack([fit.params.to_numpy() for fit in fits])


def cell(
    n: int, levels: int, columns: int, wrong: bool, reps: int, compared: bool
) -> dict[str, Any]:
    """One row of the table."""
    beta, names = truth(levels, columns), list("abcdefgh"[:levels])
    inputs = [f"x{j}" for j in range(columns)]
    schema = dp.Schema(
        {
            "y": dp.Categorical(names),
            **{c: dp.Numeric(-6, 6, center=0, scale=1) for c in inputs},
        }
    )
    target = beta
    if wrong:
        target = theirs(*rows(1_000_000, beta, wrong, np.random.default_rng(1)))
    formula = "y ~ " + " + ".join(inputs)
    off, other, sampling, hits, halved, held = [], [], [], [], [], []
    for rep in range(reps):
        x, level = rows(n, beta, wrong, np.random.default_rng([7, rep]))
        frame = pd.DataFrame(x, columns=inputs).assign(y=np.array(names)[level.astype(int)])
        fit = dp.mnlogit(formula, frame, schema).fit(
            dp.Central(1.0, DELTA), noise=dp.SeededNoise(rep)
        )
        mle = theirs(x, level)
        error = fit.coefficients.to_numpy() - mle
        off.append(np.mean(error**2))
        sampling.append(np.mean((mle - target) ** 2))
        distance = np.abs((fit.coefficients.to_numpy() - target).T.ravel())
        variance = fit.bse.to_numpy() ** 2
        less = variance - 0.75 * np.diag(fit.table.cov_privacy)
        hits.append(distance < 1.96 * np.sqrt(variance))
        halved.append(distance < 1.96 * np.sqrt(less))
        held.append(np.abs(error.T.ravel()) <= fit.error_bound.nonprivate.to_numpy())
        if compared:
            other.append(np.mean((pairs(frame, formula, schema, names, rep) - mle) ** 2))
    rmse = float(np.sqrt(np.mean(off)))
    return {
        "K": levels,
        "d": columns,
        "law": "wrong" if wrong else "right",
        "n": n,
        "error": round(rmse, 4),
        "se": round(float(np.std(off) / np.sqrt(reps) / (2 * rmse)), 4),
        "pairs": round(float(np.sqrt(np.mean(other))), 4) if compared else None,
        "sampling": round(float(np.sqrt(np.mean(sampling))), 4),
        "covers": round(float(np.mean(hits)), 3),
        "halved": round(float(np.mean(halved)), 3),
        "bound": round(float(np.mean(held)), 3),
    }


def main() -> None:
    """Print the table."""
    asked = arguments(__doc__ or "", reps=20)
    cells = CELLS[:1] if asked.quick else CELLS
    found = [
        cell(n, levels, columns, wrong, asked.reps, not wrong)
        for n, levels, columns, wrong in progress(cells, len(cells), asked.quiet)
    ]
    show("Multinomial logit", found, f"{asked.reps} tables a cell.")


if __name__ == "__main__":
    main()
