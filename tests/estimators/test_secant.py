"""What the fall of a score says of a curvature, and squared terms, which it was written for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import dpstats as dp
from dpstats.datasets import randhie
from dpstats.estimators.central.newton.secant import along
from dpstats.estimators.numerics.entrywise import symmetric_pattern

LEVEL = 1000.0


def test_rows_that_were_shortened_in_the_curvature_are_seen_in_the_fall_of_a_score():
    """With noise of next to nothing D s is the fall, and nothing of what was released is lost."""
    rng = np.random.default_rng(0)
    far, moved = rng.normal(size=4), rng.normal(size=4)
    released = LEVEL * np.eye(4)
    true = released + 2 * LEVEL * np.outer(far, far)
    told = along(released, symmetric_pattern(4), moved, true @ moved, 1e-6)
    np.testing.assert_allclose(told.plain @ moved, true @ moved, rtol=0.01)
    np.testing.assert_allclose(told.plain, true, rtol=0.01, atol=0.01 * LEVEL)  # of rank one
    np.testing.assert_allclose(told.basis.T @ told.basis, np.eye(4), atol=1e-12)
    assert np.linalg.eigvalsh(told.plain - released)[0] > -1e-6 * LEVEL
    assert told.variances[0, 0] < 1.0
    assert told.variances[1, 1] == pytest.approx(1.0)


@pytest.mark.parametrize(("steeper", "updates"), [(1.0, 0), (0.3, 0), (3.0, 200)])
def test_a_curvature_is_left_as_it_is_unless_noise_does_not_explain_the_fall(steeper, updates):
    """Of 200 draws (false alarms: 200 Phi(-4) = .006); threefold curvature is always seen."""
    rng, d, noise, doubt = np.random.default_rng(1), 5, 900.0, 400.0
    true = LEVEL * np.eye(d)
    changed = 0
    for _ in range(200):
        moved = rng.normal(size=d) / 2
        error = rng.normal(size=(d, d)) * np.sqrt(doubt / 2)
        released = true + (error + error.T) / np.sqrt(2)
        change = steeper * true @ moved + np.sqrt(noise) * rng.normal(size=d)
        told = along(released, doubt * symmetric_pattern(d), moved, change, noise)
        changed += not np.array_equal(told.plain, released)
        assert np.linalg.eigvalsh(told.plain)[0] > 0
    assert changed == updates


def test_a_step_of_nothing_tells_nothing():
    told = along(np.eye(2), np.ones((2, 2)), np.zeros(2), np.ones(2), 1.0)
    np.testing.assert_array_equal(told.plain, np.eye(2))


@pytest.mark.parametrize("length", [1e-17, 1e-6, 9e-4])
def test_a_step_within_noise_tells_nothing(length):
    """What is left of a score, five noises here, was read as a curvature of up to 1e19."""
    moved = np.array([0.0, -length])
    change = np.array([600.0, -500.0])
    released = 1e5 * np.eye(2)
    told = along(released, np.ones((2, 2)), moved, change, 100.0**2)
    np.testing.assert_array_equal(told.plain, released)


def curved(n: int = 20_000) -> tuple[pd.DataFrame, dp.Schema]:
    """A parabola in a skewed column, of which one row in 400 lies at its end."""
    rng = np.random.default_rng(0)
    x = np.minimum(rng.gamma(4, 1, n), 15)
    x = np.where(rng.random(n) < 0.0025, 15.0, x)
    y = 11 + 0.36 * x - 0.015 * x**2 + 0.35 * rng.normal(size=n)
    return pd.DataFrame({"x": x, "y": y}), dp.Schema(x=dp.Numeric(0, 16), y=dp.Numeric(9, 15))


def test_a_squared_term_whose_rows_lie_far_out_is_fitted_as_without_privacy():
    """Errors were 3 to 96 of these standard errors, and 2.9 (1.7 to 3.6) of those reported."""
    rows, schema = curved()
    formula = "y ~ x + I(x**2)"
    theirs = smf.ols(formula, rows).fit(cov_type="HC1")
    z, errors = [], []
    for seed in range(4):
        fit = dp.ols(formula, rows, schema).fit(dp.Central(4.0, 1e-7), noise=dp.SeededNoise(seed))
        off = fit.params - theirs.params
        z.append(np.abs(off / fit.bse).max())
        errors.append(np.abs(off / theirs.bse).max())
    assert max(z) < 2.5
    assert max(errors) < 15


def test_a_fit_whose_last_step_was_long_says_that_it_did_not_come_to_rest():
    """Linear predictors of standard deviation 9 are out of reach; of 1.5 they are not."""
    rng, n = np.random.default_rng(0), 10_000
    x = rng.uniform(-2, 2, n)
    schema = dp.Schema(x=dp.Numeric(-2, 2), y=dp.Numeric(0, 1))
    for slope, said in ((8.0, True), (1.3, False)):
        y = (rng.random(n) < 1 / (1 + np.exp(-slope * x))).astype(float)
        model = dp.logit("y ~ x", pd.DataFrame({"x": x, "y": y}), schema)
        fit = model.fit(dp.Central(4.0, 1e-7), noise=dp.SeededNoise(0))
        assert ("did not come to rest" in str(fit.summary())) is said
        off = abs(fit.params["x"] - slope) / fit.bse["x"]
        assert said or off < 4


def test_a_curvature_that_grew_on_the_way_is_seen_in_the_fall_of_a_score():
    """A skewed share in a range ten times too wide, under a steep link: z was 8.8 to 13."""
    df, schema = randhie.load()
    df = df.assign(visit=(df["mdvis"] > 0).astype(float))
    schema = dp.Schema({**schema, "visit": dp.Numeric(0, 1), "physlm": dp.Numeric(-10, 10)})
    formula = "visit ~ physlm + hlthf"
    link = sm.families.links.CLogLog()
    plain = smf.glm(formula, df, family=sm.families.Binomial(link)).fit().params
    model = dp.glm(formula, df, schema, family="binomial", link="cloglog")
    for seed in range(4):
        fit = model.fit(dp.Central(4.0, 1e-7), noise=dp.SeededNoise(seed))
        assert np.abs((fit.params - plain[fit.params.index]) / fit.bse).max() < 3


def test_what_a_fall_added_is_allowed_for_again_along_its_step():
    """Only along the step that told: at right angles to it nothing was learned."""
    moved, true = np.array([0.6, 0.8]), 3 * LEVEL * np.eye(2)
    told = along(LEVEL * np.eye(2), symmetric_pattern(2), moved, true @ moved, 1e-6)
    np.testing.assert_allclose(
        told.again(0.1 * moved), np.outer(moved, moved) * (0.2 * LEVEL) ** 2, rtol=0.01
    )
    np.testing.assert_allclose(told.again(np.array([-0.8, 0.6])), 0.0, atol=1e-6)
    same = along(LEVEL * np.eye(2), symmetric_pattern(2), moved, LEVEL * moved, 1.0)
    assert not same.again(moved).any()
