"""Simulated regressions for the tests of OLS methods: x ~ U(-1, 1)^d, declared bounds only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpstats.design import DeclaredDesign, Design
from dpstats.holders import Curator
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Central
from dpstats.protocol import Plan

SD = 0.5
NORM = math.sqrt(3)
Y_BOUND = 3.5
DELTA = 1e-6


def design(d: int, y_bound: float = Y_BOUND) -> Design:
    return DeclaredDesign.from_arrays(d, {"exog": (-1.0, 1.0), "endog": (-y_bound, y_bound)})


def rows(rng: Any, n: int, d: int, sd: float = SD, norm: float = NORM) -> tuple[Any, Any, Any]:
    """Covariates, response and the coefficients behind them."""
    x = rng.uniform(-1, 1, (n, d))
    beta = rng.normal(size=d)
    beta *= norm / np.linalg.norm(beta)
    return x, np.clip(x @ beta + sd * rng.normal(size=n), -Y_BOUND, Y_BOUND), beta


def fit(method: Any, x: Any, y: Any, plan: Plan, seed: int, shape: Design) -> tuple[Any, Any, Any]:
    """Coefficients and covariance in user units, and the holder."""
    holder = Curator(shape.source((y, x)), shape, plan, SeededNoise(seed))
    estimate = method.fit(holder, shape, plan)
    params, cov = shape.standardization.to_user(estimate.params, estimate.cov)
    return params, cov, (estimate, holder)


@dataclass(frozen=True)
class Cell:
    """What repeated fits showed: relative errors, z-scores and standard errors."""

    plan: Plan
    errors: Any
    z: Any
    se: Any

    @property
    def coverage(self) -> float:
        return float(np.mean(np.abs(self.z) < 1.96))

    @property
    def rmse(self) -> float:
        """Root mean squared error of a coefficient."""
        return float(np.sqrt(np.mean((self.z * self.se) ** 2)))

    @property
    def prediction(self) -> float:
        """Predicted over measured standard error: columns are uniform, as at the lower end."""
        assert all(unit.startswith("/sd(") for unit in self.plan.predicted_units)
        least = np.mean([low for low, _ in self.plan.predicted_range])
        return float(least) * math.sqrt(12) / 2 / self.rmse  # over the sd of U(-1, 1)


def simulate(
    method: Any,
    d: int,
    n: int,
    epsilon: float,
    reps: int,
    seed: int,
    sd: float = SD,
    norm: float = NORM,
    y_bound: float = Y_BOUND,
    **options: Any,
) -> Cell:
    """Fit `reps` data sets with independent noise."""
    rng = np.random.default_rng(seed)
    shape = design(d, y_bound)
    plan = method.plan(shape, Central(epsilon, DELTA), n, **options)
    errors, z, se = [], [], []
    for r in range(reps):
        x, y, beta = rows(rng, n, d, sd, norm)
        params, cov, _ = fit(method, x, y, plan, 10_000 * seed + r, shape)
        se.append(np.sqrt(np.diag(cov)))
        errors.append(np.linalg.norm(params - beta) / norm)
        z.append((params - beta) / se[-1])
    return Cell(plan, np.array(errors), np.array(z), np.array(se))


def ran_as_planned(holder: Curator, plan: Plan) -> bool:
    """Whether every mechanism ran, once for each part, at its planned cost, and nothing else."""
    planned = [(m.slot, part, m.event) for m in plan.mechanisms for part in range(m.parts)]
    ran = [(r.slot, r.part, r.event) for r in holder.transcript]
    return sorted(planned, key=repr) == sorted(ran, key=repr)
