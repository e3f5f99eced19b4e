"""Scores asked at several places, as one: closed forms and the law of the noise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstats.estimators.central.newton.parts import Placed, Whole, joined

Array = NDArray[np.float64]
D = 4
BREAD = np.diag([3.0, 5.0, 8.0, 4.0]) + 0.5
ROOT = np.array([0.3, -0.2, 0.1, 0.5])
EARLIER, LATER = np.array([0.5, 0.0, 0.0, 0.2]), np.array([0.2, -0.1, 0.2, 0.4])


def placed(at: Array, noise: Array, sd: float, bias: float = 0.0) -> Placed:
    lean = np.full(D, 7.0)
    return Placed(at, Whole(BREAD @ (ROOT - at) + bias + sd * noise, sd**2, lean))


def test_without_noise_the_root_is_found_and_the_lean_is_the_later_ones() -> None:
    zero = np.zeros(D)
    both = joined(placed(EARLIER, zero, 1.0), placed(LATER, zero, 0.5), BREAD)
    np.testing.assert_allclose(both.at + np.linalg.solve(BREAD, both.score.total), ROOT)
    assert both.score.variance == pytest.approx(1 / (1 / 1.0 + 1 / 0.25))  # by precision
    assert both.score.lean[0] == 7.0


@pytest.mark.parametrize("bias", [0.0, 30.0])
def test_errors_are_as_large_as_the_stated_variance(bias: float) -> None:
    rng = np.random.default_rng(0)
    squared, stated = [], []
    for _ in range(3_000):
        earlier, later = rng.normal(size=(2, D))
        both = joined(placed(EARLIER, earlier, 1.0, bias), placed(LATER, later, 0.7), BREAD)
        error = both.score.total - BREAD @ (ROOT - both.at)  # what is not the score there
        squared.append(float(error @ error) / D)
        stated.append(both.score.variance)
    # The relative standard error of a mean of 12,000 squares is 1.3 %. Where weights are
    # estimated from the disagreement the variance is a little larger than stated.
    assert np.mean(squared) == pytest.approx(np.mean(stated), rel=0.15)
    assert np.mean(squared) < (0.40 if bias == 0 else 0.52)  # alone the later one has .49
    assert np.mean(squared) > 0.3
