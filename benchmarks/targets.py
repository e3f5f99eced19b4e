"""Both targets of the default method where the model is right: error and coverage, side by side.

    uv run python -m benchmarks.targets --reps 30
    uv run python -m benchmarks.targets --quick

Tables of n rows whose mean and variance are the model's: four normal columns with correlations
.5^|i-j|, or these with a 0/1 column, ones in 3 of 10 rows, in place of the first; delta 1e-6. Both
targets get the same rows and seeds. "ratio" is the root mean squared error over that of
statsmodels on the same rows, all coefficients together; "mle/robust" that of the errors of both;
"covers" is the share of 95 % intervals that hold the population value.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm

import dpstats as dp
from benchmarks.common import DELTA, Array, arguments, progress, show

SLOPES = np.array([0.5, -0.3, 0.4, 0.2])
LAWS = {
    "ols": (None, dp.Numeric(-6, 6), sm.families.Gaussian()),
    "logit": ("binomial", dp.Numeric(0, 1), sm.families.Binomial()),
    "poisson": ("poisson", dp.Numeric(0, 40), sm.families.Poisson()),
}
TARGETS = ("mle", "robust")


def columns(kind: str, n: int, rng: np.random.Generator) -> tuple[Array, dict[str, dp.Numeric]]:
    """Columns and their declared ranges."""
    d, names = SLOPES.size, [f"x{j}" for j in range(SLOPES.size)]
    places = np.arange(d)
    cov = 0.5 ** np.abs(places[:, None] - places)
    x = rng.multivariate_normal(np.zeros(d), cov, n)
    declared = dict.fromkeys(names, dp.Numeric(-5, 5))
    if kind == "dummy":
        x[:, 0] = x[:, 0] > 0.5244
        declared["x0"] = dp.Numeric(0, 1)
    return x, declared


def responses(family: str, eta: Array, rng: np.random.Generator) -> Array:
    """Of the model, at these linear predictors."""
    if family == "ols":
        return eta + rng.normal(size=eta.size)
    if family == "logit":
        return np.asarray(rng.uniform(size=eta.size) < 1 / (1 + np.exp(-eta)), dtype=float)
    return rng.poisson(np.exp(eta)).astype(float)


def cell(family: str, kind: str, n: int, epsilon: float, reps: int, seed: int) -> dict[str, Any]:
    """One row of the table."""
    law, response, theirs = LAWS[family]
    plain: list[Array] = []
    off: dict[str, list[Array]] = {t: [] for t in TARGETS}
    held: dict[str, list[Array]] = {t: [] for t in TARGETS}
    truth = np.r_[0.2, SLOPES]
    for rep in range(reps):
        rng = np.random.default_rng([seed, rep])
        x, declared = columns(kind, n, rng)
        eta = truth[0] + x @ SLOPES
        y = responses(family, eta, rng)
        data = pd.DataFrame(x, columns=list(declared)).assign(y=y)
        schema = dp.Schema(declared, y=response)
        plain.append(sm.GLM(y, sm.add_constant(x), family=theirs).fit().params - truth)
        formula = "y ~ " + " + ".join(declared)
        if law is None:
            model = dp.ols(formula, data, schema)
        else:
            model = dp.glm(formula, data, schema, family=law)
        for target in TARGETS:
            fit = model.fit(dp.Central(epsilon, DELTA), target=target, noise=dp.SeededNoise(rep))
            found = fit.params.to_numpy() - truth
            off[target].append(found)
            held[target].append(np.abs(found) < 1.959964 * fit.bse.to_numpy())
    unit = np.std(plain, axis=0)  # coefficients count alike
    size = {t: float(np.sqrt(np.mean(np.square(off[t]) / unit**2))) for t in TARGETS}
    base = float(np.sqrt(np.mean(np.square(plain) / unit**2)))
    return {
        "model": f"{family}, {kind}",
        "n": n,
        "eps": epsilon,
        **{f"ratio, {t}": round(size[t] / base, 2) for t in TARGETS},
        "mle/robust": round(size["mle"] / size["robust"], 2),
        **{f"covers, {t}": round(float(np.mean(held[t])), 3) for t in TARGETS},
    }


def main() -> None:
    """Run and print."""
    a = arguments(__doc__ or "", reps=30, only="families, with commas between")
    families = a.only.split(",") if a.only else list(LAWS)
    found = list(product(families, ("normal", "dummy"), (4_000, 20_000), (0.5, 1.0)))
    cells, reps = (found[:1], 2) if a.quick else (found, a.reps)
    made = [
        cell(family, kind, n, epsilon, reps, a.seed)
        for family, kind, n, epsilon in progress(cells, len(cells), a.quiet)
    ]
    show("Both targets where the model is right", made, f"{reps} tables a cell.")


if __name__ == "__main__":
    main()
