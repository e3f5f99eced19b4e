"""Designs and error laws for the tests of the default OLS: arrays, their bounds, the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpstats.design import DeclaredDesign, Design
from dpstats.estimators.central.newton.newton import Newton
from dpstats.privacy import Central
from dpstats.protocol import Plan
from tests.estimators.ols_cases import DELTA, Cell, fit

Array = Any


@dataclass(frozen=True)
class Setting:
    """How rows are drawn: columns, their public bounds, and residuals given the columns."""

    columns: Callable[[Any, int], Array]
    bounds: Any
    beta: Array
    y_bounds: tuple[float, float] = (-4.0, 4.0)
    residuals: Callable[[Any, Array], Array] = lambda rng, x: 0.5 * rng.normal(size=len(x))

    @property
    def design(self) -> Design:
        return DeclaredDesign.from_arrays(
            len(self.beta), {"exog": self.bounds, "endog": self.y_bounds}
        )

    def rows(self, rng: Any, n: int) -> tuple[Array, Array]:
        x = self.columns(rng, n)
        return x, np.clip(x @ self.beta + self.residuals(rng, x), *self.y_bounds)

    def plan(self, n: int, epsilon: float, **options: Any) -> Plan:
        return robust_plan(self.design, Central(epsilon, DELTA), n, **options)

    def simulate(self, n: int, epsilon: float, reps: int, seed: int, **options: Any) -> Cell:
        """Fit `reps` data sets with independent noise; z-scores are for `beta`."""
        rng = np.random.default_rng(seed)
        plan, shape = self.plan(n, epsilon, **options), self.design
        errors, z, se = [], [], []
        for r in range(reps):
            x, y = self.rows(rng, n)
            params, cov, _ = fit(Newton("ols"), x, y, plan, 10_000 * seed + r, shape)
            se.append(np.sqrt(np.diag(cov)))
            errors.append(np.linalg.norm(params - self.beta) / np.linalg.norm(self.beta))
            z.append((params - self.beta) / se[-1])
        return Cell(plan, np.array(errors), np.array(z), np.array(se))


def robust_plan(
    design: Design, privacy: Central, n: int, model: str = "ols", **options: Any
) -> Plan:
    """Of a bounded-influence regression."""
    return Newton(model).plan(design, privacy, n, target="robust", **options)


def least_squares(x: Array, y: Array) -> tuple[Array, Array]:
    """Coefficients and HC1 standard errors, by hand."""
    bread = np.linalg.inv(x.T @ x)
    ols = bread @ x.T @ y
    scores = x * (y - x @ ols)[:, None]
    cov = bread @ (scores.T @ scores) @ bread * len(x) / (len(x) - x.shape[1])
    return ols, np.sqrt(np.diag(cov))


def uniform(rng: Any, n: int) -> Array:
    return rng.uniform(-1, 1, (n, 4))


def gaussian(rng: Any, n: int) -> Array:
    return np.clip(rng.normal(size=(n, 4)), -4, 4)


def factors(rng: Any, n: int) -> Array:
    """An intercept, two numeric columns and two levels of a factor with three."""
    level = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    numeric = rng.uniform([0, 20], [1, 60], (n, 2))
    return np.column_stack([np.ones(n), numeric, level == 1, level == 2]).astype(float)


FACTORS = [(1, 1), (0, 1), (20, 60), (0, 1), (0, 1)]
_ROTATION = np.linalg.qr(np.random.default_rng(99).normal(size=(4, 4)))[0]
_SCALES = np.geomspace(1, 0.1, 4)


def conditioned(rng: Any, n: int) -> Array:
    """Columns whose second moments have condition number 100, in a rotated basis."""
    return rng.uniform(-1, 1, (n, 4)) * _SCALES @ _ROTATION / 2


def student(rng: Any, x: Array) -> Array:
    return 0.5 * rng.standard_t(4, len(x)) / math.sqrt(2)


def uneven(rng: Any, x: Array) -> Array:
    """Heteroskedastic: variances more than triple from the middle of the first column outwards."""
    return rng.normal(size=len(x)) * (0.35 + 0.3 * np.abs(x[:, 0]))


SLOPES = np.array([1.0, -0.8, 0.6, 0.5])
# Half of the signal in the direction with the least spread.
STEEP = _ROTATION @ (SLOPES / _SCALES)

UNIFORM = Setting(uniform, (-1, 1), SLOPES)
SETTINGS = {
    "uniform": UNIFORM,
    "gaussian": Setting(gaussian, (-4, 4), SLOPES / 2),
    "intercept and levels": Setting(
        factors, FACTORS, np.array([1.0, 0.5, 0.02, -0.5, 0.3]), (-2.0, 5.0)
    ),
    "condition 100": Setting(conditioned, (-1, 1), STEEP),
    "heteroskedastic": Setting(uniform, (-1, 1), SLOPES, residuals=uneven),
    "t(4)": Setting(uniform, (-1, 1), SLOPES, (-8.0, 8.0), student),
}


def mean_of_counts(x: Array) -> Array:
    return x @ COUNTS_BETA


def poisson(rng: Any, x: Array) -> Array:
    mean = mean_of_counts(x)
    return rng.poisson(mean) - mean


def negative_binomial(rng: Any, x: Array) -> Array:
    """Overdispersed counts, size 1: a variance of mean + mean^2, a third of them zero."""
    mean = mean_of_counts(x)
    return rng.poisson(mean * rng.exponential(size=len(x))) - mean


def count_columns(rng: Any, n: int) -> Array:
    return np.column_stack([np.ones(n), rng.uniform(0, 1, (n, 2)), rng.random(n) < 0.4])


COUNTS_BETA = np.array([1.0, 1.5, -0.5, 0.8])
COUNT_BOUNDS = [(1, 1), (0, 1), (0, 1), (0, 1)]
COUNTS = {
    "poisson": Setting(count_columns, COUNT_BOUNDS, COUNTS_BETA, (0.0, 40.0), poisson),
    "negative binomial": Setting(
        count_columns, COUNT_BOUNDS, COUNTS_BETA, (0.0, 60.0), negative_binomial
    ),
}
