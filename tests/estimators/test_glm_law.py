"""What the model expects of clipped scores, against sums over responses and simulated rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpstats.estimators.central.newton.robust.glm_law import (
    NormalPredictor,
    Tuning,
    WeightedNormalRows,
    dispersion,
    residual_quantile,
    tune,
)
from dpstats.families import BINOMIAL, POISSON, Family
from dpstats.families.damped import DampedFamily

ETA = np.array([-1.0, 0.3, 2.0])
COUNTS = np.arange(1500.0)


@pytest.mark.parametrize("spread", [0.0, 0.7, 4.0])
@pytest.mark.parametrize("clip", [0.4, 1.3, 5.0])
@pytest.mark.parametrize(
    "family",
    [DampedFamily("poisson", "log", 1.5), DampedFamily("poisson", "identity", 0.5)],
    ids=str,
)
def test_moments_of_counts_are_sums_over_the_counts(
    family: DampedFamily, clip: float, spread: float
) -> None:
    def law(mu: float) -> Any:
        if spread == 0:
            return stats.poisson.pmf(COUNTS, mu)
        return stats.nbinom.pmf(COUNTS, 1 / spread, 1 / (1 + spread * mu))

    found = Tuning(family, clip, spread).moments(ETA)
    for j, eta in enumerate(ETA):
        mu, factor = family.mean(ETA)[j], family.factor(ETA)[j]
        p = law(mu)
        psi = np.clip(factor * (COUNTS - mu), -clip, clip)
        assert found.bias[j] == pytest.approx(p @ psi, abs=1e-12)
        assert found.square[j] == pytest.approx(p @ psi**2)
        h = 1e-5 * mu
        moved = [law(mu + s) @ psi for s in (h, -h)]
        assert found.slope[j] == pytest.approx((moved[0] - moved[1]) / (2 * h), rel=1e-4), eta


def test_a_binomial_score_is_never_clipped() -> None:
    family = DampedFamily("binomial", "logit", 0.5)
    mu, factor = family.mean(ETA), family.factor(ETA)
    found = Tuning(family, 1.0).moments(ETA)
    assert found.bias == pytest.approx(np.zeros(3), abs=1e-12)
    assert found.slope == pytest.approx(factor)
    assert found.square == pytest.approx(factor**2 * mu * (1 - mu))


@pytest.mark.parametrize(
    "tuning",
    [
        Tuning(DampedFamily("binomial", "logit", 0.6), 1.0),
        Tuning(DampedFamily("poisson", "log", 1.5), 3.0),
    ],
    ids=lambda t: t.family.name,
)
def test_expectations_over_normal_rows_are_those_of_simulated_ones(tuning: Tuning) -> None:
    # 10^6 rows, five standard errors.
    rng = np.random.default_rng(0)
    root = np.array([[1.0, 0, 0], [0.3, 0.8, 0], [-0.2, 0.1, 0.6]])
    centre = np.array([0.5, 0.0, -0.3])
    z = centre + rng.normal(size=(1_000_000, 3)) @ root.T
    b, truth = np.array([0.4, -0.3, 0.5]), np.array([0.5, 0.2, 0.1])
    rows = WeightedNormalRows(centre, root @ root.T, 1.0)
    vector, matrix = rows.expected(b, truth, tuning)
    at, then = z @ b, z @ truth
    family, m = tuning.family, tuning.moments(at)
    psi = m.bias + m.slope * (family.mean(then) - family.mean(at))
    each = z * psi[:, None]
    assert np.all(np.abs(each.mean(0) - vector) < 5 * each.std(0) / 1000)
    slope = m.slope * family.slope(then)
    simulated = (z * slope[:, None]).T @ z / len(z)
    assert simulated == pytest.approx(matrix, abs=0.01 * np.trace(matrix))
    # The Jacobian is the derivative.
    moved = rows.expected(b, truth + 1e-5 * np.eye(3)[1], tuning)[0]
    assert (moved - vector) / 1e-5 == pytest.approx(matrix[:, 1], rel=1e-3, abs=1e-5)


def test_noise_asks_for_damping_and_tighter_clips() -> None:
    law = NormalPredictor(1.0, 0.5)
    quiet, loud = (tune(POISSON, law, k, 0.0, 1e4) for k in (1e-3, 10.0))
    assert loud.clip < quiet.clip
    assert loud.family.level <= quiet.family.level
    quiet, loud = (tune(BINOMIAL, NormalPredictor(0.0, 1.0), k, 0.0, 1e4) for k in (1e-4, 10.0))
    assert (quiet.family.level, loud.family.level) == (1.0, 0.5)


def test_damping_nearly_halves_the_noise_of_a_private_logistic_regression() -> None:
    law, noise = NormalPredictor(0.0, 1.0), 100.0

    def variance(level: float) -> float:
        tuning = Tuning(DampedFamily("binomial", "logit", level), 1.0)
        m = tuning.moments(law.eta)
        slope = law.average(m.slope * BINOMIAL.slope(law.eta))
        return float((law.average(m.square) + noise) / slope**2)

    assert np.sqrt(variance(0.5) / variance(1.0)) == pytest.approx(0.6, abs=0.05)


def test_quantiles_are_those_of_the_model() -> None:
    rng = np.random.default_rng(1)
    eta = 0.5 + 0.4 * rng.normal(size=400_000)
    counts = np.abs(rng.poisson(np.exp(eta)) - np.exp(eta))
    found = residual_quantile(POISSON, NormalPredictor(0.5, 0.4), 0.9, 0.0)
    assert np.mean(counts <= found) == pytest.approx(0.9, abs=0.01)
    normal = Family("gaussian", "log")
    residual = np.abs(np.exp(eta) * 0.7 * rng.normal(size=eta.size))
    assert np.mean(
        residual <= residual_quantile(normal, NormalPredictor(0.5, 0.4), 0.7, 0.7)
    ) == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 3.0])
def test_dispersion_is_that_of_negative_binomial_counts(alpha: float) -> None:
    rng, law, clip = np.random.default_rng(2), NormalPredictor(0.5, 0.4), 5.0
    mu = np.exp(law.mean + law.sd * rng.normal(size=400_000))
    counts = rng.poisson(mu * rng.gamma(1 / alpha, alpha, mu.size))
    square = np.mean(np.clip(counts - mu, -clip, clip) ** 2)
    assert dispersion(POISSON, law, clip, square) == pytest.approx(alpha, rel=0.05, abs=0.01)
    assert dispersion(POISSON, law, clip, 0.5) == 0.0
