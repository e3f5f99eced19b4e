"""Normal rows whose response has several levels: what a multinomial logit expects of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import floor_eigenvalues

__all__ = ["LevelRows"]

Array = NDArray[np.float64]

_POINTS = 2048  # numerical: made-up rows
_ITERATIONS, _LONGEST_STEP = 12, 3.0  # numerical: of Newton's method, and of one of its steps
_LEAST = 0.05  # ratio: eigenvalues of a curvature to their mean, at least


@dataclass(frozen=True, eq=False)
class LevelRows:
    """Rows z of a normal law, at coefficients b that stand for a matrix C of shape (d, q).

    b holds the columns of C, one after another; the linear predictors of a row are ``z' C A`` for
    each level but the base. Expectations are means over points that are spread evenly (Roberts
    2018, "The unreasonable effectiveness of quasirandom sequences") and have exactly the moments of
    the law.

    Attributes
    ----------
    centre : ndarray of shape (d,)
        Mean.
    cov : ndarray of shape (d, d)
        Covariance.
    root : ndarray of shape (q, q)
        A.
    """

    centre: Array
    cov: Array
    root: Array

    @cached_property
    def points(self) -> Array:
        """Made-up rows, of shape (m, d)."""
        from scipy.special import ndtri

        d = self.centre.size
        base = 2.0
        for _ in range(60):  # the root of x^(d + 1) = x + 1
            base = (1 + base) ** (1 / (d + 1))
        at = (0.5 + np.outer(np.arange(1, _POINTS + 1), base ** -np.arange(1.0, d + 1))) % 1
        normal = ndtri(np.clip(at, 1e-9, 1 - 1e-9))
        normal -= normal.mean(axis=0)
        spread = np.linalg.cholesky(normal.T @ normal / len(normal))
        values, basis = np.linalg.eigh(self.cov)
        rows: Array = np.linalg.solve(spread, normal.T).T @ (basis * np.sqrt(values.clip(0.0))).T
        return self.centre + rows

    @cached_property
    def lengths(self) -> Array:
        """Of the points, of shape (m,)."""
        lengths: Array = np.linalg.norm(self.points, axis=1)
        return lengths

    def predictors(self, b: Array) -> Array:
        """Of each level but the base at the points, of shape (m, q)."""
        q = len(self.root)
        return np.asarray(self.points @ b.reshape(q, -1).T @ self.root, dtype=np.float64)

    def variances(self, b: Array) -> Array:
        """``A S A'`` at the points, S the covariance of what level a row has; shape (m, q, q)."""
        chances = self._chances(b)
        turned = chances @ self.root.T
        first = np.einsum("ki,ni,li->nkl", self.root, chances, self.root)
        found: Array = first - turned[:, :, None] * turned[:, None, :]
        return found

    def curvature(self, b: Array) -> Array:
        """Fisher information of one row at `b`, positive definite; shape (q d, q d)."""
        parts, z, q = self.variances(b), self.points, len(self.root)
        rows = [
            [(z * parts[:, k, l, None]).T @ z / len(z) for l in range(q)]  # noqa: E741
            for k in range(q)
        ]
        matrix = np.block(rows)
        return floor_eigenvalues(matrix, _LEAST * float(np.trace(matrix)) / b.size)

    def to(self, b: Array, score: Array) -> Array:
        """Coefficients at which rows would have this mean `score` at `b`, by Newton's method."""
        wanted, at = self._first(b) + score, b
        for _ in range(_ITERATIONS):
            step = np.linalg.solve(self.curvature(at), wanted - self._first(at))
            at = at + step * min(1.0, _LONGEST_STEP / max(float(np.linalg.norm(step)), 1e-300))
        return at

    def _first(self, b: Array) -> Array:
        """Mean of ``A pi z'``, row after row."""
        turned = self._chances(b) @ self.root.T
        mean: Array = (turned.T @ self.points / len(self.points)).ravel()
        return mean

    def _chances(self, b: Array) -> Array:
        """Probabilities of each level but the base, of shape (m, q)."""
        eta = self.predictors(b)
        highest = np.maximum(eta.max(axis=1, keepdims=True), 0.0)
        odds = np.exp(eta - highest)
        chances: Array = odds / (np.exp(-highest) + odds.sum(axis=1, keepdims=True))
        return chances
