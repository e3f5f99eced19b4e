"""Numerics of inference against closed forms, scipy, patsy and simulation."""

import numpy as np
import pytest
from patsy import DesignInfo
from scipy import stats

from dpstats.errors import OptionError
from dpstats.results.inference import (
    contrast,
    interval,
    normal_quantile,
    parse_constraints,
    wald_table,
    wald_test,
)

NAMES = ["Intercept", "x", "x1", "C(g, Treatment('b'))[T.a]", "np.log1p(x)", "I(x ** 2)", "x:x1"]


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


@pytest.mark.parametrize("row", [[0.0, 0.0], [1.0, 0.0]])
def test_a_hypothesis_without_variance_is_refused(row):
    params, cov = np.array([1.0, 2.0]), np.diag([0.0, 2.0])
    with pytest.raises(OptionError, match="variance 0"):
        wald_test(params, cov, np.array([row]), np.zeros(1))
    assert wald_test(params, cov, np.array([[1.0, 1.0]]), np.zeros(1)).df == 1


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
