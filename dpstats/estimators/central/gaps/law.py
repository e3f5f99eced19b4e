"""Normal rows, a linear response and covariates that go missing: in local coordinates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpstats.queries.completed import completed_rows

__all__ = ["GappyRows", "Parts"]

Array = NDArray[np.float64]

_LEAST, _MOST = 0.3, 3.0  # numerical: ratio of a covariance to that before one step
_FEWEST, _ALL = 0.02, 0.999  # share: of a covariate that is observed, at least and at most


@dataclass(frozen=True, eq=False)
class Parts:
    """What made-up rows have, each of shape (m, ...): the constant stands first.

    Attributes
    ----------
    observed : ndarray of shape (m, p)
        1 where a covariate was, 0 where not.
    z, e : ndarray of shape (m, p) and (m,)
        Standard normal covariates and errors.
    x, completed : ndarray of shape (m, p + 1)
        Covariates before any went missing, and after they were completed.
    y : ndarray of shape (m,)
        Responses.
    """

    observed: Array
    z: Array
    e: Array
    x: Array
    completed: Array
    y: Array

    @classmethod
    def of(cls, rows: Array) -> Parts:
        """The parts of `joined` rows."""
        p = (rows.shape[1] - 4) // 4
        observed, z, x, completed, last = np.split(rows, np.cumsum([p, p, p + 1, p + 1]), axis=1)
        return cls(observed, z, last[:, 0], x, completed, last[:, 1])

    @property
    def joined(self) -> Array:
        """All parts beside each other."""
        return np.column_stack([self.observed, self.z, self.x, self.completed, self.e, self.y])

    @property
    def zeros(self) -> Array:
        """Covariates with 0 in place of what was missing."""
        seen: Array = self.x * np.insert(self.observed, 0, 1.0, axis=1)
        return seen


@dataclass(frozen=True, eq=False)
class GappyRows:
    """``y = (1, x)'b + sigma e`` of normal x and e; x_j is observed with a probability of its own.

    With the root L of the covariance of x and the inverse root W of the second moments of (1, x), a
    step moves b by ``sigma W' u``, log sigma by v, the mean by L w, the covariance to
    ``L (I + E) L'``, and the log odds of being observed: coordinates have the unit of one standard
    deviation.

    Attributes
    ----------
    coef : ndarray of shape (p + 1,)
        b, the intercept first.
    sigma : float
    mean, cov : ndarray of shape (p,) and (p, p)
        Of x.
    shares : ndarray of shape (p,)
        Probabilities of being observed.
    precision : ndarray of shape (p + 1, p + 1)
        By which rows are completed: the same wherever the law moves.
    """

    coef: Array
    sigma: float
    mean: Array
    cov: Array
    shares: Array
    precision: Array

    @property
    def p(self) -> int:
        """Number of covariates."""
        return self.mean.size

    @property
    def size(self) -> int:
        """Number of parameters."""
        return 2 + 3 * self.p + self.p * (self.p + 1) // 2

    @property
    def uniforms(self) -> int:
        """Two numbers for each covariate, and one for the error."""
        return 2 * self.p + 1

    @property
    def moments(self) -> Array:
        """Second moments of (1, x)."""
        whole = np.zeros((self.p + 1,) * 2)
        whole[1:, 1:] = self.cov
        first = np.r_[1.0, self.mean]
        made: Array = whole + np.outer(first, first)
        return made

    @property
    def root(self) -> Array:
        """W' with ``W' W`` the inverse of the second moments."""
        inverse: Array = np.linalg.inv(np.linalg.cholesky(self.moments)).T
        return inverse

    def rows(self, uniforms: Array) -> Array:
        """Rows by their parts, joined: see `Parts`."""
        from scipy.special import ndtri

        p = self.p
        normal = ndtri(np.clip(uniforms[:, p:], 1e-12, 1 - 1e-12))
        observed = (uniforms[:, :p] < self.shares).astype(np.float64)
        z, e = normal[:, :p], normal[:, p]
        x = np.insert(self.mean + z @ np.linalg.cholesky(self.cov).T, 0, 1.0, axis=1)
        missing = np.insert(observed == 0.0, 0, np.zeros(len(x), dtype=np.bool_), axis=1)
        completed = completed_rows(x, missing, self.precision)
        return Parts(observed, z, e, x, completed, x @ self.coef + self.sigma * e).joined

    def scores(self, rows: Array) -> Array:
        """Derivatives of log densities in every coordinate, shape (m, size)."""
        parts = Parts.of(rows)
        z, e = parts.z, parts.e
        i, j = np.triu_indices(self.p)
        squares = (z[:, i] * z[:, j] - (i == j)) * np.where(i == j, 0.5, 1.0)
        slopes = (parts.x @ self.root) * e[:, None]
        seen = parts.observed - self.shares
        return np.column_stack([slopes, e**2 - 1, z, squares, seen])

    def departures(self, rows: Array) -> Array:
        """The same where tails are longer, x or e is skewed, or the variance of e follows x."""
        parts = Parts.of(rows)
        z, e, p = parts.z, parts.e, self.p
        squares = (z**2).sum(axis=1)
        longer = (squares**2 - 2 * (p + 2) * squares + p * (p + 2)) / 8
        fourth = (e**4 - 6 * e**2 + 3) / 24
        wider = (squares - p) * (e**2 - 1) / 4
        return np.column_stack([longer, fourth, wider, (e**3 - 3 * e) / 6, (z**3 - 3 * z) / 6])

    def moved(self, step: Array) -> Self:
        """The law a step away, held to a positive definite covariance."""
        p = self.p
        cuts = np.cumsum([p + 1, 1, p, p * (p + 1) // 2])
        slopes, spread, means, squares, odds = np.split(step, cuts)
        i, j = np.triu_indices(p)
        inner = np.eye(p)
        inner[i, j] += squares
        inner[j, i] = inner[i, j]
        sizes, basis = np.linalg.eigh(inner)
        low = np.linalg.cholesky(self.cov)
        changed = low @ basis
        logits = np.log(self.shares / (1 - self.shares)) + odds
        return replace(
            self,
            coef=self.coef + self.sigma * self.root @ slopes,
            sigma=self.sigma * float(np.exp(spread[0])),
            mean=self.mean + low @ means,
            cov=(changed * np.clip(sizes, _LEAST, _MOST)) @ changed.T,
            shares=np.clip(1 / (1 + np.exp(-logits)), _FEWEST, _ALL),
        )
