"""What a model expects of scores where rows are normal with the released moments."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import floor_eigenvalues
from dpstats.families import Family

__all__ = ["NormalRows"]

Array = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(17)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_LEAST_SD = 1e-9
_ITERATIONS, _LONGEST_STEP = 12, 3.0
_LEAST_CURVATURE = 0.05  # eigenvalues of a curvature, as a share of their mean


@dataclass(frozen=True, eq=False)
class NormalRows:
    """Normal rows z and an independent normal offset.

    Stein's identity (integration by parts) turns expectations over z into those over the linear
    predictor, ``z'b = m + s g`` with a standard normal g and u = Cov(z, g): for any function f of
    it, E f z = a E f + u E f g, with a = E z, and E f z z' = (V + aa') E f + (au' + ua') E f g +
    uu' E f (g^2 - 1), V being the covariance of z.

    Attributes
    ----------
    family : Family
        Law of the response.
    centre : ndarray of shape (d,)
        Mean.
    cov : ndarray of shape (d, d)
        Covariance.
    offset_mean, offset_sd : float
        Of the known term of linear predictors.
    """

    family: Family
    centre: Array
    cov: Array
    offset_mean: float = 0.0
    offset_sd: float = 0.0

    def predictor(self, b: Array) -> tuple[float, float]:
        """Mean and standard deviation of the linear predictor, with the offset."""
        sd = math.hypot(self.spread(b), self.offset_sd)
        return float(self.centre @ b) + self.offset_mean, sd

    def spread(self, b: Array) -> float:
        """Standard deviation of ``z'b``."""
        return math.sqrt(max(float(b @ self.cov @ b), 0.0))

    def curvature(self, b: Array) -> Array:
        """Fisher information of one row at `b`, positive definite; shape (d, d)."""
        g, eta, u = self._along(b)
        values = _WEIGHTS * self.family.curvature(eta)
        even, odd, second = values.sum(), values @ g, values @ (g**2 - 1)
        a = self.centre
        matrix = (self.cov + np.outer(a, a)) * even
        matrix = matrix + (np.outer(a, u) + np.outer(u, a)) * odd + np.outer(u, u) * second
        return floor_eigenvalues(matrix, _LEAST_CURVATURE * float(np.trace(matrix)) / b.size)

    def to(self, b: Array, score: Array) -> Array:
        """Coefficients at which rows would have this mean `score` at `b`.

        Newton's method on ``E z mean(z'c) - E z mean(z'b) = score`` for a canonical link; one step
        of Fisher's scoring otherwise.
        """
        if not self.family.canonical or self.family.link == "identity":
            return b + np.linalg.solve(self.curvature(b), score)
        wanted, at = self._first(b) + score, b
        for _ in range(_ITERATIONS):
            step = np.linalg.solve(self.curvature(at), wanted - self._first(at))
            at = at + step * min(1.0, _LONGEST_STEP / max(float(np.linalg.norm(step)), 1e-300))
        return at

    def _first(self, b: Array) -> Array:
        """``E z mean(z'b)``."""
        g, eta, u = self._along(b)
        values = _WEIGHTS * self.family.mean(eta)
        first: Array = self.centre * values.sum() + u * (values @ g)
        return first

    def _along(self, b: Array) -> tuple[Array, Array, Array]:
        """Nodes of g, the predictors there, and the covariance of z with g."""
        mean, sd = self.predictor(b)
        u = self.cov @ b / sd if sd > _LEAST_SD else np.zeros_like(b)
        return _NODES, mean + sd * _NODES, u
