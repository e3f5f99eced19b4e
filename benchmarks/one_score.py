"""What a single noisy score would err by: a bound for least squares at little budget.

    uv run python -m benchmarks.one_score

Gaussian rows and errors of variance 1, columns standardised, an intercept, rounds of K sites: a
curator at mu / sqrt(K). *One score*: coefficients are known well enough for one Newton step by a
score with all of the budget, second moments exactly, rows have norm sqrt(d) and residuals are
clipped at the best c; then ``n P(|r| < c) (b - beta) ~ N(0, (n E clip(r)^2 + (2 sqrt(d) c /
mu)^2) I)``. It uses what no private method has. *Sufficient statistics*: second moments of columns
and response by one Gaussian mechanism, and a ridge as large as its noise (simulated).
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks.common import DELTA, Array, arguments, coefficients, show, summarise
from dpstats.accounting import gdp_mu
from dpstats.estimators.numerics.huber import clipped_square, unclipped

# Columns, rows of all sites, sites, epsilon, and the error once measured for rounds.
SETTINGS = [(5, 12_000, 40, 1.0, 0.055), (20, 40_000, 20, 0.5, 0.073)]


def one_score(d: int, n: int, mu: float) -> tuple[float, float]:
    """Root mean square error at the best clip, and that clip."""
    clips = np.geomspace(0.02, 3, 200)
    squares = np.array([float(clipped_square(c)) for c in clips])
    kept = np.array([float(unclipped(c)) for c in clips])
    errors = np.sqrt(d * (n * squares + (2 * math.sqrt(d) * clips / mu) ** 2)) / (n * kept)
    best = int(np.argmin(errors))
    return float(errors[best]), float(clips[best])


def sufficient_statistics(x: Array, y: Array, mu: float, rng: np.random.Generator) -> Array:
    """Least squares on noisy second moments; rows of (x, y / sd) are clipped at sqrt(d + 1)."""
    unit, d = math.sqrt(2.0), x.shape[1]
    rows = np.column_stack([x, y / unit])
    radius = math.sqrt(d + 1)
    rows = rows * np.minimum(1, radius / np.linalg.norm(rows, axis=1))[:, None]
    sd = math.sqrt(2) * radius**2 / mu
    noise = np.triu(rng.normal(0, sd, (d + 1, d + 1)))
    noise = (noise + noise.T) / math.sqrt(2) - (math.sqrt(2) - 1) * np.diag(np.diag(noise))
    total = rows.T @ rows + noise
    values, vectors = np.linalg.eigh(total[:d, :d])
    inverse = (vectors / (np.maximum(values, 0) + sd * math.sqrt(d) / 2)) @ vectors.T
    found: Array = unit * inverse @ total[:d, d]
    return found


def main() -> None:
    """Both settings."""
    a = arguments(__doc__ or "", reps=20)
    rows = []
    for d, n, sites, epsilon, asked in SETTINGS:
        mu = gdp_mu(epsilon, DELTA) / math.sqrt(sites)
        bound, clip = one_score(d + 1, n, mu)
        errors = []
        for r in range(a.reps):
            rng = np.random.default_rng([a.seed, d, r])
            beta = np.r_[0.0, coefficients(d, rng, 1.0)]
            x = np.column_stack([np.ones(n), rng.standard_normal((n, d))])
            y = x @ beta + rng.standard_normal(n)
            errors.append(float(np.linalg.norm(sufficient_statistics(x, y, mu, rng) - beta)))
        rows.append(
            {
                "d": d,
                "n": n,
                "mu n": round(mu * n),
                "one score": f"{bound:.3f}",
                "clip": f"{clip:.2f}",
                "budget for it": f"{share(d + 1, n, mu, asked):.2f}",
                "asked": asked,
                "sufficient statistics": summarise(errors),
            }
        )
    show("One score with all the budget", rows, "Budget: the share of it that errs as asked.")


def share(d: int, n: int, mu: float, error: float) -> float:
    """Part of the budget with which one score errs by so much."""
    low, high = 1e-3, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        enough = one_score(d, n, mu * math.sqrt(middle))[0] <= error
        low, high = (low, middle) if enough else (middle, high)
    return high


if __name__ == "__main__":
    main()
