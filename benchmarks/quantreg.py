"""Coverage and error of quantile regression.

    uv run python -m benchmarks.quantreg --reps 60
    uv run python -m benchmarks.quantreg --law normal --quick

Tables of n rows with three normal columns in declared scales; epsilon 1, delta 1e-6. Errors are
normal, normal with a standard deviation of 1 + 0.4 x1, log-normal, of Student's t with 3 degrees of
freedom, or normal and a twentieth as large ("sharp"). "covers" is the share of 95 % intervals that
hold the population value, all coefficients together, "halved" what intervals of half the noise's
standard deviation would, and "ratio" the root mean squared error over that of statsmodels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from scipy import stats

import dpstats as dp
from benchmarks.common import DELTA, Array, arguments, progress, show

SLOPES = np.array([1.0, -0.5, 0.25])
SCHEMA = dp.Schema(
    y=dp.Numeric(-100, 300, center=0, scale=2),
    x1=dp.Numeric(-8, 8, center=0, scale=1),
    x2=dp.Numeric(-8, 8, center=0, scale=1),
    x3=dp.Numeric(-8, 8, center=0, scale=1),
)
FORMULA = "y ~ x1 + x2 + x3"
LAWS: dict[str, Callable[[Array], Array]] = {  # quantile functions
    "normal": stats.norm.ppf,
    "unequal": stats.norm.ppf,
    "log-normal": stats.lognorm(1).ppf,
    "t(3)": stats.t(3).ppf,
    "sharp": stats.norm(scale=0.05).ppf,
}
CELLS = [(5_000, 0.5), (20_000, 0.5), (20_000, 0.9)]


def rows(law: str, n: int, q: float, rng: np.random.Generator) -> tuple[pd.DataFrame, Array]:
    """A table, and its coefficients at q."""
    x = rng.normal(size=(n, 3))
    if law == "unequal":  # so that no standard deviation is negative
        x = np.clip(x, -2, 2)
    spread = 1 + 0.4 * x[:, 0] if law == "unequal" else np.ones(n)
    y = 1 + x @ SLOPES + spread * LAWS[law](rng.random(n))
    at = float(LAWS[law](np.array(q)))
    truth = np.array([1 + at, *SLOPES])
    truth[1] += 0.4 * at if law == "unequal" else 0.0
    return pd.DataFrame(x, columns=["x1", "x2", "x3"]).assign(y=y), truth


def cell(law: str, n: int, q: float, reps: int, seed: int) -> dict[str, Any]:
    """One row of the table."""
    hits, halved, errors, theirs = [], [], [], []
    for rep in range(reps):
        frame, truth = rows(law, n, q, np.random.default_rng([seed, rep]))
        model = dp.quantreg(FORMULA, frame, SCHEMA, q=q)
        fit = model.fit(dp.Central(1.0, DELTA), noise=dp.SeededNoise(rep))
        off = fit.params.to_numpy() - truth
        variance = fit.bse.to_numpy() ** 2
        less = variance - 0.75 * np.diag(fit.table.cov_privacy)
        hits.append(np.abs(off) < 1.96 * np.sqrt(variance))
        halved.append(np.abs(off) < 1.96 * np.sqrt(less))
        errors.append(off)
        theirs.append(smf.quantreg(FORMULA, frame).fit(q=q).params.to_numpy() - truth)
    ratio = np.sqrt(np.mean(np.square(errors)) / np.mean(np.square(theirs)))
    return {
        "errors": law,
        "q": q,
        "n": n,
        "covers": round(float(np.mean(hits)), 3),
        "halved": round(float(np.mean(halved)), 3),
        "ratio": round(float(ratio), 2),
    }


def main() -> None:
    """Print the table."""
    asked = arguments(__doc__ or "", reps=60, law="errors, with commas between; all by default")
    sizes = CELLS[:1] if asked.quick else CELLS
    cells = [(law, n, q) for law in (asked.law or ",".join(LAWS)).split(",") for n, q in sizes]
    found = [
        cell(*each, asked.reps, asked.seed) for each in progress(cells, len(cells), asked.quiet)
    ]
    show("Quantile regression", found, f"{asked.reps} tables a cell.")


if __name__ == "__main__":
    main()
