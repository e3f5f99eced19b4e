"""Covariances from noisy releases: the meat, the spread of residuals, and a repaired Gram matrix.

Every function is post-processing of answers whose noise law is public.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, floor_eigenvalues
from dpstats.families import GAUSSIAN, Family
from dpstats.protocol import Holder
from dpstats.queries import Count, Geometry, Query, ResidualMoment, ScoreOuter

__all__ = [
    "COUNT",
    "noisy_count",
    "residual_variance",
    "score_covariance",
    "shrink",
    "symmetric_noise_square",
]

Array = NDArray[np.float64]

COUNT = Request("count", 0.01, "number of rows that contribute")


def noisy_count(holder: Holder[Query], columns: int) -> float:
    """Noisy number of contributing rows, at least two more than there are columns."""
    answer = holder.ask(Count(), "count")
    return max(float(answer.value[0]), columns + 2.0)


def residual_variance(
    holder: Holder[Query], slot: str, beta: Array, clip: float, everyone: Geometry, n: float
) -> tuple[float, float]:
    """Mean squared residual, clipped at `clip`, and the standard deviation of its noise.

    `everyone` is a geometry that gives every row the weight 1. The first number is kept above
    a tenth of the second: a variance is positive.
    """
    (total,), (_, scale) = holder.ask(ResidualMoment(everyone, beta, clip), slot)
    return max(float(total), 0.1 * scale) / n, scale / n


def score_covariance(
    holder: Holder[Query],
    slot: str,
    geometry: Geometry,
    beta: Array,
    clip: float,
    expected: Array,
    family: Family = GAUSSIAN,
) -> Array:
    """Sum of outer products of the clipped scores, shape (d, d), positive definite.

    The noisy answer is averaged with `expected`, its value under equal residual variances,
    with weights that are inverse to its own noise and to the size of what it measures: it
    leads where it is precise, that is for large n, and yields where it is noise.
    """
    query = ScoreOuter(geometry, beta, clip, holder.plan.max_rows, family)
    answer, (_, scale) = holder.ask(query, slot)
    size = float(np.trace(expected)) / len(expected)
    trust = size**2 / (size**2 + scale**2)
    return floor_eigenvalues(trust * answer + (1 - trust) * expected, 0.05 * size)


def symmetric_noise_square(scale: float, matrix: Array) -> Array:
    """``E[N P N]`` for the noise N of a symmetric answer and a symmetric P.

    N has independent entries with standard deviation `scale` on the diagonal and scale / sqrt(2)
    off it, so E[N_ij P_jk N_kl] = (scale^2 / 2) (tr(P) 1{i=l} + P_il).
    """
    squared: Array = scale**2 / 2 * (np.trace(matrix) * np.eye(len(matrix)) + matrix)
    return squared


def shrink(gram: Array, scale: float) -> Array:
    """A noisy Gram matrix drawn towards its mean diagonal, as far as noise explains its dispersion.

    With m = tr / d, E||N||_F^2 = scale^2 d (d + 1) / 2 is compared with ||gram - m I||_F^2 (Ledoit
    & Wolf 2004, with a known noise level); eigenvalues end above the noise that remains in the
    mean.
    """
    d = len(gram)
    mean = max(float(np.trace(gram)) / d, scale / math.sqrt(d))
    target = mean * np.eye(d)
    dispersion = float(np.sum((gram - target) ** 2))
    noise = scale**2 * d * (d + 1) / 2
    keep = max(0.0, 1 - noise / dispersion) if dispersion > 0 else 0.0
    floor = max(keep * scale * math.sqrt(d / 2), scale / math.sqrt(d), 1e-9 * mean)
    return floor_eigenvalues(target + keep * (gram - target), min(floor, mean))
