"""The best bound on the length of scores, and the law of responses that it is the best for."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.families import Family
from dpstats.families.bounded import BoundedFamily

__all__ = ["DISTRUST", "Bound", "Rows", "best_bound", "spread_by_length", "spread_by_square"]

Array = NDArray[np.float64]

_SLACK = 0.03  # ratio: variance given up for a wider clip, which leaves more of the curvature
DISTRUST = 0.3  # ratio: error of what a centre is for, where responses are skewed
_CLIPS = np.geomspace(0.6, 30.0, 22)  # numerical: clips that are tried, over typical lengths
_SPREADS = (1e-3, 10.0)  # numerical: of gamma responses, and of counts at most
_HALVINGS = 30  # numerical: of the interval in which a spread is looked for


class Rows(NamedTuple):
    """What rows are expected to be like: linear predictors, lengths, and chances, of one shape."""

    eta: Array
    lengths: Array
    chances: Array

    @classmethod
    def of(cls, eta: Array, lengths: Array) -> Rows:
        """Equally likely ones, of shapes that broadcast."""
        pair = np.broadcast_arrays(eta, np.maximum(lengths, 1e-9))
        at, long = (np.ascontiguousarray(values).ravel() for values in pair)
        return cls(at, long, np.full(at.size, 1 / at.size))


class Bound(NamedTuple):
    """A clip, the root mean square of lengths, and what share of the information it leaves.

    And variances of a coefficient times n, of the noise and of sampling.
    """

    clip: float
    typical: float
    kept: float
    private: float
    sampled: float


def best_bound(law: BoundedFamily, rows: Rows, noise: float, n: float, d: int) -> Bound:
    """The widest clip within 3 % of the least variance of a coefficient, in whitened coordinates.

    A score clipped at C, of rows z and with noise of a standard deviation of `noise` C on each
    coordinate, leaves ``(n E ||z||^2 psi^2 / d + noise^2 C^2 + (doubt n E clip(r))^2 / d) /
    (n E ||z||^2 h / d)^2``, h being what the clip leaves of the information. The last term is for
    the centres of a law that is not quite right.
    """
    eta, lengths, chances = rows
    information, weight = law.curvature(eta), chances * lengths**2 / d
    whole = float(weight @ information)
    typical = math.sqrt(float(chances @ (lengths**2 * law.score_variance(eta))))
    found = []
    for clip in typical * _CLIPS:
        square, kept = law.moments(eta, clip / lengths)
        slope = max(float(weight @ (kept * information)), 1e-12 * whole)
        private = (noise * clip / slope) ** 2 / n
        bias = DISTRUST * float(chances @ law.bias(eta, clip / lengths))
        sampled = (float(weight @ square) + n * bias**2 / d) / slope**2
        found.append(Bound(float(clip), typical, slope / whole, private, sampled))
    limit = (1 + _SLACK) * min(b.private + b.sampled for b in found)
    return next(b for b in reversed(found) if b.private + b.sampled <= limit)


def spread_by_length(family: Family, rows: Rows, length: float, share: float) -> float:
    """The spread of normal or gamma responses of which `share` of the scores are within `length`.

    In units of the response, and of its squared mean; see `BoundedFamily`.
    """
    eta, lengths, chances = rows
    low, high = _SPREADS
    if family.name == "gaussian":
        unit = length / math.sqrt(float(chances @ (lengths * family.factor(eta)) ** 2))
        low, high = low * unit, high * unit

    def within(spread: float) -> float:
        law = BoundedFamily(family.name, family.link, spread=spread)
        return float(chances @ law.within(eta, length / lengths))

    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if within(middle) > share else (low, middle)
    return high


def spread_by_square(least: BoundedFamily, rows: Rows, clip: float, square: float) -> float:
    """The dispersion of counts whose clipped residuals have this mean square; none at the least."""

    def expected(spread: float) -> float:
        law = BoundedFamily(least.name, least.link, alpha=least.alpha, spread=spread)
        return float(rows.chances @ law.clipped_square(rows.eta, np.full_like(rows.eta, clip)))

    low, high = _SPREADS
    if square <= expected(low):
        return 0.0
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if expected(middle) < square else (low, middle)
    return low
