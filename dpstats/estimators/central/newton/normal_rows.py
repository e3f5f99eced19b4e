"""What a model expects of scores where rows are normal with the released moments."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.base import floor_eigenvalues
from dpstats.families import Family
from dpstats.families.bounded import BoundedFamily

__all__ = ["NOWHERE", "NormalPredictor", "NormalRows", "SplitRows"]

Array = NDArray[np.float64]

# numerical: nodes and weights for integrals over a normal law
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(17)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()  # numerical: weights that add up to 1
# numerical: polynomials at the nodes
_HERMITE = np.array([np.ones_like(_NODES), _NODES, _NODES**2 - 1])
_CLIPPED = 200  # numerical: nodes of a normal number, where clips bend
_LEAST_SD = 1e-9  # numerical: of a predictor that varies
_FLAT, _HUGE = 1e-200, 1e100  # numerical: least curvature, and steps whose squares overflow
_APART = 1e-5  # numerical: of two predictors, over their size, below which they are one
# numerical: steps, halvings, and the longest step of Newton's method
_ITERATIONS, _HALVINGS, _LONGEST_STEP = 12, 8, 3.0
_LEAST_PART = 0.001  # numerical: share of rows of a level that they are split by, at least
_LEAST_CURVATURE = 0.001  # numerical: eigenvalues of a curvature to their mean, at least


@dataclass(frozen=True)
class NormalPredictor:
    """A normal linear predictor, or offset."""

    mean: float
    sd: float

    @cached_property
    def eta(self) -> Array:
        """Quadrature nodes; shape (m,)."""
        nodes: Array = self.mean + self.sd * _NODES
        return nodes

    def average(self, values: Array) -> Array:
        """``E f`` from values of f at the nodes, in the last axis."""
        averaged: Array = values @ _WEIGHTS
        return averaged


NOWHERE = NormalPredictor(0.0, 0.0)


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

    def mean(self, predictor: float, sd: float) -> float:
        """Mean response of rows with normal linear predictors."""
        return float(_WEIGHTS @ self.family.mean(predictor + sd * _NODES))

    def curvature(self, b: Array) -> Array:
        """Fisher information of one row at `b`, positive definite; shape (d, d)."""
        matrix = self.information(b)
        return floor_eigenvalues(matrix, _LEAST_CURVATURE * float(np.trace(matrix)) / b.size)

    def split(self, mark: Array) -> NormalRows | SplitRows:
        """Rows in which ``mark @ z`` is 1 and those in which it is 0, with one covariance."""
        share = float(mark @ self.centre)
        if not _LEAST_PART < share < 1 - _LEAST_PART:
            return self
        level = (self.cov @ mark + share * self.centre) / share
        apart = (level - self.centre) / (1 - share)
        cov = floor_eigenvalues(self.cov - share * (1 - share) * np.outer(apart, apart), 0)
        parts = (level, level - apart)
        return SplitRows(share, *(replace(self, centre=centre, cov=cov) for centre in parts))

    def information(self, b: Array) -> Array:
        """Fisher information of one row at `b`, which may be singular; shape (d, d)."""
        g, eta, u = self._along(b)
        values = _WEIGHTS * self.family.curvature(eta)
        even, odd, second = values.sum(), values @ g, values @ (g**2 - 1)
        a = self.centre
        matrix = (self.cov + np.outer(a, a)) * even
        matrix = matrix + (np.outer(a, u) + np.outer(u, a)) * odd + np.outer(u, u) * second
        return np.asarray(matrix, dtype=np.float64)

    def to(self, b: Array, score: Array) -> Array:
        """Coefficients at which rows would have this mean `score` at `b`.

        Newton's method on ``E z f(z'b) (mean(z'c) - mean(z'b)) = score``, where f, the factor of
        the likelihood, is 1 for a canonical link; one step under the identity link, and for normal
        responses.
        """
        if self.family.link == "identity" or self.family.name == "gaussian":
            return b + np.linalg.solve(self.curvature(b), score)
        if not self.family.canonical:
            return self._beyond_canonical(b, score)
        wanted, at = self._first(b) + score, b
        for _ in range(_ITERATIONS):
            at = at + _held(np.linalg.solve(self.curvature(at), wanted - self._first(at)))
        return at

    def _beyond_canonical(self, b: Array, score: Array) -> Array:
        """Newton's method with steps halved while they lead further from the wanted score."""
        first, slope = self._changed(b, b)
        at, left, halvings = b, score, 0
        for _ in range(_ITERATIONS + _HALVINGS):
            least = max(_LEAST_CURVATURE * float(np.trace(slope)) / b.size, _FLAT)
            step = _held(np.linalg.solve(floor_eigenvalues(slope, least), left)) / 2**halvings
            tried, slope_there = self._changed(b, at + step)
            left_there = first + score - tried
            if np.linalg.norm(left_there) < np.linalg.norm(left):
                at, slope, left, halvings = at + step, slope_there, left_there, 0
            else:
                halvings += 1
        return at

    def _changed(self, b: Array, c: Array) -> tuple[Array, Array]:
        """``E z f(z'b) mean(z'c)`` and its derivative in c, by Stein's identity in both.

        ``z'c = m + r g + t h`` with h standard normal and independent of g, and v = Cov(z, h).
        """
        g, eta, u = self._along(b)
        sd = self.predictor(b)[1]
        shared = float(b @ self.cov @ c) + self.offset_sd**2
        r = shared / sd if sd > _LEAST_SD else 0.0
        mean, spread = self.predictor(c)
        t = math.sqrt(max(spread**2 - r**2, 0.0))
        apart = t > max(_LEAST_SD, _APART * spread)
        v = (self.cov @ c - r * u) / t if apart else np.zeros_like(c)
        other = (mean + r * g[:, None] + t * _NODES).ravel()
        shape, factor = (g.size, _NODES.size), self.family.factor(eta)[:, None]

        def averages(values: Array) -> Array:
            """``E values He_i(g) He_j(h)``, shape (3, 3)."""
            each = (_WEIGHTS[:, None] * factor * values.reshape(shape)) * _WEIGHTS
            return np.asarray(_HERMITE @ each @ _HERMITE.T, dtype=np.float64)

        m, k, a = averages(self.family.mean(other)), averages(self.family.slope(other)), self.centre
        first: Array = a * m[0, 0] + u * m[1, 0] + v * m[0, 1]
        second = (self.cov + np.outer(a, a)) * k[0, 0]
        for x, y, value in ((a, u, k[1, 0]), (a, v, k[0, 1]), (u, v, k[1, 1])):
            second = second + value * (np.outer(x, y) + np.outer(y, x))
        second = second + k[2, 0] * np.outer(u, u) + k[0, 2] * np.outer(v, v)
        return first, second

    def clipped_score(self, b: Array, clip: float) -> Array:
        """Mean of scores, none longer than `clip`, where the model is right at `b`.

        It is none of scores in full, but large counts, and the rarer answer, have the longer ones.
        """
        law = BoundedFamily(self.family.name, self.family.link, alpha=self.family.alpha)
        g, length = self.lengths(b, _CLIPPED)
        mean, sd = self.predictor(b)
        eta = np.broadcast_to(mean + sd * g, length.shape)
        return self.averaged(b, g, law.clipped_mean(eta, clip / np.maximum(length, _LEAST_SD)))

    def averaged(self, b: Array, g: Array, values: Array) -> Array:
        """``E f z``, from values of f beside the `lengths` of rows."""
        first: Array = self.centre * values.mean() + self._along(b)[2] * (values * g).mean()
        return first

    def lengths(self, b: Array, nodes: int) -> tuple[Array, Array]:
        """Quantiles of g, of shape (nodes, 1), and, beside each, of the lengths of rows with it.

        In whitened coordinates z'z is ``a'a + u'u g^2`` and a chi squared number that is
        independent of g.
        """
        from scipy.special import gammaincinv, ndtri

        chances = (np.arange(nodes) + 0.5) / nodes
        g, u = ndtri(chances)[:, None], self._along(b)[2]
        base = float(self.centre @ self.centre)
        freedom = b.size - base - float(u.any())
        rest = 2 * gammaincinv(freedom / 2, chances) if freedom > _LEAST_SD else np.zeros(1)
        return g, np.sqrt(base + float(u @ u) * g**2 + rest)

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


def _held(step: NDArray[np.floating]) -> Array:
    """A step that is no longer than it may be; none where it is no number."""
    most = float(np.max(np.abs(step), initial=0.0))
    if not math.isfinite(most):
        return np.zeros(step.shape)
    held: Array = np.asarray(step / most if most > _HUGE else step, dtype=np.float64)
    return held * min(1.0, _LONGEST_STEP / max(float(np.linalg.norm(held)), 1e-300))


@dataclass(frozen=True)
class SplitRows:
    """A share of rows of one level, and the others, normal each.

    Means that bend are other for a level than for normal rows with its variance: where a log mean
    is lower by 3 the curvature along the level is a twentieth, and that of normal rows a third.
    """

    share: float
    level: NormalRows
    others: NormalRows

    def curvature(self, b: Array) -> Array:
        """Fisher information of one row at `b`, shape (d, d)."""
        level, others = self.level.information(b), self.others.information(b)
        matrix: Array = self.share * level + (1 - self.share) * others
        return matrix

    def to(self, b: Array, score: Array) -> Array:
        """Coefficients at which rows would have this mean `score` at `b`; of a canonical link."""
        wanted, at = self._first(b) + score, b
        for _ in range(_ITERATIONS):
            at = at + _held(
                np.linalg.lstsq(self.curvature(at), wanted - self._first(at), rcond=None)[0]
            )
        return at

    def _first(self, b: Array) -> Array:
        """Mean of z times the mean response."""
        level, others = self.level._first(b), self.others._first(b)
        first: Array = self.share * level + (1 - self.share) * others
        return first
