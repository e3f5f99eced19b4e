"""Tests of whole terms, and the covariances that may be asked for by name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import dpstats as dp
from dpstats.errors import OptionError
from dpstats.mechanisms.noise import SeededNoise

SCHEMA = dp.Schema(
    y=dp.Numeric(-8, 8, scale=1),
    x=dp.Numeric(-1, 1),
    g=dp.Categorical(["a", "b", "c"]),
    h=dp.Categorical(["u", "v", "w"]),
    person=dp.Numeric(0, 9999),
)
FORMULA = "y ~ x * C(g) + h"


def table(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.uniform(-1, 1, n),
            "g": rng.choice(["a", "b", "c"], n),
            "h": rng.choice(["u", "v", "w"], n),
            "person": np.arange(n) // 2,
        }
    )
    frame["y"] = 0.5 * frame.x + 0.3 * (frame.g == "b") + rng.normal(size=n)
    return frame


def fitted(seed: int = 1, epsilon: float = 1.0, **options):
    frame = table(6000, seed)
    model = dp.ols(options.pop("formula", FORMULA), frame, SCHEMA)
    return frame, model.fit(dp.Central(epsilon, 1e-6), noise=SeededNoise(seed), **options)


def test_terms_are_tested_as_statsmodels_does() -> None:
    frame, fit = fitted(epsilon=1e5)
    theirs = smf.ols(FORMULA, frame).fit(cov_type="HC1").wald_test_terms(scalar=True)
    found = fit.wald_test_terms().summary_frame()
    expected = theirs.summary_frame()
    assert list(found.columns) == list(expected.columns)
    assert set(found.index) == set(expected.index)
    found = found.loc[expected.index]
    assert (found["df constraint"] == expected["df constraint"]).all()
    np.testing.assert_allclose(found["chi2"], expected["chi2"], rtol=0.1, atol=0.1)
    single = fit.wald_test_terms(skip_single=True).summary_frame()
    assert set(single.index) == {"C(g)", "h", "x:C(g)"}


def test_a_term_is_the_joint_test_of_its_coefficients() -> None:
    _, fit = fitted()
    table = fit.anova()
    assert set(table.index) == {"C(g)", "h", "x", "x:C(g)"}
    joint = fit.wald_test("h[T.v] = 0, h[T.w] = 0")
    assert table.loc["h", "chi2"] == pytest.approx(float(joint.statistic))
    assert table.loc["h", "PR(>chi2)"] == pytest.approx(float(joint.pvalue))
    assert table.loc["h", "df"] == 2
    assert "NOT private" in str(fit.wald_test_terms())


def test_terms_survive_the_archive(tmp_path) -> None:
    _, fit = fitted()
    fit.save(tmp_path / "fit.json")
    again = dp.load(tmp_path / "fit.json")
    pd.testing.assert_frame_equal(again.anova(), fit.anova())


def test_a_fit_without_intervals_tests_no_term() -> None:
    _, fit = fitted(formula="y ~ x + C(g) + h", sparsity=2)
    with pytest.raises(OptionError, match="No standard errors"):
        fit.anova()


@pytest.mark.slow
def test_a_term_without_effect_is_found_at_its_level() -> None:
    """200 fits: of 5 % tests the standard error is 1.5 points; power at an effect of 0.3."""
    small, found = [], []
    for seed in range(200):
        table = fitted(seed, formula="y ~ x + C(g) + h")[1].anova()["PR(>chi2)"]
        small.append(table["h"] < 0.05)
        found.append(table["C(g)"] < 0.05)
    assert np.mean(small) < 0.09
    assert np.mean(found) > 0.9


@pytest.mark.parametrize("name", ["HC1", "robust"])
def test_the_covariance_that_is_reported_may_be_asked_for(name: str) -> None:
    _, fit = fitted(cov_type=name)
    _, plain = fitted()
    assert fit.cov_type == "HC1 + privacy"
    assert (fit.bse == plain.bse).all()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nonrobust", "equal variances"),
        ("HC0", "n/"),
        ("HC3", "leverage"),
        ("HAC", "order of rows"),
        ("cluster", "Declare it"),
        ("newey", "no such covariance"),
        (3, "a text is needed"),
    ],
)
def test_another_covariance_is_refused_with_the_reason(name, says: str) -> None:
    model, ledger = dp.ols(FORMULA, table(500, 1), SCHEMA), dp.Ledger.memory(9.0, 1e-3)
    with pytest.raises(OptionError, match=says):
        model.fit(dp.Central(1.0, 1e-6), ledger, cov_type=name)
    assert not ledger.entries


def test_units_with_several_rows_are_clusters() -> None:
    schema = dp.Schema(SCHEMA, unit="person", max_rows=2)
    model, privacy = dp.ols("y ~ x", table(3000, 1), schema), dp.Central(1.0, 1e-6, rows=3000)
    fit = model.fit(privacy, cov_type="cluster", noise=SeededNoise(1))
    assert np.isfinite(fit.bse).all()
    with pytest.raises(OptionError, match="one 'person' need not be independent"):
        model.plan(privacy, cov_type="HC1")


def test_a_method_with_another_covariance_says_so() -> None:
    model = dp.ols("y ~ x", table(500, 1), SCHEMA)
    with pytest.raises(OptionError, match="method='adassp' has a covariance of its own"):
        model.plan(dp.Central(1.0, 1e-6), method="adassp", cov_type="HC1")
