"""Tables with public covariates, and fits of them without the front door."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dpstats.accounting import Event
from dpstats.design import PublicDesign
from dpstats.families import BINOMIAL, GAUSSIAN, POISSON, Family
from dpstats.holders import Labels
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import LabelOnly
from dpstats.protocol import CoefficientEstimate, Plan
from dpstats.protocol.estimate import ParameterTable
from dpstats.schema import Categorical, Numeric, Schema

FORMULA = "y ~ x1 + x2 + g"
TRUTH = {"ols": [1.0, 0.7, -0.2, 0.5, 0.0], "logit": [-0.5, 1.0, -0.2, 0.5, 0.0]}
TRUTH["glm"] = [0.25, 0.5, -0.1, 0.25, 0.0]
FAMILIES: dict[str, Family] = {"ols": GAUSSIAN, "logit": BINOMIAL, "glm": POISSON}
SCHEMAS = {
    "ols": Schema(y=Numeric(-12, 12)),
    "logit": Schema(y=Categorical([0, 1])),
    "glm": Schema(y=Numeric(0, 15)),
}
SCALED = Schema(y=Numeric(-30, 30, center=0, scale=1.5))


def exact_sums(query: Any, v: Any, event: Event) -> tuple[Any, float]:
    """Exact answer of a query to held responses, and its sensitivity in the event's norm."""
    if event.kind == "laplace" and query.norm == "l2":
        query = replace(query, norm="l1")
    return query.total(v), query.sensitivity()


def table(n: int, seed: int, model: str = "ols") -> pd.DataFrame:
    """Rows of the model with coefficients `TRUTH`; errors of a linear model vary with x1."""
    rng = np.random.default_rng([7, seed])
    x1, x2 = rng.normal(size=n), rng.uniform(-3, 3, n)
    g = rng.choice(list("abc"), n)
    b = TRUTH[model]
    eta = b[0] + b[1] * x1 + b[2] * x2 + b[3] * (g == "b")
    y = {
        "ols": lambda: eta + (1 + 0.3 * np.abs(x1)) * rng.normal(size=n),
        "logit": lambda: (rng.uniform(size=n) < 1 / (1 + np.exp(-eta))).astype(float),
        "glm": lambda: rng.poisson(np.exp(eta)).astype(float),
    }[model]()
    return pd.DataFrame({"y": y, "x1": x1, "x2": x2, "g": g})


def design(data: Any, model: str = "ols", schema: Schema | None = None) -> PublicDesign:
    return PublicDesign.of_table(
        FORMULA, SCHEMAS[model] if schema is None else schema, data, FAMILIES[model]
    )


def fit(
    method: Any, made: PublicDesign, data: Any, privacy: LabelOnly, seed: int, **options: Any
) -> tuple[Plan, CoefficientEstimate]:
    plan = method.plan(made, privacy, len(made.rows), **options)
    holder = Labels(made.source(data), made, plan, SeededNoise(seed))
    return plan, method.fit(holder, made, plan)


def user(made: PublicDesign, estimate: CoefficientEstimate) -> ParameterTable:
    return estimate.table(made)


def errors(method: Any, model: str, n: int, privacy: LabelOnly, reps: int, schema: Any = None):
    """Errors over standard errors, errors, and standard errors, of shape (reps, d)."""
    found = []
    for seed in range(reps):
        data = table(n, seed, model)
        made = design(data, model, schema)
        plan, estimate = fit(method, made, data, privacy, seed)
        units = user(made, estimate)
        found.append((units.values - TRUTH[model], np.sqrt(np.diag(units.cov))))
    error, se = (np.array(part) for part in zip(*found, strict=True))
    return error / se, error, se, plan


def rademacher(n: int, p: int, s: int, seed: int, bound: float = 5.0) -> tuple[Any, ...]:
    """Paper 004's design: x of signs, coefficients U(0, 1) of norm 1, errors U(-.05, .05)."""
    rng = np.random.default_rng([77, seed])
    x = 2.0 * rng.integers(0, 2, (n, p), dtype=np.int8) - 1.0
    truth = np.zeros(p)
    truth[rng.choice(p, s, replace=False)] = rng.uniform(0, 1, s)
    truth /= np.linalg.norm(truth)
    y = x @ truth + rng.uniform(-0.05, 0.05, n)
    made = PublicDesign.of_arrays(x, (-bound, bound))
    assert made.endog is not None
    return x, y, truth, replace(made, endog=replace(made.endog, center=0.0, scale=1.0))
