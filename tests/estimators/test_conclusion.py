"""The last step against brute force: the posterior of its model, integrated on a grid.

The model: a released curvature ``D + E`` with independent normal entries of known variances, a
score ``D (b* - b) + N`` at b, N normal of known covariance, nothing known of D, and a prior
``b* - start ~ N(0, f tau^2 I)`` whose factor f is unknown. Given b* the curvature integrates out:
with t = b* - b the score less ``(D + E) t`` is normal with covariance ``Cov(N) + Cov(E t)``.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstats.estimators.central.newton.conclusion import Conclusion, Solution, conclude
from dpstats.estimators.numerics.entrywise import symmetric_pattern
from tests.grids import grid

Array = NDArray[np.float64]

POINTS = {2: 81, 3: 41}
N = 10_000.0


def posterior(sol: Solution, start: Array) -> tuple[Array, Array, Array]:
    """Points of a grid (m, d), their probabilities (m,), and standard deviations (d,)."""
    d, v = sol.step.size, sol.variances
    known = sol.meat + sol.noise * np.eye(d) + sol.allowed
    inverse = np.linalg.inv(sol.bread)
    rough = inverse @ (known + 2 * np.diag(v @ sol.step**2)) @ inverse
    reach = 5.5 * np.sqrt(np.diag(rough))
    axes = [np.linspace(c - r, c + r, POINTS[d]) for c, r in zip(sol.step, reach, strict=True)]
    t = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, d)
    cov = np.einsum("ij,mi,mj->mij", v, t, t)  # of (E t)_i and (E t)_j, which share E_ij
    cov[:, range(d), range(d)] = t**2 @ v.T
    cov += known
    off = sol.bread @ sol.step - t @ sol.bread
    squares = np.einsum("mi,mi->m", off, np.linalg.solve(cov, off[..., None])[..., 0])
    log = -(np.linalg.slogdet(cov)[1] + squares) / 2
    factors = np.geomspace(0.003, 2.0, 40)
    effects = ((t + sol.at - start) ** 2).sum(axis=1)
    tau2 = sol.spread**2 / d * factors
    prior = (
        -effects[:, None] / tau2 / 2 - d / 2 * np.log(tau2) - 2 * (np.log(factors) + 1 / factors)
    )
    top = prior.max(axis=1)
    log = log + top + np.log(np.exp(prior - top[:, None]) @ factors)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    spread = np.sqrt(weight @ t**2 - (weight @ t) ** 2)
    return t + sol.at, weight, spread


def drawn(d: int, ratio: float, seed: int) -> Solution:
    """A curvature whose least eigenvalue is `ratio` times its noise, and a score."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(d, d)))
    values = N * np.geomspace(1, 0.5, d)
    curvature = (basis * values) @ basis.T
    scale = values.min() / ratio
    error = np.triu(rng.normal(size=(d, d)) / np.sqrt(2), 1)
    error = scale * (error + error.T + np.diag(rng.normal(size=d)))
    meat, noise = N / 4 * np.eye(d), N / 2
    truth, at = 0.5 * rng.normal(size=d) / np.sqrt(d), 0.15 * rng.normal(size=d) / np.sqrt(d)
    score = -curvature @ at + np.sqrt(N / 4 + noise) * rng.normal(size=d)
    bread = curvature + error
    return Solution(
        at=truth + at,
        step=np.linalg.solve(bread, score),
        bread=bread,
        variances=scale**2 * symmetric_pattern(d),
        meat=meat,
        noise=noise,
        allowed=np.zeros((d, d)),
        level=N,
        spread=1.0,
        start=np.zeros(d),
    )


def compared(d: int, ratio: float, change: float = 1.0) -> tuple[float, float, float]:
    """Rms shift in posterior sds, median ratio of sds, mean posterior mass of 95 % intervals.

    Standard errors are multiplied by `change`.
    """
    shifts, ratios, masses = [], [], []
    for seed in range(12 if d == 2 else 5):
        sol = drawn(d, ratio, seed)
        points, weight, spread = posterior(sol, sol.start)
        found: Conclusion = conclude(sol, np.eye(d), np.full(d, np.inf))
        se = change * np.sqrt(np.diag(found.cov))
        shifts.append((found.params - weight @ points) / spread)
        ratios.append(se / spread)
        masses.append(weight @ (np.abs(points - found.params) < 1.959964 * se))
    return (
        float(np.sqrt(np.mean(np.square(shifts)))),
        float(np.median(ratios)),
        float(np.mean(masses)),
    )


@pytest.mark.parametrize(
    ("d", "ratio", "shift"), grid([(2, 8, 0.2), (2, 40, 0.03), (3, 15, 0.1)], 1)
)
def test_the_last_step_is_the_posterior_of_its_model(d, ratio, shift):
    off, wide, mass = compared(d, ratio)
    assert off < shift
    assert 0.95 < wide < 1.03
    assert 0.935 < mass < 0.96
    _, _, halved = compared(d, ratio, change=0.7)
    assert halved < 0.9


@pytest.mark.parametrize("d", grid([2, 3], 1))
def test_a_faint_direction_leaves_intervals_that_hold_the_posterior(d):
    """The least eigenvalue is three noises away from nothing: somewhat less than they say."""
    _, _, mass = compared(d, 3.0)
    assert mass > 0.88
