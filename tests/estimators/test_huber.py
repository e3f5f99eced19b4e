"""Moments of clipped normal residuals, and the clip that pays for its noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

from dpstats.estimators.numerics.huber import (
    NORMAL_QUANTILE,
    clipped_square,
    efficient_clip,
    score_variance,
    unclipped,
)

CLIPS = [0.1, 0.5, 1.345, 3.0, 8.0]
NOISES = [0.0, 1e-4, 0.01, 0.1, 1.0, 10.0, 1e3]


def density(z: float) -> float:
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("c", CLIPS)
def test_moments_equal_their_integrals(c: float) -> None:
    assert unclipped(c) == pytest.approx(quad(density, -c, c)[0], abs=1e-10)
    inner = quad(lambda z: z * z * density(z), -c, c)[0]
    outer = c * c * 2 * quad(density, c, math.inf)[0]
    assert clipped_square(c) == pytest.approx(inner + outer, abs=1e-9)


@pytest.mark.parametrize("c", CLIPS)
def test_the_variance_is_that_of_a_one_step_m_estimator(c: float) -> None:
    # Without noise: Huber's asymptotic variance of a location estimate, by simulation (se 0.6 %).
    draws = np.random.default_rng(1).normal(size=200_000)
    psi, kept = np.clip(draws, -c, c), np.mean(np.abs(draws) < c)
    assert score_variance(c, 0.0) == pytest.approx(np.mean(psi**2) / kept**2, rel=0.03)
    assert score_variance(c, 0.5) == pytest.approx(
        (np.mean(psi**2) + 0.5 * c**2) / kept**2, rel=0.03
    )


def test_the_quantile_is_that_of_the_normal_law() -> None:
    for share, quantile in NORMAL_QUANTILE.items():
        assert unclipped(quantile) == pytest.approx(share, abs=1e-12)


def test_more_noise_asks_for_a_smaller_clip() -> None:
    chosen = [efficient_clip(k) for k in NOISES]
    assert chosen == sorted(chosen, reverse=True)
    assert chosen[0] == pytest.approx(30.0)  # without noise nothing need be clipped
    assert chosen[-1] < 0.9


@pytest.mark.parametrize("k", NOISES)
def test_the_chosen_clip_is_the_largest_that_is_nearly_the_best(k: float) -> None:
    best = min(float(score_variance(c, k)) for c in np.geomspace(0.5, 30, 2000))
    chosen = efficient_clip(k)
    assert score_variance(chosen, k) <= 1.031 * best
    if chosen < 29:
        assert score_variance(1.02 * chosen, k) > 1.03 * best
