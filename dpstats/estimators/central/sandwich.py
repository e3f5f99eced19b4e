"""Covariances from noisy releases: the meat, the spread of residuals, and a repaired Gram matrix.

Every function is post-processing of answers whose noise law is public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import floor_eigenvalues
from dpstats.families import GAUSSIAN, Family
from dpstats.privacy import Central
from dpstats.protocol import Holder, Plan
from dpstats.queries import Count, Geometry, Query, ResidualMoment, ScoreOuter

__all__ = ["Asked", "noise_scale", "shrink", "symmetric_noise_square"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Asked:
    """A holder with its plan: answers together with the scale of their noise.

    Attributes
    ----------
    holder : Holder
        Answers the planned questions.
    plan : Plan
        Public; gives every noise scale.
    max_rows : int
        Rows one unit of privacy may contribute.
    """

    holder: Holder
    plan: Plan
    max_rows: int

    def ask(self, query: Query, slot: str) -> tuple[Array, float]:
        """The noisy answer and the scale of its noise."""
        return self.holder.ask(query, slot), noise_scale(self.plan, query, slot, self.max_rows)

    def count(self, columns: int) -> float:
        """Noisy number of contributing rows, at least two more than there are columns."""
        answer, _ = self.ask(Count(), "count")
        return max(float(answer[0]), columns + 2.0)

    def residual_variance(
        self, slot: str, beta: Array, clip: float, everyone: Geometry, n: float
    ) -> tuple[float, float]:
        """Mean squared residual, clipped at `clip`, and the standard deviation of its noise.

        `everyone` is a geometry that gives every row the weight 1. The first number is kept above
        a tenth of the second: a variance is positive.
        """
        query = ResidualMoment(everyone, beta, clip)
        answer, scale = self.ask(query, slot)
        return max(float(answer[0]), 0.1 * scale) / n, scale / n

    def meat(
        self,
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
        query = ScoreOuter(geometry, beta, clip, self.max_rows, family)
        answer, scale = self.ask(query, slot)
        size = float(np.trace(expected)) / len(expected)
        trust = size**2 / (size**2 + scale**2)
        return floor_eigenvalues(trust * answer + (1 - trust) * expected, 0.05 * size)


def noise_scale(plan: Plan, query: Query, slot: str, max_rows: int) -> float:
    """Scale of the noise on the answer of `query` under `slot`; public before the fit."""
    privacy = plan.privacy
    assert isinstance(privacy, Central)
    return plan.noise_multiplier(slot) * query.sensitivity(privacy.neighbors, max_rows)


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
