"""Symmetric mixtures that tests draw rows of, and fits of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

import dpstats as dp

SIGMA = 0.5


def names(d: int) -> list[str]:
    return [f"x{j}" for j in range(d)]


def rows(n: int, beta: Any, seed: int, errors: str = "normal") -> pd.DataFrame:
    """z b + sigma e, with e of variance 1: normal, uniform, or of unequal sizes."""
    rng = np.random.default_rng(seed)
    d = len(beta)
    e = rng.normal(size=(n, d))
    if errors == "uniform":
        e = rng.uniform(-np.sqrt(3), np.sqrt(3), (n, d))
    if errors == "unequal":
        e *= np.linspace(0.7, 1.3, d)
    signs = rng.choice([-1.0, 1.0], n)
    return pd.DataFrame(signs[:, None] * beta + SIGMA * e, columns=names(d))


def lines(n: int, beta: Any, seed: int, gaps: float = 0.0, signed: bool = True) -> pd.DataFrame:
    """y = z x'b + sigma e with standard normal covariates, some of them missing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, len(beta)))
    signs = rng.choice([-1.0, 1.0], n) if signed else np.ones(n)
    data = pd.DataFrame(x, columns=names(len(beta)))
    data["y"] = signs * (x @ beta) + SIGMA * rng.normal(size=n)
    if gaps:
        data[names(len(beta))] = np.where(rng.uniform(size=x.shape) < gaps, np.nan, x)
    return data


def unit(d: int, s: int | None = None) -> Any:
    """A vector of length 1 whose first s entries are alike and the others 0."""
    s = d if s is None else s
    return np.r_[np.full(s, 1 / np.sqrt(s)), np.zeros(d - s)]


def of_rows(data: Any, d: int) -> Any:
    schema = dp.Schema({name: dp.Numeric(-5, 5) for name in names(d)})
    return dp.gaussian_mixture("~ .", data, schema, symmetric=True, n=None if len(data) else 100)


def formula(d: int) -> str:
    return "y ~ 0 + " + " + ".join(names(d))


def schema_of_lines(d: int) -> Any:
    columns = {name: dp.Numeric(-6, 6, scale=1) for name in names(d)}
    return dp.Schema({**columns, "y": dp.Numeric(-8, 8, scale=1)})


def of_lines(data: Any, d: int) -> Any:
    return dp.mixture_ols(formula(d), data, schema_of_lines(d), symmetric=True)


def fitted(model: Any, epsilon: float, seed: int, delta: float = 1e-5, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.errors.FeasibilityWarning)
        return model.fit(dp.Central(epsilon, delta), noise=dp.SeededNoise(seed), **options)


def error(fit: Any, beta: Any) -> float:
    """Distance to b or -b."""
    found = fit.beta.to_numpy()
    return float(min(np.linalg.norm(found - beta), np.linalg.norm(found + beta)))
