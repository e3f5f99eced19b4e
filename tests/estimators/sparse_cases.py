"""Simulated wide regressions: columns uniform on [-1, 1], few of which matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpstats.design import DeclaredDesign, Design
from dpstats.families import BINOMIAL, GAUSSIAN
from dpstats.holders import Curator
from dpstats.mechanisms.noise import SeededNoise
from dpstats.privacy import Central
from dpstats.protocol import CoefficientEstimate, Plan

SD = 0.5
Y_BOUND = 8.0
FAMILIES = {"ols": GAUSSIAN, "logit": BINOMIAL}


def design(d: int, model: str = "ols") -> Design:
    ends = (-Y_BOUND, Y_BOUND) if model == "ols" else (0.0, 1.0)
    return DeclaredDesign.from_arrays(
        d, {"exog": (-1.0, 1.0), "endog": ends}, family=FAMILIES[model]
    )


def rows(
    n: int, d: int, s: int, seed: int = 0, model: str = "ols", scale: float = 2.0
) -> tuple[Any, Any, Any]:
    """Covariates, response, and coefficients of size 0.5 to 1 times `scale` on s columns."""
    rng = np.random.default_rng([seed, n, d, s])
    x = rng.uniform(-1, 1, (n, d))
    beta = np.zeros(d)
    beta[rng.choice(d, s, replace=False)] = scale * rng.choice([-1, 1], s) * rng.uniform(0.5, 1, s)
    return x, respond(x @ beta, rng, model), beta


def respond(eta: Any, rng: Any, model: str) -> Any:
    if model == "ols":
        return np.clip(eta + SD * rng.normal(size=eta.size), -Y_BOUND, Y_BOUND)
    return (rng.uniform(size=eta.size) < 1 / (1 + np.exp(-eta))).astype(float)


@dataclass(frozen=True)
class Fit:
    """A fit, its coefficients in the users' units, its plan and the holder."""

    params: Any
    estimate: CoefficientEstimate
    plan: Plan
    holder: Curator


def fit(method: Any, x: Any, y: Any, privacy: Central, seed: int = 0, **options: Any) -> Fit:
    shape = design(x.shape[1], method.model)
    plan = method.plan(shape, privacy, len(y), **options)
    holder = Curator(shape.source((y, x)), shape, plan, SeededNoise(seed))
    estimate = method.fit(holder, shape, plan)
    scale = shape.standardization
    return Fit(estimate.params * scale.y_scale / scale.x_scale, estimate, plan, holder)


def relative(found: Fit, truth: Any) -> float:
    return float(np.linalg.norm(found.params - truth) / np.linalg.norm(truth))
