"""Mixtures of normal laws and of regressions: densities and membership, arrays in and out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["NormalMixture", "RegressionMixture"]

Array = NDArray[np.float64]


def _log_sums(logs: Array) -> Array:
    """Log of the sum of exponentials of each row."""
    most: Array = logs.max(axis=1)
    sums: Array = most + np.log(np.exp(logs - most[:, None]).sum(axis=1))
    return sums


def _shares(logs: Array) -> Array:
    """Exponentials of each row (m, k) over their sum."""
    shares: Array = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


class _Mixture(ABC):
    """What the densities of components say of rows (m, d)."""

    @abstractmethod
    def log_densities(self, rows: Array) -> Array:
        """Log of weight times density of each component at rows, shape (m, k)."""

    def log_density(self, rows: Array) -> Array:
        """Log density of the mixture at rows, shape (m,)."""
        return _log_sums(self.log_densities(rows))

    def responsibilities(self, rows: Array) -> Array:
        """Probability of each component given rows, shape (m, k)."""
        return _shares(self.log_densities(rows))


@dataclass(frozen=True, eq=False)
class NormalMixture(_Mixture):
    """A mixture of k normal laws in d dimensions.

    Attributes
    ----------
    weights : ndarray of shape (k,)
        Positive; they sum to 1.
    means : ndarray of shape (k, d)
    covariances : ndarray of shape (k, d, d)
        Positive definite.
    """

    weights: Array
    means: Array
    covariances: Array

    @property
    def k(self) -> int:
        """Number of components."""
        return int(self.weights.size)

    @property
    def d(self) -> int:
        """Dimension."""
        return int(self.means.shape[1])

    @cached_property
    def roots(self) -> Array:
        """Lower triangular factors L of the covariances L L', shape (k, d, d)."""
        return np.asarray(np.linalg.cholesky(self.covariances), dtype=np.float64)

    @cached_property
    def inverses(self) -> Array:
        """Inverses of `roots`: they make residuals standard normal."""
        return np.asarray(np.linalg.inv(self.roots), dtype=np.float64)

    @cached_property
    def log_scales(self) -> Array:
        """Log weights less the log determinants of `roots`, shape (k,)."""
        lengths = np.log(np.diagonal(self.roots, axis1=1, axis2=2)).sum(axis=1)
        logs: Array = np.log(self.weights) - lengths
        return logs

    def residuals(self, rows: Array) -> Array:
        """Standard normal residuals of rows (m, d) from each component, shape (m, k, d)."""
        matrix = self.inverses.reshape(-1, self.d)  # of all components, below each other
        middle = np.einsum("kij,kj->ki", self.inverses, self.means)
        made: Array = (rows @ matrix.T).reshape(len(rows), *middle.shape) - middle
        return made

    def apart(self, i: int, j: int) -> float:
        """Distance of two means, in standard deviations along it of both components together."""
        step, both = self.means[i] - self.means[j], self.covariances[i] + self.covariances[j]
        return math.sqrt(2 * float(step @ np.linalg.solve(both, step)))

    def log_densities(self, rows: Array) -> Array:
        """Log of weight times density of each component at rows (m, d), shape (m, k)."""
        return self._log_densities(self.residuals(rows))

    def _log_densities(self, residuals: Array) -> Array:
        squares = np.einsum("mkd,mkd->mk", residuals, residuals)
        logs: Array = self.log_scales - 0.5 * (squares + self.d * math.log(2 * math.pi))
        return logs

    def shares_and_residuals(self, rows: Array) -> tuple[Array, Array]:
        """`responsibilities` and `residuals`, which are computed once."""
        z = self.residuals(rows)
        return _shares(self._log_densities(z)), z

    def rows_of(self, uniforms: Array) -> Array:
        """Rows of the mixture from numbers in (0, 1) of shape (m, d + 1), shape (m, d)."""
        from scipy.special import ndtri

        chosen = np.searchsorted(np.cumsum(self.weights)[:-1], uniforms[:, 0])
        normal = ndtri(uniforms[:, 1:])
        rows = np.empty((len(normal), self.d))
        for j in range(self.k):
            mine = chosen == j
            rows[mine] = self.means[j] + normal[mine] @ self.roots[j].T
        return rows


@dataclass(frozen=True, eq=False)
class RegressionMixture(_Mixture):
    """A mixture of k linear regressions on d columns, with normal errors of one variance.

    Rows are (m, d + 1): the columns, and the response last. Densities are of the response given the
    columns.

    Attributes
    ----------
    weights : ndarray of shape (k,)
        Positive; they sum to 1.
    coef : ndarray of shape (k, d)
    sigma : float
        Standard deviation of the errors.
    """

    weights: Array
    coef: Array
    sigma: float

    @property
    def k(self) -> int:
        """Number of components."""
        return int(self.weights.size)

    def residuals(self, rows: Array) -> Array:
        """Standard normal residuals from each component, shape (m, k)."""
        made: Array = (rows[:, -1:] - rows[:, :-1] @ self.coef.T) / self.sigma
        return made

    def log_densities(self, rows: Array) -> Array:
        """Log of weight times density of each component at rows, shape (m, k)."""
        scale = math.log(self.sigma) + 0.5 * math.log(2 * math.pi)
        logs: Array = np.log(self.weights) - scale - 0.5 * self.residuals(rows) ** 2
        return logs
