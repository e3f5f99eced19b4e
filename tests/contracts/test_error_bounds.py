"""What is called a bound holds in 95 % of the fits that do not warn: statsmodels is the witness.

Rows are drawn anew for each fit, so that the share of fits is over rows and noise; the RAND table
is what it is. The share of R fits has a standard deviation of sqrt(.95 * .05 / R); a case fails
where a coefficient's share is more than 3.5 of them below .95 (1 in 4,000 per coefficient where it
is .95), and has power where bounds of half the length fail.
"""

import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import dpstats as dp
from dpstats.datasets import randhie
from dpstats.errors import FeasibilityWarning
from tests.grids import grid

RAND = "mdvis ~ lncoins + disea + physlm + hlthg + hlthf + hlthp"
CURATOR = dp.LabelOnly(1.0, 1e-6, curator=True)
SIMULATED = "Every device was simulated"  # is said of each fit with `Local`


@dataclass(frozen=True)
class Case:
    """A model of rows of a kind, and how it is fitted."""

    model: str
    rows: str
    privacy: Any
    n: int = 5000
    columns: int = 3
    options: dict[str, Any] = field(default_factory=dict)
    fits: int = 40

    def __str__(self):
        options = ",".join(map(str, self.options.values()))
        p = self.privacy
        return f"{self.model}-{self.rows}-{self.n}x{self.columns}-{p.trust}-{p.epsilon}-{options}"


CASES = [
    Case("ols", "right", CURATOR),
    # The further ones are marked `full`.
    Case("ols", "skewed", dp.Central(1.0, 1e-6)),
    Case("logit", "right", dp.Central(1.0, 1e-6)),
    Case("poisson", "right", dp.Central(1.0, 1e-6)),
    Case("ols", "right", dp.Local(4.0), n=20_000, columns=1, fits=40),
    Case("mean", "right", dp.Central(0.5)),
    Case("ols", "right", dp.Central(1.0, 1e-6), fits=120),
    Case("ols", "right", dp.Central(0.3, 1e-6), n=20_000, columns=5, fits=120),
    Case("ols", "skewed", dp.Central(1.0, 1e-6), n=20_000, columns=5, fits=120),
    Case("ols", "bent", dp.Central(1.0, 1e-6), n=20_000, columns=5, fits=120),
    Case("ols", "right", dp.Central(2.0, 1e-6), n=50_000, columns=10, fits=100),
    Case("ols", "right", dp.Central(1.0, 1e-6), n=20_000, options={"target": "robust"}, fits=120),
    Case("ols", "right", dp.Central(1.0, 1e-6), n=20_000, options={"method": "adassp"}, fits=120),
    Case("ols", "right", dp.Central(1.0, 1e-6), n=20_000, options={"method": "dp-gd"}, fits=120),
    Case("logit", "right", dp.Central(1.0, 1e-6), n=20_000, columns=5, fits=120),
    Case("logit", "right", dp.Central(1.0, 1e-6), n=20_000, options={"target": "robust"}, fits=120),
    Case("poisson", "right", dp.Central(1.0, 1e-6), n=20_000, columns=5, fits=120),
    Case("logit", "right", CURATOR, fits=120),
    Case("poisson", "right", CURATOR, fits=120),
    Case("ols", "skewed", dp.LabelOnly(1.0, curator=True), fits=120),
    Case("ols", "right", dp.LabelOnly(1.0), fits=120),
    Case("logit", "right", dp.LabelOnly(1.0), fits=120),
    Case("ols", "right", dp.Local(4.0), n=60_000, fits=100),
    Case("ols", "rand", dp.Central(1.0, 1e-6), fits=120),
    Case("ols", "rand", dp.Central(4.0, 1e-6), fits=120),
    Case("ols", "rand", CURATOR, fits=120),
]


def rows(case: Case, seed: int) -> tuple[pd.DataFrame, dp.Schema, str]:
    """A table, its schema and a formula."""
    if case.rows == "rand":
        return *randhie.load(), RAND
    rng = np.random.default_rng([7, seed])
    names = [f"x{j}" for j in range(case.columns)]
    x = np.clip(rng.normal(size=(case.n, case.columns)), -4, 4)
    eta = x @ np.linspace(0.5, -0.25, case.columns)
    noise = rng.exponential(size=case.n) - 1 if case.rows == "skewed" else rng.normal(size=case.n)
    bend = 0.5 * x[:, 0] ** 2 if case.rows == "bent" else 0.0
    y = {
        "logit": (rng.uniform(size=case.n) < 1 / (1 + np.exp(-eta))).astype(float),
        "poisson": np.minimum(rng.poisson(np.exp(0.5 + 0.6 * eta)), 30),
    }.get(case.model, np.clip(1 + eta + bend + noise, -10, 10))
    ranges = {"logit": dp.Numeric(0, 1), "poisson": dp.Numeric(0, 30)}
    columns = {name: dp.Numeric(-4, 4, center=0, scale=1) for name in names}
    schema = dp.Schema({**columns, "y": ranges.get(case.model, dp.Numeric(-10, 10))})
    return pd.DataFrame(x, columns=names).assign(y=y), schema, "y ~ " + " + ".join(names)


def both(case: Case, df: pd.DataFrame, schema: dp.Schema, formula: str) -> tuple[Any, Any]:
    """The private model, and the parameters that statsmodels finds on the same rows."""
    match case.model:
        case "mean":
            return dp.mean("y", df, schema), pd.Series({"y": df["y"].mean()})
        case "ols":
            return dp.ols(formula, df, schema), smf.ols(formula, df).fit().params
        case "logit":
            return dp.logit(formula, df, schema), smf.logit(formula, df).fit(disp=0).params
    exact = smf.glm(formula, df, family=sm.families.Poisson()).fit().params
    return dp.glm(formula, df, schema, family="poisson"), exact


LONG = [pytest.param(case, marks=pytest.mark.slow) for case in CASES if case.fits > 40]


@pytest.mark.full
@pytest.mark.parametrize("case", [*grid([c for c in CASES if c.fits <= 40], 1), *LONG], ids=str)
def test_a_bound_on_the_distance_to_the_non_private_answer_holds(case):
    ratios = []
    for seed in range(case.fits):
        if seed == 0 or case.rows != "rand":
            model, exact = both(case, *rows(case, seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FeasibilityWarning)
            fit = model.fit(case.privacy, noise=dp.SeededNoise(seed), **case.options)
        if [t for t in (*fit.plan.warnings, *fit.estimate.remarks) if SIMULATED not in t]:
            continue
        distance = (fit.params - exact[list(fit.params.index)]).abs()
        ratios.append((distance / fit.error_bound.nonprivate).to_numpy())
    held = np.array(ratios) <= 1
    assert len(held) >= case.fits / 2  # the others warned
    least = 0.95 - 3.5 * math.sqrt(0.95 * 0.05 / len(held))
    assert held.mean(axis=0).min() >= least
    # Most of the bound of a mean is what a clip may leave out, and here leaves in.
    shrunk = 4 if case.model == "mean" else 2
    assert (shrunk * np.array(ratios) <= 1).mean() < 0.95 or case.options
