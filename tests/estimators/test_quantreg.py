"""Quantile regression: statsmodels' answer, intervals that count the noise, refusals."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy.stats import norm

import dpstats as dp
from dpstats.errors import FeasibilityWarning, OptionError, TrustError
from dpstats.families.check import Check

SCHEMA = dp.Schema(
    y=dp.Numeric(-1000, 1000), x=dp.Numeric(-3, 3, scale=1), z=dp.Numeric(-3, 3, scale=1)
)
FORMULA = "y ~ x + z"
GENEROUS = dp.Central(1e4, 1e-6)


def rows(n: int, seed: int, q: float = 0.5, long: bool = False) -> tuple[pd.DataFrame, np.ndarray]:
    """A table whose standard deviation grows with x, and its coefficients at q."""
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(-3, 3, n), rng.uniform(-3, 3, n)
    error = rng.standard_cauchy(n) if long else rng.normal(size=n)
    y = 1 + 0.5 * x - 0.25 * z + (1 if long else 1 + 0.3 * x) * error
    at = float(norm.ppf(q))
    return pd.DataFrame({"y": y, "x": x, "z": z}), np.array([1 + at, 0.5 + 0.3 * at, -0.25])


def fit(table: pd.DataFrame, privacy: dp.Central, seed: int, q: float = 0.5) -> dp.Results:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeasibilityWarning)
        model = dp.quantreg(FORMULA, table, SCHEMA, q=q)
        return model.fit(privacy, noise=dp.SeededNoise(seed))


def asymptotic(n: int, q: float) -> np.ndarray:
    """Standard errors of these rows by D^-1 J D^-1: J = q (1 - q) E xx', D = E f(0 | x) xx'."""
    grid = np.linspace(-3, 3, 6001)
    x = np.array([(1, a, b) for a in grid[::6] for b in (-np.sqrt(3), np.sqrt(3))])
    density = norm.pdf(norm.ppf(q)) / (1 + 0.3 * x[:, 1])
    inverse = np.linalg.inv((x.T * density) @ x / len(x))
    return np.sqrt(np.diag(inverse @ (q * (1 - q) * x.T @ x / len(x)) @ inverse) / n)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.75])
def test_without_noise_it_is_the_answer_of_statsmodels_with_right_standard_errors(q: float) -> None:
    """Statsmodels' own are of another bandwidth, and 40 % too small for so unequal variances."""
    table, _ = rows(20_000, 1, q)
    ours, theirs = fit(table, GENEROUS, 1, q), smf.quantreg(FORMULA, table).fit(q=q)
    assert np.abs((ours.params - theirs.params) / ours.bse).max() < 0.5
    assert np.abs(np.log(ours.bse / asymptotic(20_000, q))).max() < 0.15


def test_long_tails_cost_nothing_however_wide_the_range() -> None:
    table, _ = rows(20_000, 2, long=True)
    ours, theirs = fit(table, dp.Central(1, 1e-6), 3), smf.quantreg(FORMULA, table).fit(q=0.5)
    assert (ours.bse / theirs.bse).max() < 1.6
    least = dp.ols(FORMULA, table, SCHEMA).fit(dp.Central(1, 1e-6), noise=dp.SeededNoise(3))
    assert (least.bse / ours.bse).min() > 3


def z_scores(n: int, epsilon: float, q: float, reps: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors in standard errors, and what these would be without half of the noise."""
    whole, without = [], []
    for r in range(reps):
        table, truth = rows(n, 100 + r, q)
        found = fit(table, dp.Central(epsilon, 1e-6), r, q)
        off = found.params.to_numpy() - truth
        noise = np.diag(found.estimate.cov_privacy) / np.diag(found.estimate.cov)
        whole.append(off / found.bse.to_numpy())
        without.append(whole[-1] / np.sqrt(1 - 0.75 * noise))
    return np.array(whole), np.array(without)


@pytest.mark.full
def test_errors_are_as_large_as_standard_errors_say() -> None:
    """Of 36 z scores the mean square is 1 with standard error .24; at half the noise it shows."""
    z, halved = z_scores(20_000, 0.12, 0.5, 12)
    assert 0.4 < (z**2).mean() < 1.75
    assert (halved**2).mean() > 1.3 * (z**2).mean()


@pytest.mark.slow
@pytest.mark.parametrize(("n", "q"), [(3000, 0.5), (20_000, 0.5), (20_000, 0.9)])
def test_intervals_cover(n: int, q: float) -> None:
    """Of 240 intervals .95 less three standard errors is .908."""
    z, _ = z_scores(n, 1.0, q, 80)
    assert (np.abs(z) < 1.96).mean() > 0.908


def test_a_score_is_a_jump_and_its_slope_a_density() -> None:
    check = Check("quantile", "identity", level=0.9, bandwidth=0.5)
    y = np.linspace(-6, 6, 240_001)
    assert set(check.residual(y, np.full_like(y, 0.1))) <= {0.9, 0.9 - 0.5, 0.9 - 1}
    assert check.largest == np.abs(check.residual(y, 0 * y)).max()
    # At a standard normal response: the mean jump is q - F(eta), the mean slope about f(eta).
    weight, eta = norm.pdf(y) * (y[1] - y[0]), np.full_like(y, 0.3)
    assert weight @ check.residual(y, eta) == pytest.approx(0.9 - norm.cdf(0.3), abs=1e-4)
    inside = norm.cdf(0.8) - norm.cdf(-0.2)
    assert weight @ check.information(y, eta) == pytest.approx(inside, abs=1e-4)


def test_ties_and_sharp_responses_are_fitted_or_said() -> None:
    """Where columns explain all, nine tenths of these rows lie on the quantile."""
    rng = np.random.default_rng(5)
    x, z = rng.uniform(-3, 3, (2, 4000))
    table = pd.DataFrame({"y": x - z, "x": x, "z": z})
    found = fit(table, dp.Central(1, 1e-6), 1, 0.9)
    off = np.abs(found.params - [0, 1, -1])
    assert (off < 1.96 * found.bse + 0.05).all() or "not come to rest" in found.summary().as_text()


def test_predictions_are_quantiles_and_the_summary_says_which() -> None:
    table, truth = rows(20_000, 3, 0.9)
    found = fit(table, GENEROUS, 1, 0.9)
    new = pd.DataFrame({"x": [1.0], "z": [-1.0]})
    assert found.predict(new)[0] == pytest.approx(truth @ [1, 1, -1], abs=0.15)
    assert "Quantile:" in found.summary().as_text()
    assert "quantile 0.9" in found.describe()
    assert dp.load(_saved(found)).params.equals(found.params)


def _saved(found: dp.Results) -> str:
    import tempfile

    path = f"{tempfile.mkdtemp()}/fit.json"
    found.save(path)
    return path


@pytest.mark.parametrize("q", [0, 1, -0.1, 1.5, "half", True, [0.25, 0.5], float("nan")])
def test_a_quantile_is_one_number_between_0_and_1(q: object) -> None:
    ledger = dp.Ledger.memory(1, 1e-6)
    with pytest.raises(OptionError, match="between 0 and 1"):
        dp.quantreg(FORMULA, schema=SCHEMA, n=1000, q=q)
    table, _ = rows(1000, 1)
    with pytest.raises(OptionError, match="between 0 and 1"):
        dp.quantreg(FORMULA, table, SCHEMA).fit(dp.Central(1, 1e-6), ledger, q=q)
    assert ledger.spent == (0, 0)


def test_other_trust_models_and_what_is_not_there_are_refused() -> None:
    model = dp.quantreg(FORMULA, schema=SCHEMA, n=10_000)
    for privacy in (dp.Local(2.0), dp.LabelOnly(2.0)):
        with pytest.raises(TrustError):
            dp.quantreg(FORMULA, rows(100, 1)[0], SCHEMA).plan(privacy)
    with pytest.raises(OptionError, match="em"):
        dp.quantreg(FORMULA, schema=SCHEMA, n=10_000, missing="em")
    with pytest.raises(OptionError, match="delta"):
        model.plan(dp.Central(1.0))


def test_the_plan_says_where_few_rows_lie_beyond_the_quantile() -> None:
    model = dp.quantreg(FORMULA, schema=SCHEMA, n=2000)
    assert any("beyond q=0.99" in w for w in model.plan(dp.Central(1, 1e-6), q=0.99).warnings)
    assert not any("beyond q" in w for w in model.plan(dp.Central(1, 1e-6), q=0.5).warnings)


def test_a_quantile_is_not_evaluated_as_a_mean() -> None:
    table, _ = rows(5000, 1)
    found = fit(table, GENEROUS, 1)
    ledger = dp.Ledger.memory(1, 1e-6)
    with pytest.raises(OptionError, match="not evaluated in this release"):
        dp.evaluate(found, table, privacy=dp.Central(1, 1e-6), ledger=ledger)
    assert ledger.spent == (0, 0)
