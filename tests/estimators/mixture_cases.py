"""Mixtures of normal laws that tests draw rows of, and fits of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

import dpstats as dp
from dpstats.families.mixtures import NormalMixture

PLANE = NormalMixture(
    np.array([0.5, 0.3, 0.2]),
    np.array([[0.0, 0.0], [3.2, 1.0], [-1.0, 4.0]]),
    np.array([[[1.0, 0.4], [0.4, 0.8]], [[0.6, -0.2], [-0.2, 1.0]], [[1.0, 0.0], [0.0, 0.5]]]),
)
APART = NormalMixture(
    np.array([0.6, 0.4]), np.array([[2.0, -1.0], [-2.0, 2.0]]), np.stack([np.eye(2)] * 2)
)
SCHEMA = dp.Schema(a=dp.Numeric(-10, 10), b=dp.Numeric(-10, 10))


def rows(mixture: NormalMixture, n: int, seed: int, errors: str = "normal") -> pd.DataFrame:
    """Rows of a mixture, or of one whose errors are uniform or have long tails."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(mixture.k, n, p=mixture.weights)
    e = rng.normal(size=(n, mixture.d))
    if errors == "t":
        e /= np.sqrt(rng.chisquare(4, n) / 4)[:, None]
    if errors == "uniform":
        e = rng.uniform(-np.sqrt(3), np.sqrt(3), (n, mixture.d))
    x = mixture.means[chosen] + np.einsum("nij,nj->ni", mixture.roots[chosen], e)
    return pd.DataFrame(x, columns=["a", "b"])


def fitted(
    data: Any, seed: int, epsilon: float = 1.0, k: Any = 3, schema: Any = SCHEMA, **options: Any
) -> Any:
    model = dp.gaussian_mixture("~ a + b", data, schema, components=k, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.errors.FeasibilityWarning)
        return model.fit(dp.Central(epsilon, 1e-6), noise=dp.SeededNoise(seed))


def distances(fit: Any, mixture: NormalMixture) -> Any:
    """Errors of weights, means and standard deviations over their standard errors, (k, 1 + 2 d).

    Components are paired by their means.
    """
    from scipy.optimize import linear_sum_assignment

    e = fit.estimate
    order = linear_sum_assignment(((mixture.means[:, None] - e.means) ** 2).sum(axis=2))[1]
    found = np.column_stack([e.weights, e.means, [np.sqrt(np.diag(c)) for c in e.covariances]])
    true = np.column_stack(
        [mixture.weights, mixture.means, [np.sqrt(np.diag(c)) for c in mixture.covariances]]
    )
    errors = np.sqrt(np.diag(e.cov)).reshape(found.shape)
    return (found[order] - true) / errors[order]
