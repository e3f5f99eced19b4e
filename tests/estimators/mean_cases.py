"""Simulated responses for the tests of private means, and repeated fits of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpstats.design import DeclaredDesign, Design
from dpstats.holders import Curator
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Central
from dpstats.protocol import CoefficientEstimate, Plan
from dpstats.schema import Numeric, Schema

Draw = Callable[[np.random.Generator, int], Any]


@dataclass(frozen=True)
class Shape:
    """A law, its declaration, and its mean."""

    draw: Draw
    declared: Numeric
    mean: float

    def design(self, **unit: Any) -> Design:
        columns = {"y": self.declared} | ({"id": Numeric(0, 1e6)} if unit else {})
        return DeclaredDesign.from_formula("y ~ 1", Schema(columns, **unit))


def normal(rng: np.random.Generator, n: int) -> Any:
    return rng.normal(0.3, 1, n)


SHAPES = {
    "normal": Shape(normal, Numeric(-50, 50, scale=1), 0.3),
    "normal, no scale": Shape(normal, Numeric(-50, 50), 0.3),
    "narrow": Shape(lambda g, n: 17.3 + g.normal(0, 1, n), Numeric(-500, 500, scale=1), 17.3),
    "tight": Shape(normal, Numeric(-4, 5), 0.3),
    "exponential": Shape(lambda g, n: g.exponential(1, n), Numeric(0, 20, scale=1), 1.0),
    "log-normal": Shape(
        lambda g, n: np.exp(0.5 * g.normal(size=n)), Numeric(0, 50, scale=0.6), np.exp(0.125)
    ),
    "t(4)": Shape(lambda g, n: g.standard_t(4, n), Numeric(-100, 100, scale=1.4), 0.0),
    "0/1": Shape(lambda g, n: (g.uniform(size=n) < 0.1) * 1.0, Numeric(0, 1), 0.1),
    "constant": Shape(lambda g, n: np.full(n, 3.3), Numeric(0, 10), 3.3),
    "hugging a bound": Shape(
        lambda g, n: np.abs(g.normal(size=n)), Numeric(0, 100, scale=0.6), np.sqrt(2 / np.pi)
    ),
    "two groups": Shape(
        lambda g, n: np.where(g.uniform(size=n) < 0.2, 30, 0) + g.normal(size=n),
        Numeric(-50, 50),
        6.0,
    ),
}


def fit(
    method: Any, design: Design, plan: Plan, table: Any, seed: int
) -> tuple[float, float, CoefficientEstimate, Curator]:
    """Mean and its standard error in user units, with all that was released."""
    holder = Curator(design.source(table), design, plan, SeededNoise(seed))
    estimate = method.fit(holder, design, plan)
    mean, variance = design.standardization.to_user(estimate.params, estimate.cov)
    return float(mean[0]), float(np.sqrt(variance[0, 0])), estimate, holder


@dataclass(frozen=True)
class Repeated:
    """What repeated fits showed."""

    plan: Plan
    errors: Any
    se: Any

    @property
    def coverage(self) -> float:
        return float(np.mean(np.abs(self.errors) <= 1.96 * self.se))

    @property
    def rmse(self) -> float:
        return float(np.sqrt(np.mean(self.errors**2)))


@functools.cache
def repeat(
    method: Any, shape: Shape, n: int, privacy: Central, reps: int, seed: int = 0, **options: Any
) -> Repeated:
    design = shape.design()
    plan = method.plan(design, privacy, n, **options)
    errors, se = np.empty(reps), np.empty(reps)
    for r in range(reps):
        y = shape.draw(np.random.default_rng([seed, n, r]), n)
        mean, se[r], _, _ = fit(method, design, plan, {"y": y}, r)
        errors[r] = mean - shape.mean
    return Repeated(plan, errors, se)
