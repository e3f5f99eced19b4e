"""Symmetric mixtures as laws of made-up rows, and what questions about them ask of such rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.numerics.released import AnsweredQuery
from dpstats.families.signs import mean_sign
from dpstats.queries import Geometry, ResidualMoment, Score, ScoreSquares
from dpstats.queries.linear import packed

__all__ = [
    "LinesLaw",
    "RowsLaw",
    "SymmetricLaw",
    "asked_count",
    "asked_gram",
    "asked_lengths",
    "asked_score",
    "asked_squares",
]

Array = NDArray[np.float64]

_WHOLE = 12  # number: columns up to which all second moments are fitted
_MOST = 0.7  # numerical: change of the logarithm of sigma in one step, at most


@dataclass(frozen=True, eq=False)
class _Symmetric:
    """b and sigma in internal units; local coordinates are b in units of sigma, and log sigma.

    Attributes
    ----------
    beta : ndarray of shape (d,)
    sigma : float
    known : bool
        Whether sigma is public, and so no parameter.
    """

    beta: Array
    sigma: float
    known: bool

    @property
    def d(self) -> int:
        """Number of columns."""
        return int(self.beta.size)

    @property
    def size(self) -> int:
        """Number of free parameters."""
        return self.d + (not self.known)

    def moved(self, step: Array) -> Self:
        """The law a step away."""
        grown = 0.0 if self.known else float(np.clip(step[-1], -_MOST, _MOST))
        beta = self.beta + self.sigma * step[: self.d]
        return replace(self, beta=beta, sigma=self.sigma * math.exp(grown))

    def jacobian(self) -> Array:
        """Derivatives of b and sigma (where it is free) in the local coordinates: diagonal."""
        return np.full(self.size, self.sigma)


@dataclass(frozen=True, eq=False)
class RowsLaw(_Symmetric):
    """Rows ``z b + sigma e`` with a sign z of equal chances and standard normal e."""

    @property
    def uniforms(self) -> int:
        """One number for the sign, and one for each column."""
        return self.d + 1

    def rows(self, uniforms: Array) -> Array:
        """Rows, shape (m, d)."""
        from scipy.special import ndtri

        signs = np.where(uniforms[:, :1] < 0.5, -1.0, 1.0)
        made: Array = signs * self.beta + self.sigma * ndtri(uniforms[:, 1:])
        return made

    def scores(self, rows: Array) -> Array:
        """Derivatives of the log density of rows in every coordinate, shape (m, p)."""
        z, c = rows / self.sigma, self.beta / self.sigma
        odds = z @ c
        signs = mean_sign(odds)
        firsts = signs[:, None] * z - c
        if self.known:
            return firsts
        last = (z**2).sum(axis=1) + c @ c - 2 * signs * odds - self.d
        return np.column_stack([firsts, last])

    def departures(self, rows: Array) -> Array:
        """The derivative where the noise gets longer tails, shape (m, 1)."""
        z, c, d = rows / self.sigma, self.beta / self.sigma, self.d
        odds, whole = z @ c, (z**2).sum(axis=1) + c @ c
        signs = mean_sign(odds)
        near, far = whole - 2 * odds, whole + 2 * odds
        share = (1 + signs) / 2

        def tails(squares: Array) -> Array:
            bent: Array = squares**2 - 2 * (d + 2) * squares + d * (d + 2)
            return bent

        made: Array = (share * tails(near) + (1 - share) * tails(far)) / 8
        return made[:, None]


@dataclass(frozen=True, eq=False)
class LinesLaw(_Symmetric):
    """Rows (x, y) with standard normal x and ``y = z x'b + sigma e``; the response stands last."""

    @property
    def uniforms(self) -> int:
        """One number for each column, one for the sign and one for the error."""
        return self.d + 2

    def rows(self, uniforms: Array) -> Array:
        """Rows, shape (m, d + 1)."""
        from scipy.special import ndtri

        x = ndtri(uniforms[:, : self.d])
        signs = np.where(uniforms[:, self.d] < 0.5, -1.0, 1.0)
        y = signs * (x @ self.beta) + self.sigma * ndtri(uniforms[:, -1])
        return np.column_stack([x, y])

    def _parts(self, rows: Array) -> tuple[Array, Array, Array, Array]:
        x, y = rows[:, :-1], rows[:, -1] / self.sigma
        eta = x @ self.beta / self.sigma
        return x, y, eta, mean_sign(y * eta)

    def scores(self, rows: Array) -> Array:
        """Derivatives of the log density of responses in every coordinate, shape (m, p)."""
        x, y, eta, signs = self._parts(rows)
        firsts = x * (signs * y - eta)[:, None]
        if self.known:
            return firsts
        return np.column_stack([firsts, y**2 + eta**2 - 2 * signs * y * eta - 1])

    def departures(self, rows: Array) -> Array:
        """The derivative where errors get longer tails, shape (m, 1)."""
        _, y, eta, signs = self._parts(rows)
        share = (1 + signs) / 2
        tails = [(q**2 - 6 * q + 3) / 8 for q in ((y - eta) ** 2, (y + eta) ** 2)]
        made: Array = share * tails[0] + (1 - share) * tails[1]
        return made[:, None]


SymmetricLaw = TypeVar("SymmetricLaw", bound=RowsLaw | LinesLaw)


# Questions as what made-up rows contribute -------------------------------------------------------


def asked_count(answer: Array, sd: float) -> AnsweredQuery:
    """The number of rows."""
    return AnsweredQuery(lambda rows: np.ones((len(rows), 1)), np.atleast_1d(answer), sd)


def asked_gram(ball: Geometry, answer: Array, sd: float) -> AnsweredQuery:
    """Second moments (d, d) of rows that are shortened to a ball."""
    seen = _FittedMoments.of(answer)

    def contributions(rows: Array) -> Array:
        return seen.squares(rows * _weights(rows, ball)[:, None])

    return AnsweredQuery(contributions, seen.matrix(answer), sd)


def asked_lengths(query: ScoreSquares, answer: Array, sd: float) -> AnsweredQuery:
    """Squares (d, d) of ``x y``, shortened to a length."""
    seen = _FittedMoments.of(answer)

    def contributions(rows: Array) -> Array:
        scores = rows[:, :-1] * rows[:, -1:]
        return seen.squares(scores * _weights(scores, Geometry(query.clip))[:, None])

    return AnsweredQuery(contributions, seen.matrix(answer), sd)


def asked_score(query: Score, answer: Array, sd: float) -> AnsweredQuery:
    """The clipped gradient of the mixture of regressions."""

    def contributions(rows: Array) -> Array:
        x, psi, weights = _clipped(query, rows)
        made: Array = x * (psi * weights**2)[:, None]
        return made

    return AnsweredQuery(contributions, answer, sd)


def asked_squares(query: ResidualMoment, answer: Array, sd: float) -> AnsweredQuery:
    """Squares of the clipped residual of the mean sign."""

    def contributions(rows: Array) -> Array:
        _, psi, weights = _clipped(query, rows)
        made: Array = ((psi * weights) ** 2)[:, None]
        return made

    return AnsweredQuery(contributions, np.atleast_1d(answer), sd)


def _clipped(query: Score | ResidualMoment, rows: Array) -> tuple[Array, Array, Array]:
    x, y = rows[:, :-1], rows[:, -1]
    residual = query.family.residual(y, x @ query.beta)
    return x, np.clip(residual, -query.clip, query.clip), _weights(x, query.geometry)


def _weights(x: Array, ball: Geometry) -> Array:
    norms = np.sqrt(np.einsum("mi,mi->m", x, x))
    weights: Array = np.minimum(1.0, ball.radius / np.maximum(norms, 1e-300))
    return weights


@dataclass(frozen=True, eq=False)
class _FittedMoments:
    """Which numbers of a noisy symmetric matrix are fitted: all, or those about its top direction.

    Noise that is alike in all packed entries is so in any orthogonal basis: in that of the top
    eigenvector v (public: it is a function of the answer) the first row of the matrix and the
    trace of the rest over sqrt(d - 1) have independent noise of the same standard deviation. They
    hold all that second moments say of b, and the trace what they say of sigma.

    Attributes
    ----------
    basis : ndarray of shape (d, d) or None
        v first; None where all numbers are fitted.
    """

    basis: Array | None

    @classmethod
    def of(cls, matrix: Array) -> _FittedMoments:
        if len(matrix) <= _WHOLE:
            return cls(None)
        return cls(np.linalg.eigh(matrix)[1][:, ::-1].astype(np.float64))

    def matrix(self, matrix: Array) -> Array:
        """Of a matrix, (size,)."""
        if self.basis is None:
            whole: Array = packed(matrix)
            return whole
        turned = self.basis.T @ matrix @ self.basis
        rest = float(np.trace(turned[1:, 1:])) / math.sqrt(len(turned) - 1)
        made: Array = np.r_[turned[0, 0], math.sqrt(2.0) * turned[0, 1:], rest]
        return made

    def squares(self, x: Array) -> Array:
        """Of the product of each row with itself, (m, size)."""
        if self.basis is None:
            i, j = np.triu_indices(x.shape[1])
            made: Array = x[:, i] * x[:, j] * np.where(i == j, 1.0, math.sqrt(2.0))
            return made
        z = x @ self.basis
        rest = (z[:, 1:] ** 2).sum(axis=1) / math.sqrt(z.shape[1] - 1)
        return np.column_stack([z[:, 0] ** 2, math.sqrt(2.0) * z[:, :1] * z[:, 1:], rest])
