"""Second moments of rows that miss covariates, and which they miss, from noisy answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import Request
from dpstats.estimators.central.gaps.patterns import made_up_gaps
from dpstats.estimators.central.newton.whitening import (
    Metric,
    contrasts,
    indicator_ridge,
    indicators,
)
from dpstats.protocol import Holder
from dpstats.queries import Completed, Geometry, Gram, NormQuantile, ObservedPairs, Query

if TYPE_CHECKING:
    from dpstats.design import Design

__all__ = ["SecondMoments", "completion", "moment_requests"]

Array = NDArray[np.float64]

_LENGTH, _PAIRS = 0.01, 0.04  # budget: a length, and what was observed
_REACHED = 0.8  # share: of rows within the length
_LENGTHS = np.geomspace(2.0**-16, 1.0, 65)  # numerical: among which it is sought
_LEAST_SEEN = 0.02  # share: of rows in which two covariates were observed, at least
_DOUBT = 2.0  # wording: noises above which two covariates are taken to be observed together
_LEAST, _BLURRED = 0.02, 0.7  # numerical: least of second moments; and their noise, times this
_MOST, _LEAST_UNIT = 1e3, 1e-3  # numerical: second moment, at most; square of a unit, at least
_FAINTEST = 1e-3  # numerical: least second moment along a direction of whitened rows
# numerical: eigenvalues of second moments by which a question may complete rows, and some room
_LIMITS = (2e-6, 5e5)
_MADE = 2**11  # numerical: made-up rows, over whose gaps is averaged


def moment_requests(gram: float) -> list[Request]:
    """The questions of `SecondMoments.of`; `gram` is the share that second moments have."""
    return [
        Request("observed norm", _LENGTH, "a length that few rows exceed"),
        Request("observed gram", gram, "second moments of what was observed"),
        Request("observed pairs", _PAIRS, "rows in which covariates were observed, and pairs"),
    ]


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """Second moments of rows with gaps, from noisy answers; the constant stands first.

    Attributes
    ----------
    rows : float
        How many contribute.
    both : ndarray of shape (d, d)
        Shares of them that have two columns, and each one, along the diagonal.
    second : ndarray of shape (d, d)
        Second moments of a row.
    unseen : tuple of int, or None
        Two covariates that hardly any row has both of, or twice one that hardly any has.
    clear : float
        Noises by which rows are known to vary along the direction along which that is known least.
    """

    rows: float
    both: Array
    second: Array
    unseen: tuple[int, int] | None
    clear: float = math.inf

    @classmethod
    def of(cls, holder: Holder[Query], design: Design) -> SecondMoments:
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
        return cls(rows, both, _held(moments, noise), unseen)

    def refined(self, design: Design, metric: Metric) -> SecondMoments:
        """These, given the Gram matrix of rows that were completed by them.

        Were gaps as they are made up, that would be ``T(M)``, the mean of ``K M K'`` over gaps,
        whatever moments M rows have: linear in M, and a third or more of it is M itself where as
        many rows are complete. It was released in whitened coordinates, with less noise along
        directions in which columns hardly vary than any entry of the first moments has. So M is
        where T(M) is what was released.
        """
        w, d = metric.w, len(self.second)
        back = np.linalg.inv(w)
        filled, shares = self.completions
        k = (w.T @ filled @ back.T).reshape(len(filled), -1)
        t = ((k.T * shares) @ k).reshape(d, d, d, d).transpose(0, 2, 1, 3).reshape(d * d, d * d)
        moments = np.linalg.solve(t, metric.curvature.ravel()).reshape(d, d)
        variances = metric.variances / self.rows**2

        def noises(directions: Array) -> Array:
            """Standard deviation of M along each, given that of what was released."""
            each = np.einsum("ir,jr->ijr", directions, directions).reshape(d * d, -1)
            parts = np.square(np.linalg.solve(t.T, each)).reshape(d, d, -1)
            twice = 2 * np.einsum("ijr,ij->r", parts, variances)  # above the diagonal and below it
            squared: Array = twice - np.einsum("iir,ii->r", parts, variances)
            return np.sqrt(squared)

        # Rare levels, which only the ridge of the whitening sees, say little of other columns.
        ridge = w.T @ indicator_ridge(indicators(design), contrasts(design)) @ w
        values, vectors = np.linalg.eigh(moments + ridge)
        clear = float((values / noises(vectors)).min())
        values, vectors = np.linalg.eigh(moments)
        held = np.clip(values, np.maximum(_FAINTEST, noises(vectors)), _MOST)
        second = back.T @ (vectors * held) @ vectors.T @ back
        values, vectors = np.linalg.eigh((second + second.T) / (2 * second[0, 0]))
        if values[0] < _LIMITS[0]:  # columns far narrower than the scales that were declared
            clear = 0.0
        second = (vectors * np.clip(values, *_LIMITS)) @ vectors.T
        return replace(self, second=(second + second.T) / 2, clear=clear)

    @cached_property
    def completions(self) -> tuple[Array, Array]:
        """The matrices K of the gaps of made-up rows, and the share of rows that have each."""
        gaps, times = np.unique(made_up_gaps(self.both, _MADE), axis=0, return_counts=True)
        filled = np.stack([completion(missing, self.precision) for missing in gaps])
        return filled, times / times.sum()

    @property
    def precision(self) -> Array:
        """Inverse of `second`, symmetric to the last bit."""
        inverse = np.linalg.inv(self.second)
        return np.asarray((inverse + inverse.T) / 2)


def completion(missing: NDArray[np.bool_], precision: Array) -> Array:
    """The matrix K that completes a row with these gaps (True where missing)."""
    d, seen = len(missing), ~missing
    made = np.zeros((d, d))
    made[seen, seen] = 1.0
    if missing.any():
        rest = np.linalg.solve(precision[np.ix_(missing, missing)], precision[missing][:, seen])
        made[np.ix_(missing, seen)] = -rest
    return made


def _rarest_pair(seen: Array, sd: float) -> tuple[int, int] | None:
    """Two covariates that no more rows have both of than noise may make; or one, twice.

    A share of rows is a quarter of 1 and three signs, each with the noise `sd`.
    """
    least = max(_LEAST_SEEN, _DOUBT * math.sqrt(3) / 4 * sd)
    pairs = [(i, i) for i in range(1, len(seen)) if seen[0, i] <= least] or [
        (i, j) for j in range(1, len(seen)) for i in range(1, j) if seen[i, j] <= least
    ]
    return min(pairs, key=lambda pair: float(seen[pair]), default=None)


def _held(moments: Array, noise: float) -> Array:
    """Second moments with eigenvalues within limits, whatever the noise on them was.

    In units of their own: a scale that was found may be many times that of its column.
    """
    unit = np.sqrt(np.maximum(np.diag(moments), max(noise, _LEAST_UNIT)))
    values, vectors = np.linalg.eigh((moments + moments.T) / 2 / np.outer(unit, unit))
    least = np.maximum(_LEAST, noise * (vectors**2).T @ unit**-2.0)
    held = (vectors * np.clip(values, np.minimum(least, _MOST), _MOST)) @ vectors.T
    return np.asarray(held * np.outer(unit, unit))
