"""Intervals along directions of faint curvature: longer on one side, exact on both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

import dpstats as dp
from dpstats import SeededNoise
from dpstats.design import Standardization
from dpstats.errors import OptionError
from dpstats.estimators.central.newton.identification import Faint, KnownDirections
from dpstats.protocol import CoefficientEstimate
from dpstats.protocol.faint import FaintDirections
from dpstats.results.coefficients import to_dict
from tests.estimators.test_identification import RARE, rare

Array = NDArray[np.float64]
_NOISE, _DOUBT, _REST, _TRUE = 0.3, 1.0, 0.1, 0.8


def told(
    score: Array, seen: Array, effect: float = 1.0, doubt: float = _DOUBT
) -> tuple[FaintDirections, Array]:
    """Directions, each of one coefficient, and the variances of these; t was asked about at 0."""
    score, seen = np.atleast_1d(score).astype(float), np.atleast_1d(seen).astype(float)
    one = np.ones(score.size)
    faint = Faint(np.eye(1), seen, doubt * one, np.zeros((1, 1)))
    own = _NOISE**2 / seen**2
    known = KnownDirections(
        0 * one, score / seen, score, _NOISE**2 * one, own, 100 * one, 100 * one
    )
    drawn, variance, hidden = faint.settled(known)
    effects = effect * np.eye(score.size)
    found = faint.open_ends(known, drawn, variance, effects, np.zeros_like(hidden))
    assert found is not None
    return found, np.where(hidden, np.inf, variance)


def missed(curvature: float, doubt: float) -> Array:
    """How often intervals of what is not hidden end above and below the true coefficient."""
    rng, found = np.random.default_rng(3), []
    for _ in range(20):
        scores = curvature * _TRUE + _NOISE * rng.normal(size=1_000)
        seen = np.maximum(curvature + _DOUBT * rng.normal(size=1_000), 0.1)
        faint, variance = told(scores, seen, doubt=doubt)
        values = faint.ahead + _REST * rng.normal(size=1_000)
        cov = np.diag(np.minimum(variance, 1e6) + _REST**2)
        low, high = faint.bounds(values, cov, 0.05)[np.isfinite(variance)].T
        found.append((low > _TRUE, high < _TRUE))
    return np.concatenate(found, axis=1).mean(axis=1)


@pytest.mark.parametrize("curvature", [2.0, 3.0, 5.0])
def test_intervals_hold_a_sum_of_a_clear_and_a_faint_part(curvature: float) -> None:
    """In 95 % (standard error .2), also where the curvature hides half of the coefficients.

    In fewer where the curvature is doubted by half as much.
    """
    above, below = missed(curvature, _DOUBT)
    assert above + below < 0.058
    assert above < 0.045
    assert missed(curvature, _DOUBT / 2).sum() > 0.07


def test_an_interval_reaches_less_far_on_the_side_of_none() -> None:
    faint, variance = told(3.0, 2.8)
    cov = np.diag(variance + 0.01)
    (low, high) = faint.bounds(faint.ahead, cov, 0.05)[0]
    assert high - faint.ahead[0] > 1.5 * (faint.ahead[0] - low)
    assert high - faint.ahead[0] == pytest.approx(1.959964 * np.sqrt(cov[0, 0]))
    # Of a coefficient that falls along the direction it is the mirror image.
    mirrored = told(3.0, 2.8, -1.0)[0].bounds(-faint.ahead, cov, 0.05)[0]
    assert mirrored == pytest.approx([-high, -low])


def test_a_test_of_none_is_at_the_end_of_an_interval() -> None:
    for score, seen in ((3.0, 3.5), (-2.0, 4.0), (0.3, 2.5), (1.5, 2.5)):
        faint, variance = told(score, seen)
        cov = np.diag(variance + 0.01)
        z = faint.deviates(faint.ahead, cov)[0]
        assert np.sign(z) == np.sign(faint.ahead[0])
        for part, holds in ((0.999, False), (1.001, True)):  # at the end there may be a leap
            low, high = faint.bounds(faint.ahead, cov, float(2 * ndtr(-abs(part * z))))[0]
            assert (low <= 0 <= high) == holds
        # It is the test of the score, whatever the curvature is, but for the normal part.
        noise = np.hypot(_NOISE, seen * 0.1)
        assert z == pytest.approx(score / noise)


def test_a_coefficient_that_mostly_depends_on_other_directions_has_a_normal_interval() -> None:
    faint, variance = told(3.0, 3.5, 0.1)
    cov = np.diag(0.01 * variance + 0.01)
    low, high = faint.bounds(np.ones(1), cov, 0.05)[0]
    assert 1 - low == pytest.approx(high - 1)
    assert high - low == pytest.approx(2 * 1.959964 * np.sqrt(cov[0, 0]))


def rare_fit() -> dp.ModelResults:
    fit = dp.ols("y ~ x + z", rare(8, 5_000, 0.02), RARE).fit(
        dp.Central(1.0, 1e-6), noise=SeededNoise(8)
    )
    assert fit.estimate.faint is not None
    return fit


def test_a_rare_level_is_reported_with_its_interval_and_test() -> None:
    fit = rare_fit()
    low, high = fit.conf_int().iloc[2]
    value, p, z = fit.params.iloc[2], fit.pvalues.iloc[2], fit.tvalues.iloc[2]
    assert high - value != pytest.approx(value - low, rel=0.05)
    assert low > 0
    assert p < 0.05
    at = fit.conf_int(float(p)).iloc[2]
    assert np.abs(at).min() == pytest.approx(0.0, abs=1e-6)
    assert z > 1.96
    assert z != pytest.approx(value / fit.bse.iloc[2], rel=0.05)
    bound = fit.error_bound
    assert bound.population.iloc[2] == pytest.approx(max(high - value, value - low))
    assert bound.nonprivate.iloc[2] <= bound.population.iloc[2]
    assert "the farther end of the 95 %" in " ".join(str(fit.summary()).split())


def test_what_was_saved_has_the_same_intervals() -> None:
    fit = rare_fit()
    again = type(fit).from_dict(fit.to_dict())
    np.testing.assert_allclose(again.conf_int(0.2), fit.conf_int(0.2))
    np.testing.assert_allclose(again.pvalues, fit.pvalues)
    spoiled = fit.to_dict()
    spoiled["estimate"]["faint"]["noise"] = [-1.0]
    with pytest.raises(OptionError, match="faint"):
        type(fit).from_dict(spoiled)
    spoiled["estimate"]["faint"]["noise"] = [1.0]
    spoiled["estimate"]["faint"]["effects"] = [[1.0]]
    with pytest.raises(OptionError, match="an effect on each"):
        type(fit).from_dict(spoiled)


def test_intervals_are_the_same_in_other_units() -> None:
    fit = rare_fit()
    old = fit.design.standardization
    new = Standardization(
        old.x_center + 0.3, old.x_scale * [1.0, 2.0, 0.4], old.y_center - 1, 3.0, old.intercept
    )
    new = replace(new, x_center=np.where(np.arange(3) == old.intercept, 0.0, new.x_center))
    assert isinstance(fit.estimate, CoefficientEstimate)
    changed = fit.estimate.converted(old, new)
    design = replace(fit.design, standardization=new)
    np.testing.assert_allclose(changed.table(design).bounds(0.1), fit.conf_int(0.1), atol=1e-9)


def selected_fit() -> tuple[dp.ModelResults, dp.RegressionResults]:
    """The same fit as a whole, and as that of three columns of four that were selected."""
    fit, data = rare_fit(), rare(3, 5_000, 0.02)
    data["w"] = np.zeros(5_000)
    schema = dp.Schema({**RARE, "w": dp.Numeric(-1, 1)})
    wider = dp.ols("y ~ x + w + z", data, schema).fit(dp.Central(1.0, 1e-6), noise=SeededNoise(3))
    assert isinstance(fit.estimate, CoefficientEstimate)
    estimate = fit.estimate.as_sparse((0, 1, 3), 4, "conditional")
    written = {**wider.to_dict(), "estimate": to_dict(estimate)}
    return fit, type(wider).from_dict(written)


def test_intervals_of_selected_columns_are_those_of_their_fit() -> None:
    fit, sparse = selected_fit()
    np.testing.assert_allclose(sparse.conf_int(0.1), fit.conf_int(0.1))
    np.testing.assert_allclose(sparse.pvalues.iloc[2], fit.pvalues.iloc[2])


def test_intervals_of_selected_columns_are_the_same_in_other_units() -> None:
    _, sparse = selected_fit()
    old = sparse.design.standardization
    shift = np.where(np.arange(4) == old.intercept, 0.0, 0.3)
    new = Standardization(
        old.x_center + shift, old.x_scale * [1.0, 2.0, 3.0, 0.4], 0.5, 3.0, old.intercept
    )
    changed = sparse.estimate.converted(old, new).table(replace(sparse.design, standardization=new))
    np.testing.assert_allclose(changed.bounds(0.1), sparse.conf_int(0.1), atol=1e-9)


def test_what_is_not_identified_of_selected_columns_is_named_by_its_place_among_all() -> None:
    fit, sparse = selected_fit()
    assert isinstance(fit.estimate, CoefficientEstimate)
    hidden = replace(fit.estimate, not_identified=(2,)).as_sparse((0, 1, 3), 4, "conditional")
    assert hidden.not_identified == (3,)
    np.testing.assert_array_equal(hidden.table(sparse.design).testable, [True, True, False])


def test_an_intercept_that_was_not_selected_moves_no_other_interval() -> None:
    fit, sparse = selected_fit()
    whole = fit.estimate
    assert isinstance(whole, CoefficientEstimate)
    assert whole.faint is not None
    part = replace(
        whole,
        params=whole.params[1:],
        cov=whole.cov[1:, 1:],
        cov_privacy=whole.cov_privacy[1:, 1:],
        cov_sampling=whole.sampling[1:, 1:],
        faint=replace(whole.faint, effects=whole.faint.effects[1:]),
    )
    table = part.as_sparse((1, 3), 4, "conditional").table(sparse.design)
    np.testing.assert_allclose(table.bounds(0.1)[1:], fit.conf_int(0.1).iloc[1:])
