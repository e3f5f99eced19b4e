"""Scores in two parts: what a clip at half the length keeps, and what lies beyond it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ScoreAt",
    "SplitScore",
    "Whole",
    "as_asked",
    "join_scores",
    "omitted",
    "pool_scores",
    "told_apart",
    "whole",
]

Array = NDArray[np.float64]


class SplitScore(NamedTuple):
    """A score that was asked at `at`: the inner part, the outer, and their noise."""

    at: Array
    inner: Array
    noise: float
    outer: Array
    outer_noise: float


class Whole(NamedTuple):
    """A score with both its parts, the variance of its noise, and where the outer part leans.

    The lean is known with a variance of `lean_variance` in each direction, which is a part of
    `variance` (all of it, unless an earlier score without a lean is in the total).
    """

    total: Array
    variance: float
    lean: Array
    lean_variance: float = 0.0

    def again(self, ratio: float) -> float:
        """Variance in each direction that the error of the lean adds where it is extrapolated.

        An error of variance v is in the total, once at most, and `ratio` times in what is added:
        both together have the variance ``(1 + ratio)^2 v``.
        """
        return ((1 + ratio) ** 2 - 1) * self.lean_variance


def told_apart(score: Whole) -> float:
    """Share of a score that is expected to be none of its noise (positive-part James-Stein)."""
    squared = max(float(score.total @ score.total), 1e-300)
    return max(0.0, 1 - score.total.size * score.variance / squared)


class ScoreAt(NamedTuple):
    """A whole score, and where it was asked."""

    at: Array
    score: Whole


def omitted(d: int) -> float:
    """Variance of a tail that is taken for nothing in d directions, each over that of its noise.

    Noise of variance v, and that of the tail, tau^2, show as their mean square in d directions,
    which has a standard deviation of v sqrt(2/d). So tau^2 is known to no better than that, and it
    is not negative: a normal law of that deviation, cut at 0, has the mean v sqrt(2/d) sqrt(2/pi).
    """
    return 2 / math.sqrt(math.pi * d)


def as_asked(asked: SplitScore) -> ScoreAt:
    """Both parts of a score, as they are."""
    variance = asked.noise**2 + asked.outer_noise**2
    return ScoreAt(asked.at, Whole(asked.inner + asked.outer, variance, np.zeros_like(asked.at)))


def whole(asked: SplitScore, peeled: bool) -> Whole:
    """Both parts of a score together, and where the outer one leans.

    At the root of the inner part the outer one is what the inner clip leaves out: N(0, tau^2)
    in each direction, plus noise of known variance v. With tau estimated from its size, its
    posterior mean is kappa = tau^2 / (tau^2 + v) of it, and the variance about that kappa v. The
    mean is the lean; a part that may add up to nothing is replaced by it, and what `omitted` says
    may be there of the rest is allowed for.
    """
    d, v = asked.at.size, asked.outer_noise**2
    size = float(asked.outer @ asked.outer)
    kappa = max(0.0, 1 - d * v / max(size, 1e-300))
    lean = kappa * asked.outer
    if not peeled:
        return Whole(asked.inner + asked.outer, asked.noise**2 + v, lean, kappa * v)
    unsure = (kappa + (1 - kappa) * omitted(d)) * v
    return Whole(asked.inner + lean, asked.noise**2 + unsure, lean, unsure)


def pool_scores(first: SplitScore, second: SplitScore, bread: Array) -> SplitScore:
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

    return SplitScore(
        mean(first.at, second.at),
        mean(first.inner, second.inner),
        spread(first.noise, second.noise),
        mean(first.outer, second.outer),
        spread(first.outer_noise, second.outer_noise),
    )


def join_scores(earlier: ScoreAt, later: ScoreAt, bread: Array) -> ScoreAt:
    """Both as one, as in `pool_scores`, with the lean of the later one.

    The earlier score may have another clip: what it leaves out by that is in the disagreement.
    """
    w = _weight(
        earlier.score.total - later.score.total - bread @ (later.at - earlier.at),
        earlier.score.variance,
        later.score.variance,
    )
    own, other = earlier.score.variance, later.score.variance
    return ScoreAt(
        (1 - w) * earlier.at + w * later.at,
        Whole(
            (1 - w) * earlier.score.total + w * later.score.total,
            (1 - w) ** 2 * own + w**2 * other,
            later.score.lean,
            later.score.lean_variance,
        ),
    )


def _weight(gap: Array, own: float, other: float) -> float:
    """Of the later of two scores that disagree by `gap`, given the variances of their noise."""
    own = max(own, float(gap @ gap) / gap.size - other)
    return own / (own + other)
