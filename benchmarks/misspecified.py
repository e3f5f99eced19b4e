"""Ordinary ways in which a model is wrong: do intervals hold what statsmodels answers?

`python -m benchmarks.misspecified` prints the table of docs/benchmarks.md. Every model is fitted by
default under `Central`, on rows whose mean, variance or law is another: 10,000 rows of two normal
columns (a third is log-normal), ranges declared well, no scales.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf
from numpy.typing import NDArray

import dpstats as dp
from benchmarks.common import DELTA, arguments, progress

Array = NDArray[np.float64]

N, EPSILONS = 10_000, (0.5, 1.0, 2.0, 4.0)


class Rows(NamedTuple):
    """Columns, the linear predictor that is shared, and a generator for the response."""

    x: Array
    z: Array
    g: Array
    eta: Array
    rng: np.random.Generator


class Case(NamedTuple):
    """A model, its formula, the response as it is, and the range declared for it."""

    model: str
    formula: str
    respond: Callable[[Rows], Array]
    low: float
    high: float


def _normal(r: Rows) -> Array:
    return r.rng.normal(size=r.x.size)


def _yes(r: Rows, logit: Array) -> Array:
    return (r.rng.random(r.x.size) < 1 / (1 + np.exp(-logit))).astype(float)


def _count(r: Rows, log_mean: Array) -> Array:
    return r.rng.poisson(np.exp(log_mean)).astype(float)


XZ, XG = "y ~ x + z", "y ~ x + g"
CASES = {
    "quadratic": Case("ols", XZ, lambda r: r.eta + 0.3 * r.x**2 + _normal(r), -10, 15),
    "interaction": Case("ols", XZ, lambda r: r.eta + 0.4 * r.x * r.z + _normal(r), -15, 15),
    "concave, log-normal column": Case(
        "ols", XG, lambda r: r.eta + 0.2 * r.g - 0.01 * r.g**2 + _normal(r), -10, 15
    ),
    "exponential": Case("ols", XZ, lambda r: np.exp((r.eta + _normal(r)) / 2), 0, 50),
    "errors grow": Case("ols", XZ, lambda r: r.eta + _normal(r) * np.exp(r.x / 2), -30, 30),
    "log-normal errors": Case("ols", XZ, lambda r: r.eta + np.exp(_normal(r)), -5, 60),
    "counts": Case("ols", XZ, lambda r: _count(r, 0.5 + r.eta), 0, 60),
    "logit, quadratic": Case("logit", XZ, lambda r: _yes(r, r.eta + r.x**2 / 2 - 1), 0, 1),
    "logit, concave": Case("logit", XG, lambda r: _yes(r, r.g / 2 - 0.03 * r.g**2 - 1), 0, 1),
    "Poisson, .1 x^2": Case("poisson", XZ, lambda r: _count(r, 0.2 + r.eta + 0.1 * r.x**2), 0, 100),
    "Poisson, interaction": Case(
        "poisson", XZ, lambda r: _count(r, 0.2 + r.eta + r.x * r.z / 4), 0, 100
    ),
    "Poisson, mean a line": Case(
        "poisson", XZ, lambda r: _count(r, np.log(np.maximum(2 + r.x / 2, 0.05))), 0, 100
    ),
    "Poisson, line in a log-normal column": Case(
        "poisson", XG, lambda r: _count(r, np.log(1 + r.g / 2)), 0, 100
    ),
    "Poisson, 60 % zeros more": Case(
        "poisson", XZ, lambda r: _count(r, 1 + r.eta) * (r.rng.random(r.x.size) < 0.4), 0, 100
    ),
    "Poisson, log-normal mixture": Case(
        "poisson", XZ, lambda r: _count(r, r.eta + _normal(r)), 0, 200
    ),
    "gamma, .1 x^2": Case(
        "gamma",
        XZ,
        lambda r: np.exp(0.2 + r.eta + 0.1 * r.x**2) * r.rng.gamma(2, 0.5, r.x.size),
        1e-3,
        100,
    ),
}


def table(case: Case, seed: int) -> tuple[pd.DataFrame, dp.Schema]:
    """Rows of a case, and what is declared of them."""
    rng = np.random.default_rng([seed, 7])
    x, z = np.clip(rng.normal(size=(2, N)), -4, 4)
    g = np.minimum(rng.lognormal(0, 0.8, N), 20)
    y = case.respond(Rows(x, z, g, 0.4 * x - 0.3 * z, rng))
    schema = dp.Schema(
        x=dp.Numeric(-4, 4),
        z=dp.Numeric(-4, 4),
        g=dp.Numeric(0, 20),
        y=dp.Numeric(case.low, case.high),
    )
    return pd.DataFrame({"x": x, "z": z, "g": g, "y": np.clip(y, case.low, case.high)}), schema


def fits(case: Case, seed: int) -> tuple[Any, dp.Model]:
    """The fit of statsmodels, and the private model."""
    data, schema = table(case, seed)
    if case.model == "gamma":
        law = sm.families.Gamma(sm.families.links.Log())
        plain = smf.glm(case.formula, data, family=law).fit(cov_type="HC1")
        return plain, dp.glm(case.formula, data, schema, family="gamma")
    how = {} if case.model == "ols" else {"disp": 0}
    plain = getattr(smf, case.model)(case.formula, data).fit(cov_type="HC1", **how)
    return plain, getattr(dp, case.model)(case.formula, data, schema)


def cell(case: Case, epsilon: float, seeds: range) -> str:
    """What intervals hold, on average and least; error and standard error; share that warned."""
    held, errors, lengths, warned = [], [], [], 0
    for seed in seeds:
        plain, model = fits(case, seed)
        fit = model.fit(dp.Central(epsilon, DELTA), noise=dp.SeededNoise(seed))
        off, se = fit.params[plain.params.index] - plain.params, fit.bse[plain.params.index]
        held.append((off.abs() < 1.96 * se).to_numpy())
        errors.append((off / plain.bse).to_numpy())
        lengths.append((se / plain.bse).to_numpy())
        warned += "Warning:" in str(fit.summary())
    error = float(np.sqrt(np.mean(np.square(errors))))
    said = f", says so {warned / len(seeds):.0%}" if warned else ""
    hold, least = np.mean(held), np.mean(held, axis=0).min()
    return f"{hold:.0%} / {least:.0%}; {error:.2g} ({np.median(lengths):.2g}){said}"


def main() -> None:
    """Print a line for each way to be wrong."""
    asked = arguments(__doc__ or "", reps=20)
    seeds = range(asked.seed, asked.seed + (2 if asked.quick else asked.reps))
    print("| rows | " + " | ".join(f"epsilon {e:g}" for e in EPSILONS) + " |")
    print("|---|" + "---|" * len(EPSILONS))
    cells = [(name, epsilon) for name in CASES for epsilon in EPSILONS]
    line: list[str] = []
    for name, epsilon in progress(cells, len(cells), asked.quiet):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            line.append(cell(CASES[name], epsilon, seeds))
        if len(line) == len(EPSILONS):
            print(f"| {name} | " + " | ".join(line) + " |", flush=True)
            line = []


if __name__ == "__main__":
    main()
