"""Damped scores: bounded by what they promise, with the root of the likelihood."""

from __future__ import annotations

import numpy as np
import pytest

from dpstats.errors import OptionError
from dpstats.families import BINOMIAL, GAUSSIAN, Family
from dpstats.families.damped import DampedFamily

ETA = np.linspace(-8, 8, 401)


@pytest.mark.parametrize("level", [0.5, 0.6, 0.8, 1.0])
def test_no_binomial_score_exceeds_one(level: float) -> None:
    damped = DampedFamily("binomial", "logit", level)
    scores = [np.abs(damped.residual(np.full_like(ETA, y), ETA)) for y in (0.0, 1.0)]
    assert np.max(scores) <= 1 + 1e-12
    # At the lowest level a response at even odds counts twice what the likelihood gives it.
    zero = damped.residual(np.ones(1), np.zeros(1))
    assert zero[0] == pytest.approx(0.5 / level)


@pytest.mark.parametrize("level", [0.5, 0.7, 0.9])
def test_the_largest_curvature_is_attained_at_even_odds(level: float) -> None:
    damped = DampedFamily("binomial", "logit", level)
    assert damped.curvature(ETA).max() == pytest.approx(damped.largest_curvature)
    assert damped.curvature(np.zeros(1))[0] == pytest.approx(damped.largest_curvature)


def test_binomial_scores_have_mean_zero_at_the_true_predictor() -> None:
    damped = DampedFamily("binomial", "logit", 0.55)
    mu = BINOMIAL.mean(ETA)
    ones, zeros = damped.residual(np.ones_like(ETA), ETA), damped.residual(np.zeros_like(ETA), ETA)
    assert np.abs(mu * ones + (1 - mu) * zeros).max() < 1e-12


def test_levels_that_do_not_bind_leave_the_likelihood() -> None:
    y = np.full_like(ETA, 3.0)
    for name, link, level in (
        ("binomial", "logit", 1.0),
        ("poisson", "identity", 1e-9),
        ("gaussian", "log", 1e9),
    ):
        plain, damped = Family(name, link), DampedFamily(name, link, level)
        assert damped.residual(y, ETA) == pytest.approx(plain.residual(y, ETA))


def test_scores_that_are_bounded_alike_are_refused() -> None:
    with pytest.raises(OptionError, match="no such weighted score"):
        DampedFamily(GAUSSIAN.name, GAUSSIAN.link, 1.0)
    with pytest.raises(OptionError, match="no such weighted score"):
        DampedFamily("binomial", "logit")
