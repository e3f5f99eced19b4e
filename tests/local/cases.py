"""Designs, columns and responses of the settings that local methods are measured in."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpstats.design import DeclaredDesign, Design
from dpstats.schema import Numeric, Schema

NOISE = 0.5  # sd of the errors of `sparse_data`


def design(d: int, scale: float, bound: float = 6.0) -> Design:
    """Intercept and d columns of declared centre 0 and scale 1; the response's scale is `scale`."""
    columns = {f"x{j}": Numeric(-bound, bound, center=0, scale=1) for j in range(d)}
    schema = Schema({**columns, "y": Numeric(-20, 20, center=0, scale=scale)})
    return DeclaredDesign.from_formula("y ~ " + " + ".join(columns), schema)


def columns(kind: str, n: int, d: int, rng: Any) -> np.ndarray:
    """Rows (n, d + 1) with an intercept; columns have mean 0 and variance 1."""
    x = rng.normal(size=(n, d))
    if kind == "autoregressive":
        for j in range(1, d):
            x[:, j] = 0.5 * x[:, j - 1] + np.sqrt(0.75) * x[:, j]
    elif kind == "uniform":
        x = rng.uniform(-np.sqrt(3), np.sqrt(3), (n, d))
    elif kind == "signs":
        x = rng.choice([-1.0, 1.0], (n, d))
    return np.column_stack([np.ones(n), x])


def coefficients(d: int, k: int, rng: Any, norm: float = 1.0, order: int = 1) -> np.ndarray:
    """k of d coefficients of alike size and random sign, of this l_order norm; intercept 0."""
    theta = np.zeros(d + 1)
    chosen = 1 + rng.choice(d, k, replace=False)
    theta[chosen] = rng.choice([-1, 1], k) * rng.uniform(0.5, 1, k)
    return norm * theta / np.linalg.norm(theta, order)


def error(params: np.ndarray, truth: np.ndarray) -> float:
    """Relative l2 error; 1 for the zero estimator."""
    return float(np.linalg.norm(params - truth) / np.linalg.norm(truth))
