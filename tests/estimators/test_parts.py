"""Scores asked at several places, as one: closed forms and the law of the noise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstats.estimators.numerics.parts import (
    ScoreAt,
    SplitScore,
    Whole,
    join_scores,
    omitted,
    whole,
)

Array = NDArray[np.float64]
D = 4
BREAD = np.diag([3.0, 5.0, 8.0, 4.0]) + 0.5
ROOT = np.array([0.3, -0.2, 0.1, 0.5])
EARLIER, LATER = np.array([0.5, 0.0, 0.0, 0.2]), np.array([0.2, -0.1, 0.2, 0.4])


def placed(at: Array, noise: Array, sd: float, bias: float = 0.0) -> ScoreAt:
    lean = np.full(D, 7.0)
    return ScoreAt(at, Whole(BREAD @ (ROOT - at) + bias + sd * noise, sd**2, lean))


def test_without_noise_the_root_is_found_and_the_lean_is_the_later_ones() -> None:
    zero = np.zeros(D)
    both = join_scores(placed(EARLIER, zero, 1.0), placed(LATER, zero, 0.5), BREAD)
    np.testing.assert_allclose(both.at + np.linalg.solve(BREAD, both.score.total), ROOT)
    assert both.score.variance == pytest.approx(1 / (1 / 1.0 + 1 / 0.25))  # by precision
    assert both.score.lean[0] == 7.0


@pytest.mark.parametrize("bias", [0.0, 30.0])
def test_errors_are_as_large_as_the_stated_variance(bias: float) -> None:
    rng = np.random.default_rng(0)
    squared, stated = [], []
    for _ in range(3_000):
        earlier, later = rng.normal(size=(2, D))
        both = join_scores(placed(EARLIER, earlier, 1.0, bias), placed(LATER, later, 0.7), BREAD)
        error = both.score.total - BREAD @ (ROOT - both.at)  # what is not the score there
        squared.append(float(error @ error) / D)
        stated.append(both.score.variance)
    # The relative standard error of a mean of 12,000 squares is 1.3 %. Where weights are
    # estimated from the disagreement the variance is a little larger than stated.
    assert np.mean(squared) == pytest.approx(np.mean(stated), rel=0.15)
    assert np.mean(squared) < (0.40 if bias == 0 else 0.52)  # alone the later one has .49
    assert np.mean(squared) > 0.3


@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("d", [2, 5, 20])
def test_a_tail_drawn_to_nothing_is_as_far_off_as_stated(d: int, tau: float) -> None:
    rng = np.random.default_rng([d, int(2 * tau)])
    inner_sd, outer_sd = 0.6, 1.0
    squared, stated, raw = [], [], []
    for _ in range(2_000):
        inner, outer = inner_sd * rng.normal(size=d), outer_sd * rng.normal(size=d)
        tail = tau * rng.normal(size=d)
        asked = SplitScore(np.zeros(d), inner, inner_sd, tail + outer, outer_sd)
        both = whole(asked, True)
        squared.append(float(((both.total - tail) ** 2).mean()))
        stated.append(both.variance)
        raw.append(inner_sd**2 + outer_sd**2)
    # Where the tail is as large as its noise it is seen worst; nowhere is it worse than raw.
    assert np.mean(squared) <= 1.1 * np.mean(stated)
    assert np.mean(stated) <= (inner_sd**2 + outer_sd**2) * (1.05 if d > 2 else 1.1)
    if tau == 0:
        assert np.mean(squared) < 0.85 * np.mean(raw)


def test_both_parts_count_in_full_where_residuals_are_skewed() -> None:
    asked = SplitScore(np.zeros(D), np.ones(D), 0.5, 2 * np.ones(D), 1.0)
    both = whole(asked, False)
    assert both.total.tolist() == [3.0] * D
    assert both.variance == pytest.approx(1.25)
    assert both.lean[0] == pytest.approx(2 * (1 - D / 16))  # kappa of 16 squares with 4 of noise


def test_a_variance_near_nothing_is_known_to_half_a_normal_law() -> None:
    rng = np.random.default_rng(3)
    for d in (4, 16):
        shown = rng.normal(scale=np.sqrt(2 / d), size=200_000)
        assert omitted(d) == pytest.approx(np.abs(shown).mean(), rel=0.01)
