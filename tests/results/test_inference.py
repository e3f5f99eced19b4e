"""Numerics of inference against closed forms, scipy, patsy and simulation."""

import numpy as np
import pytest
from patsy import DesignInfo
from scipy import stats

from dpstats.errors import OptionError
from dpstats.results.inference import (
    contrast,
    gaussian_norm,
    interval,
    normal_quantile,
    parse_constraints,
    quadratic_form_cdf,
    wald_table,
    wald_test,
)

NAMES = ["Intercept", "x", "x1", "C(g, Treatment('b'))[T.a]", "np.log1p(x)", "I(x ** 2)", "x:x1"]
ROUNDING = 1e-9  # of the contour integral, as its docstring states


@pytest.mark.parametrize("d", [1, 2, 3, 20, 40, 41, 100, 400])
def test_equal_weights_give_the_chi_squared_distribution(d):
    for p in (1e-4, 0.05, 0.5, 0.95, 0.9999):
        t = stats.chi2.ppf(p, d)
        assert abs(quadratic_form_cdf(np.ones(d), t) - p) < ROUNDING


@pytest.mark.parametrize("weights", [[1.0, 0.1, 1e-3], [1.0, 0.99], [5.0, 1e-6]])
def test_paired_weights_give_the_hypoexponential_distribution(weights):
    rates = 1 / (2 * np.array(weights))
    for t in (0.01, 1.0, 10.0):
        tail = sum(np.exp(-r * t) * np.prod([q / (q - r) for q in rates if q != r]) for r in rates)
        assert abs(quadratic_form_cdf(np.repeat(weights, 2), t) - (1 - tail)) < ROUNDING


@pytest.mark.parametrize("d", [1, 2, 7, 60])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_norm_of_isotropic_noise_is_chi(d, level):
    law = gaussian_norm(4.0 * np.eye(d), level)
    np.testing.assert_allclose(law.mean, 2 * stats.chi.mean(d), rtol=1e-10)
    np.testing.assert_allclose(law.radius, 2 * stats.chi.ppf(level, d), rtol=1e-8)


@pytest.mark.parametrize("decay", [0.3, 1.0, 2.0])
def test_norm_law_agrees_with_simulation_and_a_wrong_scale_does_not(decay):
    # 200,000 draws; exceedances of the radius are binomial, so |error| > 5 sd has probability 6e-7.
    rng, draws = np.random.default_rng(7), 200_000
    root = rng.normal(size=(30, 30)) * np.arange(1, 31.0) ** -decay
    law = gaussian_norm(root @ root.T)
    norms = np.linalg.norm(rng.normal(size=(draws, 30)) @ root.T, axis=1)
    tolerance = 5 * np.sqrt(0.05 * 0.95 / draws)
    assert abs((norms > law.radius).mean() - 0.05) < tolerance
    assert abs((norms > 0.95 * law.radius).mean() - 0.05) > tolerance
    assert abs(norms.mean() - law.mean) < 5 * norms.std() / np.sqrt(draws)


def test_no_noise_has_no_norm_and_nan_stays_nan():
    assert gaussian_norm(np.zeros((3, 3))).radius == 0.0
    assert np.isnan(gaussian_norm(np.full((2, 2), np.nan)).mean)


def test_quantile_refuses_levels_outside_the_unit_interval():
    assert normal_quantile(0.05) == pytest.approx(stats.norm.ppf(0.975), rel=1e-14)
    for alpha in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(OptionError, match="level in"):
            normal_quantile(alpha)


def test_interval_and_wald_table_are_the_normal_formulas():
    table = wald_table(np.array([1.0, -2.0]), np.diag([4.0, 1.0]))
    np.testing.assert_allclose(table.z, [0.5, -2.0])
    np.testing.assert_allclose(table.p, 2 * stats.norm.sf([0.5, 2.0]))
    np.testing.assert_allclose(interval([0.0], [1.0], 0.1), [[-1.6448536, 1.6448536]], rtol=1e-7)


def test_a_redundant_hypothesis_counts_once():
    params, cov = np.array([1.0, 2.0]), np.array([[1.0, 0.3], [0.3, 2.0]])
    once = wald_test(params, cov, np.array([[1.0, -1.0]]), np.zeros(1))
    twice = wald_test(params, cov, np.array([[1.0, -1.0], [2.0, -2.0]]), np.zeros(2))
    assert (once.df, twice.df) == (1, 1)
    assert twice.statistic == pytest.approx(once.statistic)
    single = contrast(params, cov, np.array([[1.0, -1.0]]), np.zeros(1))
    assert single.z[0] ** 2 == pytest.approx(once.statistic)


@pytest.mark.parametrize(
    "text",
    [
        "x = 0",
        "x",
        "x = x1, Intercept = 2",
        "C(g, Treatment('b'))[T.a] = 1",
        "2 * np.log1p(x) - x = 3",
        "I(x ** 2) + x:x1 = 0",
        "x = -.5e-1",
        "(x = 1), (x1 = 2)",
        "(x - x1)/3 = 1",
        "2*(x + x1) = -(1)",
    ],
)
def test_hypotheses_mean_what_patsy_says(text):
    R, q = parse_constraints(text, NAMES)
    witness = DesignInfo(NAMES).linear_constraint(text)
    np.testing.assert_allclose(R, witness.coefs)
    np.testing.assert_allclose(q, witness.constants[:, 0])


def test_hypotheses_may_be_lists_and_arrays():
    R, q = parse_constraints(["x = 1", "x1 = x"], NAMES)
    assert R.shape == (2, 7)
    assert q.tolist() == [1.0, 0.0]
    R, q = parse_constraints(np.eye(7)[2], NAMES)
    assert R.shape == (1, 7)
    assert q.tolist() == [0.0]
    assert parse_constraints((np.eye(7)[:2], [3, 4]), NAMES)[1].tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    "text", ["zz = 0", "x = x1 = 0", "x == 0", "x * x1 = 0", "x =", "", "x / 0 = 1", "x = 'a'"]
)
def test_an_unreadable_hypothesis_is_refused_with_the_coefficients(text):
    with pytest.raises(OptionError, match=r"linear equations such as.*Intercept, x, x1"):
        parse_constraints(text, NAMES)


def test_arrays_of_another_shape_are_refused():
    with pytest.raises(OptionError, match="7 columns, one per coefficient"):
        parse_constraints([[1.0, 2.0]], NAMES)
