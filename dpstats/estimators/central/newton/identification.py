"""Directions whose curvature noise may hide: what the score leaves open along them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.protocol.faint import FaintDirections, fieller

__all__ = ["CLEAR", "NOTHING", "SURE", "Faint", "KnownDirections", "likely_factor"]

Array = NDArray[np.float64]

NOTHING = 1.959964  # printed: noises within which a curvature may be none; two-sided 95 %
SURE = 3.0  # sds: within which noise, and a residual that is not far, are taken to lie
CLEAR = 5.0  # ses: of a curvature, below which it counts that it may be less than it seems
_FACTORS = np.geomspace(0.003, 2.0, 24)  # numerical: grid of factors on the room for effects
# numerical: parts of the largest curvature that is integrated over; its noises above what was seen
_PARTS, _FARTHEST = np.linspace(0.0, 1.0, 201), 6.0


def likely_factor(effects: Array, variances: Array, room: Array) -> float:
    """The factor on `room` at which effects ~ N(0, factor room + variances) are likeliest.

    As if one more effect had been seen that is as large as `room` says.
    """
    total = _FACTORS[:, None] * room + variances
    log = (np.log(total) + effects**2 / total).sum(axis=1)
    log += np.log(_FACTORS) + 1 / _FACTORS
    return float(_FACTORS[np.argmin(log)])


class KnownDirections(NamedTuple):
    """What is known of coefficients along faint directions, less the start; every array (r,).

    A score and its variance (`noise`; what an error of the curvature along them adds is Fieller's
    matter), where it was asked (`at`), the step by it and the variance
    of that (`own`), and the variances to draw the coefficient by (`room`) and `presumed` of it.
    """

    at: Array
    step: Array
    score: Array
    noise: Array
    own: Array
    room: Array
    presumed: Array


@dataclass(frozen=True, eq=False)
class Faint:
    """Orthonormal directions u along which the curvature is within a few noises of nothing.

    Attributes
    ----------
    directions : ndarray of shape (d, r)
        Eigenvectors of the released curvature, in whitened coordinates.
    seen, doubt : ndarray of shape (r,)
        Curvature along them as released, and the standard deviation of its noise.
    mixed : ndarray of shape (d, r)
        Size of what noise adds to each direction of the clear eigenvectors, in whitened
        coordinates.
    """

    directions: Array
    seen: Array
    doubt: Array
    mixed: Array

    @classmethod
    def in_noise(cls, limit: float, values: Array, basis: Array, variances: Array) -> Faint:
        """Those of a matrix with these entry variances that are within `limit` noises of 0."""
        squares = basis**2
        twice = 2 * variances - np.diag(np.diag(variances))
        doubt = np.sqrt(np.einsum("ir,ij,jr->r", squares, twice, squares))
        at = values < limit * doubt
        # First order of perturbation: E_kj / (value_k - value_j) of the clear ones. To turn faint
        # ones into each other changes nothing: what is open is all that they span.
        gap = np.maximum(np.abs(values[:, None] - values[at]), doubt[at])
        turned = np.where(at[:, None], 0.0, doubt[at] / math.sqrt(2) / gap)
        return cls(basis[:, at], values[at], doubt[at], np.sqrt(squares @ turned**2))

    def noisiest(self, hidden: NDArray[np.bool_]) -> float:
        """Largest noise of some of them over their curvature, at most 1; 0 of none."""
        ratio = self.doubt / np.maximum(self.seen, self.doubt)
        return float(np.max(ratio[hidden], initial=0.0))

    def along(self, matrix: Array) -> Array:
        """The diagonal of a (d, d) matrix in these directions, shape (r,)."""
        found: Array = np.einsum("ir,ij,jr->r", self.directions, matrix, self.directions)
        return found

    @property
    def rest(self) -> Array:
        """The projection (d, d) onto the other directions."""
        rest: Array = np.eye(len(self.directions)) - self.directions @ self.directions.T
        return rest

    def without(self, matrix: Array) -> Array:
        """A covariance of the other directions alone."""
        return self.rest @ matrix @ self.rest

    def effects(self, w: Array, hidden: NDArray[np.bool_]) -> Array:
        """What each direction changes of coefficients ``w @ b``, shape (d, r).

        Along a direction that is hidden anything may be, and a change that is no larger than what
        noise mixes into it is none: the error of the curvature is counted elsewhere.
        """
        effects = w @ self.directions
        noise = np.sqrt(w**2 @ self.mixed**2)
        touched = np.abs(effects) >= SURE * noise
        kept: Array = np.where(touched | ~touched.any(axis=0) | ~hidden, effects, 0.0)
        return kept

    def open_ends(
        self,
        known: KnownDirections,
        drawn: Array,
        variance: Array,
        effects: Array,
        hidden: NDArray[np.bool_],
    ) -> FaintDirections | None:
        """What intervals are made of along those that are not hidden; None where all are."""
        told = ~hidden
        if not told.any():
            return None
        return FaintDirections(
            effects=effects[:, told],
            score=known.score[told],
            noise=known.noise[told],
            seen=self.seen[told],
            doubt=self.doubt[told],
            ahead=(drawn - known.at)[told],
            most=np.sqrt(known.presumed[told]),
            variance=variance[told],
        )

    def settled(self, known: KnownDirections) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Coefficients less the start, their variances, and where these are presumed; each (r,).

        A coefficient is drawn to the start as far as a prior would, and its variance makes 1.96
        standard deviations reach all of Fieller's set, unless that is wider than what is presumed.
        What that set leaves out may be far off: the variance is no less than its mean square.
        """
        most = np.sqrt(known.presumed)
        newton = known.at + known.step
        drawn = np.clip(newton * known.room / (known.room + known.own), -most, most)
        low, high = fieller(known.score, self.seen, self.doubt, known.noise, NOTHING)
        reach = np.maximum(known.at + high - drawn, drawn - known.at - low)
        hidden = reach >= NOTHING * most
        variance = np.maximum(np.square(reach / NOTHING), self.mean_squares(known, drawn))
        return drawn, np.minimum(variance, known.presumed), hidden

    def mean_squares(self, known: KnownDirections, about: Array) -> Array:
        """Mean squares of coefficients less the start about some values (r,), given all that is.

        Were the curvature c known, a coefficient t ~ N(0, room(c)) whose score is N(c (t - at),
        noise) would be normal again. It is known as seen ~ N(c, doubt^2) with c > 0: an integral
        over c is left, of a law with long tails where c may be small.
        """
        doubt, used = self.doubt, np.maximum(self.seen, self.doubt)
        c = _PARTS[:, None] * (np.maximum(self.seen, 0.0) + _FARTHEST * doubt)
        room = np.minimum(known.room * used / np.maximum(c, doubt), known.presumed)
        total, score = known.noise + c**2 * room, known.score + c * known.at
        mean, variance = c * room * score / total, known.noise * room / total
        log = -(((c - self.seen) / doubt) ** 2 + score**2 / total + np.log(total)) / 2
        chances = np.exp(log - log.max(axis=0))
        chances = chances / chances.sum(axis=0)
        squares: Array = (chances * ((mean - about) ** 2 + variance)).sum(axis=0)
        return squares
