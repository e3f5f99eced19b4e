"""Answers explained by factors alone: lengths of scores are a few numbers, many rows have each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import dpstats as dp
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Central

DELTA, N = 1e-7, 20_000
SCHEMA = dp.Schema(
    arm=dp.Categorical(["control", "new"]),
    plan=dp.Categorical(["a", "b", "c"]),
    bought=dp.Numeric(0, 1),
    marks=dp.Numeric(1, 5),
    y=dp.Numeric(-10, 15),
    b=dp.Boolean(),
)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """An experiment with two arms, three plans, a yes or no, and marks from 1 to 5."""
    rng = np.random.default_rng(1)
    arm, plan = rng.choice(["control", "new"], N), rng.choice(list("abc"), N)
    eta = -0.2 + 0.3 * (arm == "new") + 0.4 * (plan == "b")
    return pd.DataFrame(
        {
            "arm": arm,
            "plan": plan,
            "bought": (rng.random(N) < 1 / (1 + np.exp(-eta))).astype(float),
            "marks": np.clip(np.round(3 + eta + rng.normal(size=N)), 1, 5),
        }
    )


def ratios(make: Any, formula: str, table: pd.DataFrame, seed: int = 0) -> tuple[Any, Any]:
    """Standard errors, and distances from statsmodels, over those without privacy."""
    fit = make(formula, table, SCHEMA).fit(Central(1.0, DELTA), noise=SeededNoise(seed))
    link = {dp.logit: sm.families.Binomial(), dp.ols: sm.families.Gaussian()}
    link[dp.probit] = sm.families.Binomial(sm.families.links.Probit())
    plain = smf.glm(formula, table, family=link[make]).fit(cov_type="HC1")
    unit = plain.bse.to_numpy()
    assert not fit.warnings
    return fit.bse.to_numpy() / unit, np.abs(fit.params.to_numpy() - plain.params.to_numpy()) / unit


@pytest.mark.parametrize(
    ("make", "formula", "most"),
    [
        (dp.logit, "bought ~ arm", 1.2),
        (dp.logit, "bought ~ arm + plan", 1.3),
        (dp.logit, "bought ~ plan - 1", 1.3),
        (dp.probit, "bought ~ 1", 1.2),
        (dp.ols, "bought ~ arm", 2.5),
        (dp.ols, "marks ~ arm", 2.5),
    ],
)
def test_noise_is_as_small_as_scores_are_short(
    make: Any, formula: str, most: float, table: pd.DataFrame
) -> None:
    """It was that of a law of lengths which goes on: five to sixty times as large."""
    ses, off = ratios(make, formula, table)
    assert (ses < most).all()
    assert (off < 2.6 * ses).all()


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_without_an_intercept_most_rows_may_be_all_0(share: float) -> None:
    """Their length tells nothing of how long the others are."""
    rng = np.random.default_rng(2)
    b = (rng.random(N) < share) * 1.0
    rows = pd.DataFrame({"b": b, "y": 5.0 * b + rng.normal(size=N)})
    ses, off = ratios(dp.ols, "y ~ b - 1", rows)
    assert (ses < 2).all()
    assert (off < 2.6 * ses).all()
