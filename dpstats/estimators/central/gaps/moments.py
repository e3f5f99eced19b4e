"""Second moments of rows that miss covariates, and which they miss, from noisy answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request, floor_eigenvalues
from dpstats.estimators.central.gaps.law import GappyRows, Parts
from dpstats.estimators.numerics.released import AnsweredQuery
from dpstats.protocol import Holder
from dpstats.queries import Completed, Geometry, Gram, NormQuantile, ObservedPairs, Query
from dpstats.queries.linear import packed

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["Moments", "moment_requests", "row_weights"]

Array = NDArray[np.float64]

_LENGTH, _PAIRS = 0.01, 0.04  # budget: a length, and what was observed
_REACHED = 0.8  # share: of rows within the length
_LENGTHS = np.geomspace(2.0**-16, 1.0, 65)  # numerical: among which it is sought
_LEAST_SEEN = 0.02  # share: of rows in which two covariates were observed, at least
_DOUBT = 2.0  # wording: noises above which two covariates are taken to be observed together
_LEAST, _BLURRED = 0.02, 0.7  # numerical: least of second moments; and their noise, times this
_MOST = 1e5  # numerical: largest second moment, in squared scales


def moment_requests(gram: float) -> list[Request]:
    """The questions of `Moments.of`; `gram` is the share of the budget of the second moments."""
    return [
        Request("observed norm", _LENGTH, "a length that few rows exceed"),
        Request("observed gram", gram, "second moments of what was observed"),
        Request("observed pairs", _PAIRS, "rows in which covariates were observed, and pairs"),
    ]


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of rows with gaps, from noisy answers; the constant stands first.

    Attributes
    ----------
    rows : float
        How many contribute.
    shares : ndarray of shape (p,)
        Of them in which each covariate was observed.
    both : ndarray of shape (d, d)
        Likewise of two columns.
    second : ndarray of shape (d, d)
        Second moments of a row.
    asked : tuple of AnsweredQuery
        What was answered.
    unseen : tuple of int, or None
        Two covariates that hardly any row has both of, where there are such.
    """

    rows: float
    shares: Array
    both: Array
    second: Array
    asked: tuple[AnsweredQuery, ...]
    unseen: tuple[int, int] | None

    @classmethod
    def of(cls, holder: Holder[Query], design: Design) -> Moments:
        """Ask for a length, for the Gram matrix of rows with 0 in their gaps, and for the gaps."""
        d = len(design.names)
        longest = float(np.linalg.norm(np.abs(design.internal_bounds).max(axis=1)))
        nothing = np.eye(d)
        lengths = NormQuantile(longest * _LENGTHS, _REACHED)
        (radius,), _ = holder.ask(Completed(lengths, nothing), "observed norm")
        ball = Geometry(float(radius))
        gram, blur = holder.ask(Completed(Gram(ball), nothing), "observed gram")
        pairs, jitter = holder.ask(ObservedPairs(d), "observed pairs")
        rows = max(float(np.trace(pairs)) / d, jitter.sd)
        signs = pairs / rows
        seen = (1 + signs[0] + signs[0][:, None] + signs) / 4
        unseen = _rarest_pair(seen, jitter.sd / rows)
        both = np.clip(seen, _LEAST_SEEN, 1.0)
        shares = np.clip((1 + signs[0, 1:]) / 2, _LEAST_SEEN, 1.0)
        np.fill_diagonal(both, np.r_[1.0, shares])
        moments = gram / (rows * both)
        moments /= max(float(moments[0, 0]), 0.5)  # of rows that were shortened the constant is too
        moments[0, 0] = 1.0
        noise = _BLURRED * blur.sd * math.sqrt(d) / (rows * float(np.median(both)))
        second = _held(moments, max(_LEAST, noise))

        def zeros(made: Array) -> Array:
            x = Parts.of(made).zeros
            return _outer(x * row_weights(x, ball)[:, None])

        def gaps(made: Array) -> Array:
            return _outer(np.insert(2 * Parts.of(made).observed - 1, 0, 1.0, axis=1))

        asked = (
            AnsweredQuery(zeros, packed(gram), blur.sd),
            AnsweredQuery(gaps, packed(pairs), jitter.sd),
        )
        return cls(rows, shares, both, second, asked, unseen)

    @property
    def precision(self) -> Array:
        """Inverse of `second`, symmetric to the last bit."""
        inverse = np.linalg.inv(self.second)
        return np.asarray((inverse + inverse.T) / 2)

    def law(self, precision: Array) -> GappyRows:
        """Rows with these moments, whose response is as yet unknown."""
        mean = self.second[0, 1:] / self.second[0, 0]
        cov = self.second[1:, 1:] - np.outer(mean, mean)
        start = np.zeros(len(self.second))
        shares = np.minimum(self.shares, 1 - 1e-3)
        return GappyRows(start, 1.0, mean, floor_eigenvalues(cov, _LEAST), shares, precision)


def row_weights(x: Array, ball: Geometry) -> Array:
    """What shortens rows to the radius."""
    weights: Array = np.minimum(1.0, ball.radius / _norms(x))
    return weights


def _norms(x: Array) -> Array:
    norms: Array = np.sqrt(np.einsum("ij,ij->i", x, x))
    return norms


def _rarest_pair(seen: Array, sd: float) -> tuple[int, int] | None:
    """Two covariates, each observed, that no more rows have both of than noise may make.

    A share of rows is a quarter of 1 and three signs, each with the noise `sd`.
    """
    least = max(_LEAST_SEEN, _DOUBT * math.sqrt(3) / 4 * sd)
    observed = np.flatnonzero(seen[0] > least)[1:]  # without the constant
    pairs = [(i, j) for i in observed for j in observed if i < j and seen[i, j] <= least]
    return min(pairs, key=lambda pair: float(seen[pair]), default=None)


def _held(moments: Array, least: float) -> Array:
    """Second moments with eigenvalues within limits, whatever the noise on them was."""
    values, vectors = np.linalg.eigh((moments + moments.T) / 2)
    held: Array = (vectors * np.clip(values, min(least, _MOST), _MOST)) @ vectors.T
    return held


def _outer(x: Array) -> Array:
    """Packed outer product of each row with itself, shape (m, d (d + 1) / 2)."""
    i, j = np.triu_indices(x.shape[1])
    products: Array = x[:, i] * x[:, j] * np.where(i == j, 1.0, math.sqrt(2.0))
    return products
