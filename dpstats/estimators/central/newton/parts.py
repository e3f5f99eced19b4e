"""Scores in two parts: what a clip at half the length keeps, and what lies beyond it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Asked", "Placed", "Whole", "joined", "pooled", "whole"]

Array = NDArray[np.float64]

_OMITTED = 0.6  # ratio: uncertainty left in a tail that is taken for nothing, to noise


class Asked(NamedTuple):
    """A score that was asked at `at`: the inner part, the outer, and their noise."""

    at: Array
    inner: Array
    noise: float
    outer: Array
    outer_noise: float


class Whole(NamedTuple):
    """A score with both its parts, the variance of its noise, and where the outer part leans."""

    total: Array
    variance: float
    lean: Array


class Placed(NamedTuple):
    """A whole score, and where it was asked."""

    at: Array
    score: Whole


def whole(asked: Asked, bread: Array, share: float, peeled: bool) -> Whole:
    """Both parts of a score together, and where the outer one leans.

    At the root of the inner part the outer one is what the inner clip leaves out: N(0, tau^2)
    in each direction, plus noise of known variance v. With tau estimated from its size, its
    posterior mean is kappa = tau^2 / (tau^2 + v) of it. That mean is the lean; a part that may
    add up to nothing is replaced by it.
    """
    d, v = asked.at.size, asked.outer_noise**2
    part = share * bread
    moved = part @ np.linalg.solve(bread - part, asked.inner)
    left = asked.outer - moved
    size = float(left @ left)
    kappa = max(0.0, 1 - d * v / max(size, 1e-300))
    if not peeled:
        return Whole(asked.inner + asked.outer, asked.noise**2 + v, kappa * left)
    doubt = (1 - kappa) ** 2 * max(size / d - v, 0.0) + (1 - kappa) * _OMITTED * v
    total = asked.inner + moved + kappa * left
    return Whole(total, asked.noise**2 + kappa * v + doubt, kappa * left)


def pooled(first: Asked, second: Asked, bread: Array) -> Asked:
    """Both as one: each is linear in where it was asked, so a mean belongs to the mean place.

    Weights are inverse to variances of noise; that of the first counts what the two disagree
    by beyond noise.
    """
    gap = first.inner - second.inner - bread @ (second.at - first.at)
    w = _weight(gap, first.noise**2, second.noise**2)

    def mean(a: Array, c: Array) -> Array:
        return (1 - w) * a + w * c

    def spread(a: float, c: float) -> float:
        return math.hypot((1 - w) * a, w * c)

    return Asked(
        mean(first.at, second.at),
        mean(first.inner, second.inner),
        spread(first.noise, second.noise),
        mean(first.outer, second.outer),
        spread(first.outer_noise, second.outer_noise),
    )


def joined(earlier: Placed, later: Placed, bread: Array) -> Placed:
    """Both as one, as in `pooled`, with the lean of the later one.

    The earlier score may have another clip: what it leaves out by that is in the disagreement.
    """
    w = _weight(
        earlier.score.total - later.score.total - bread @ (later.at - earlier.at),
        earlier.score.variance,
        later.score.variance,
    )
    own, other = earlier.score.variance, later.score.variance
    return Placed(
        (1 - w) * earlier.at + w * later.at,
        Whole(
            (1 - w) * earlier.score.total + w * later.score.total,
            (1 - w) ** 2 * own + w**2 * other,
            later.score.lean,
        ),
    )


def _weight(gap: Array, own: float, other: float) -> float:
    """Of the later of two scores that disagree by `gap`, given the variances of their noise."""
    own = max(own, float(gap @ gap) / gap.size - other)
    return own / (own + other)
