"""Intervals of single coefficients: exact, as short as Pratt's, blind to their own estimate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from dpstats.combining import RULES
from dpstats.combining.homes import LEVELS, Home, one_by_one
from dpstats.protocol.assisted import bounds, deviates
from tests.federated.test_rules import K, drawn

PRIORS = [(0.0, 1e-9), (0.5, 0.1), (-3.0, 0.04), (2.0, 1.0), (40.0, 25.0), (0.0, 1e9)]
GRID = np.linspace(-9, 9, 20_001)  # x - theta


def held(mean: float, var: float, theta: float, alpha: float, length: float = 1.0) -> float:
    """Probability under N(theta, 1) that an interval, or one of that length, holds theta."""
    like = np.ones_like(GRID)
    low, high = bounds(theta + GRID, like, mean * like, var * like, alpha).T
    middle, half = (low + high) / 2, length * (high - low) / 2
    return float(norm.pdf(GRID) @ (np.abs(theta - middle) <= half)) * (GRID[1] - GRID[0])


@pytest.mark.parametrize(("mean", "var"), PRIORS)
def test_intervals_hold_at_their_level_whatever_the_prior_is(mean: float, var: float) -> None:
    for alpha in (0.05, 0.4):
        assert held(mean, var, 0.7, alpha) == pytest.approx(1 - alpha, abs=1e-3)
        assert held(mean, var, 0.7, alpha, 0.9) < 1 - alpha - 0.005  # ones a tenth shorter do not


def test_they_are_as_short_as_can_be_where_the_prior_is_right_and_normal_where_it_is_vague() -> (
    None
):
    """Pratt (1961): at 95 % an expected length of .85 of the normal one, and no less."""
    like, z = np.ones_like(GRID), norm.ppf(0.95)
    low, high = bounds(GRID, like, 0 * like, 1e-9 * like, 0.05).T
    expected = float(norm.pdf(GRID) @ (high - low)) * (GRID[1] - GRID[0])
    assert expected == pytest.approx(2 * (z * norm.cdf(z) + norm.pdf(z)), rel=1e-3)
    vague = bounds(np.array([1.0]), np.array([2.0]), np.array([5.0]), np.array([1e9]), 0.05)
    assert vague == pytest.approx(np.array([[1 - 2 * 1.959964, 1 + 2 * 1.959964]]), rel=1e-5)


@pytest.mark.parametrize(("mean", "var"), PRIORS)
def test_the_tests_of_zero_are_those_that_intervals_invert(mean: float, var: float) -> None:
    x, se = np.array([-2.5, -0.1, 0.4, 3.0, 60.0]), np.array([1.0, 0.5, 2.0, 1.0, 1.0])
    prior = np.full(5, mean), np.full(5, var)
    z = deviates(x, se, *prior)
    assert np.isfinite(z).all()
    # Of smaller chances, and of those next to 1, an alpha has no digits.
    for k in np.flatnonzero((np.abs(z) < 30) & (np.abs(z) > 1e-6)):
        low, high = bounds(x, se, *prior, 2 * norm.sf(abs(z[k])))[k]
        assert min(abs(low), abs(high)) < 1e-6
        assert np.sign(z[k]) == np.sign(low + high)


def two_homes(d: int) -> tuple[list[Home], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    roots = rng.standard_normal((3, d, 2 * d))
    covs = roots @ roots.swapaxes(1, 2) / (2 * d)
    homes = [
        Home(rng.standard_normal(d), 0.3 * covs[1], frozenset([0])),
        Home(rng.standard_normal(d), 0.1 * covs[2], frozenset([1, 2]), 2.0),
    ]
    prior = np.zeros(LEVELS.size)
    prior[[0, 8, 12]] = 0.5, 0.3, 0.2
    return homes, covs[0], prior


def test_what_is_expected_of_a_coefficient_is_blind_to_its_own_estimate_alone() -> None:
    homes, cov, prior = two_homes(4)
    own, j = np.array([0.3, -0.2, 0.5, 1.0]), 2
    before = one_by_one(own, cov, homes, prior)
    after = one_by_one(own + 3 * cov[:, j] / cov[j, j], cov, homes, prior)
    for one, other in zip(before, after, strict=True):
        assert one[j] == pytest.approx(other[j], rel=1e-8)
        assert (np.abs(np.delete(one - other, j)) > 1e-3).all()  # the others' see it


def test_it_is_the_law_of_the_estimate_on_its_line_by_brute_force() -> None:
    homes, cov, prior = two_homes(3)
    own, steps = np.array([0.3, -0.2, 0.5]), np.linspace(-40, 40, 8_001)
    mean, var = one_by_one(own, cov, homes, prior)
    for j in range(3):
        line = own + steps[:, None] * cov[:, j] / cov[j, j]
        chance = sum(
            home.weight * g * multivariate_normal.pdf(line, home.mean, home.cov + (1 + level) * cov)
            for home in homes
            for level, g in zip(LEVELS, prior, strict=True)
            if g > 0
        )
        chance = chance / chance.sum()
        centre = chance @ line[:, j]
        assert mean[j] == pytest.approx(centre, rel=1e-6)
        spread = chance @ (line[:, j] - centre) ** 2 - cov[j, j]
        assert var[j] == pytest.approx(spread, rel=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("rule", ["blend", "minimax"])
def test_a_coefficient_in_which_the_target_alone_differs_is_held(rule: str) -> None:
    """By three standard errors, in 300 draws at eight correlated columns."""
    rng, d, draws = np.random.default_rng(3), 8, 300
    offset = np.zeros((K, d))
    offset[:, 0] = 3.0
    mixed = 0.5 * np.eye(d) + 0.5
    root = np.linalg.cholesky(mixed)
    found, by_square, all_held = 0.0, 0.0, 0.0
    for _ in range(draws):
        theta, cov = drawn(rng, d, np.zeros((K, d)))
        scale = cov[:, 0, 0]
        theta, cov = theta @ root.T, scale[:, None, None] * mixed
        theta[1:] += offset * np.sqrt(scale[0])
        made = RULES[rule](theta, cov)
        assert made.prior is not None
        low, high = bounds(theta[0], np.sqrt(np.diag(cov[0])), *made.prior, 0.05).T
        inside = (low < 0) & (high > 0)
        assert ((low < made.value) & (made.value < high)).all()  # the estimate is in its interval
        found, all_held = found + inside[0] / draws, all_held + inside.mean() / draws
        by_square += (abs(made.value[0]) < 1.96 * np.sqrt(made.cov[0, 0])) / draws
    assert abs(found - 0.95) < 4 * np.sqrt(0.95 * 0.05 / draws)
    assert abs(all_held - 0.95) < 4 * np.sqrt(0.95 * 0.05 / draws)
    assert by_square < 0.9  # as intervals on average over coefficients do
