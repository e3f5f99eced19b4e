"""Mixtures of regressions that tests draw rows of, and fits of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

import dpstats as dp
from dpstats.families.mixtures import RegressionMixture

PAIR = RegressionMixture(
    np.array([0.65, 0.35]), np.array([[0.5, -0.4, 0.8], [0.5, 1.0, -0.6]]), 0.5
)
SCHEMA = dp.Schema(
    a=dp.Numeric(-1.75, 1.75, center=0, scale=1),
    b=dp.Numeric(-1.75, 1.75, center=0, scale=1),
    y=dp.Numeric(-8, 8, center=0, scale=1.5),
)


def rows(
    n: int, seed: int, mixture: RegressionMixture = PAIR, errors: str = "normal"
) -> pd.DataFrame:
    """Rows of a mixture; errors have the variance of sigma."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-np.sqrt(3), np.sqrt(3), (n, mixture.coef.shape[1] - 1))
    coef = mixture.coef[rng.choice(mixture.k, n, p=mixture.weights)]
    e = rng.normal(size=n) if errors == "normal" else rng.standard_t(4, n) / np.sqrt(2)
    y = coef[:, 0] + np.einsum("np,np->n", x, coef[:, 1:]) + mixture.sigma * e
    return pd.DataFrame(x, columns=["a", "b"][: x.shape[1]]).assign(y=y)


def fitted(
    data: Any, seed: int, epsilon: float = 1.0, k: int = 2, formula: str = "y ~ a + b", **kind: Any
) -> Any:
    model = dp.mixture_ols(formula, data, kind.get("schema", SCHEMA), components=k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.errors.FeasibilityWarning)
        return model.fit(dp.Central(epsilon, 1e-6), noise=dp.SeededNoise(seed))


def distances(fit: Any, mixture: RegressionMixture) -> Any:
    """Errors of weights, coefficients and sigma over their standard errors.

    Components are paired by their coefficients.
    """
    from scipy.optimize import linear_sum_assignment

    e = fit.estimate
    squares = ((mixture.coef[:, None] - e.coef) ** 2).sum(axis=2)
    order = linear_sum_assignment(squares)[1]
    errors = np.sqrt(np.diag(e.cov))
    found = np.column_stack([e.weights, e.coef])[order]
    true = np.column_stack([mixture.weights, mixture.coef])
    own = errors[:-1].reshape(found.shape)[order]
    own[own == 0] = 1.0  # the weight of the only component
    return np.append((found - true) / own, (e.sigma - mixture.sigma) / errors[-1])
