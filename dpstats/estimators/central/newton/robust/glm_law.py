"""What a generalised linear model expects of clipped scores, for normal rows.

Expectations over linear predictors are sums over quadrature nodes, those over the response given
its linear predictor are closed forms. Rows need not be normal for what this is used for: choosing
clips, the length of Newton steps, and what noise hides of a curvature that is also released.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.numerics.huber import clipped_square, unclipped
from dpstats.families import Family
from dpstats.families.damped import DampedFamily

__all__ = [
    "NOTHING",
    "Moments",
    "NormalPredictor",
    "SolvedScore",
    "Tuning",
    "WeightedNormalRows",
    "dispersion",
    "pooled_steps",
    "residual_quantile",
    "tune",
]

Array = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(17)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_LEAST_SD = 1e-6  # of linear predictors that count as varying
_SLACK = 0.03  # the largest clip and the least damping within 3 % of the best variance
# Relative error of the bias that the model says a clip has; the second where counts are dispersed.
_BIAS_DOUBT, _DISPERSED_DOUBT = 0.3, 0.5
_LARGEST_DISPERSION = 10.0
_LEVELS = np.linspace(-1.0, 3.0, 7)  # of damping, in standard deviations of the predictor
_CLIPS = np.geomspace(0.7, 12.0, 18)  # in standard deviations of the score


class Moments(NamedTuple):
    """Of a clipped score psi given the linear predictor; arrays of one shape.

    Attributes
    ----------
    bias : ndarray
        ``E psi``: zero but for what a clip does to a skewed residual.
    square : ndarray
        ``E psi^2``.
    slope : ndarray
        Derivative of ``E psi`` with respect to the mean of the response.
    """

    bias: Array
    square: Array
    slope: Array


@dataclass(frozen=True)
class Tuning:
    """A damped family, its clip, and the scale of its residuals.

    Attributes
    ----------
    family : DampedFamily
        Gives the score.
    clip : float
        Bound on the score.
    spread : float
        Standard deviation of a normal response; of counts the dispersion alpha: their variance is
        ``mu + alpha mu^2``, and their law negative binomial.
    """

    family: DampedFamily
    clip: float
    spread: float = 0.0

    @property
    def distrust(self) -> float:
        """Relative error of the bias that the model says the clip has."""
        dispersed = self.family.name == "poisson" and self.spread > 0
        return _DISPERSED_DOUBT if dispersed else _BIAS_DOUBT

    def moments(self, eta: Array) -> Moments:
        """Moments of the clipped score at each linear predictor."""
        return _moments(self.family, eta, np.asarray(self.clip), self.spread)


def _moments(family: Family, eta: Array, clip: Array, spread: float) -> Moments:
    """Moments of ``clip(factor (y - mean), -clip, clip)``; `clip` broadcasts against `eta`."""
    mu, factor = family.mean(eta), family.factor(eta)
    c = clip / factor
    m = _LAWS[family.name](mu, c, spread)
    return Moments(factor * m.bias, factor**2 * m.square, factor * m.slope)


def _binomial(mu: Array, c: Array, spread: float) -> Moments:
    up, down = np.minimum(1 - mu, c), np.maximum(-mu, -c)
    return Moments(mu * up + (1 - mu) * down, mu * up**2 + (1 - mu) * down**2, up - down)


def _count_law(mu: Array, spread: float, more: int, k: Array) -> Array:
    """``P(y <= k)`` for counts; `more` raises the size 1 / spread, with the same odds."""
    from scipy.special import betainc, pdtr

    at = np.maximum(k, 0.0)
    if spread == 0:
        probability = pdtr(at, mu)
    else:
        probability = betainc(1 / spread + more, at + 1, 1 / (1 + spread * mu))
    return np.where(k >= 0, probability, 0.0)


def _poisson(mu: Array, c: Array, spread: float) -> Moments:
    """Sums over counts k < a, a <= k <= b and k > b, with a, b = mu -+ c."""

    def partial(k: Array) -> tuple[Array, Array, Array]:
        # E[(y - mu)^j; y <= k], from E[y ... (y - j + 1); y <= k] = mu^j P_j(y <= k - j) times 1
        # or, for j = 2, 1 + spread; P_j is the law with a size larger by j.
        p0, p1, p2 = (_count_law(mu, spread, j, k - j) for j in range(3))
        square = mu**2 * ((1 + spread) * p2 - 2 * p1 + p0) + mu * p1
        return p0, mu * (p1 - p0), square

    (left, left1, left2), (inner, inner1, inner2) = (
        partial(np.ceil(mu - c) - 1),
        partial(np.floor(mu + c)),
    )
    right = 1 - inner
    return Moments(
        bias=inner1 - left1 + c * (right - left),
        square=inner2 - left2 + c**2 * (right + left),
        # E[clip(y - mu) (y - mu)] / variance, where E[y - mu; y > b] = -E[y - mu; y <= b].
        slope=(inner2 - left2 - c * (left1 + inner1)) / (mu * (1 + spread * mu)),
    )


def _gaussian(mu: Array, c: Array, spread: float) -> Moments:
    c = c / spread
    return Moments(np.zeros_like(c), spread**2 * clipped_square(c), unclipped(c))


_LAWS: dict[str, Callable[[Array, Array, float], Moments]] = {
    "binomial": _binomial,
    "poisson": _poisson,
    "gaussian": _gaussian,
}


# -- laws of the linear predictor --------------------------------------------------------------


@dataclass(frozen=True)
class NormalPredictor:
    """A normal linear predictor."""

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


NOTHING = NormalPredictor(0.0, 0.0)


@dataclass(frozen=True, eq=False)
class WeightedNormalRows:
    """Normal rows z with the mean of their weights, and independent normal offsets.

    Attributes
    ----------
    centre : ndarray of shape (d,)
        Mean.
    cov : ndarray of shape (d, d)
        Covariance.
    weight : float
        Mean weight; expectations are weighted.
    offset : Law
        Of the known term of linear predictors.
    """

    centre: Array
    cov: Array
    weight: float
    offset: NormalPredictor = NOTHING

    def explained(self, b: Array) -> NormalPredictor:
        """Law of ``z'b``."""
        return NormalPredictor(float(self.centre @ b), math.sqrt(max(float(b @ self.cov @ b), 0.0)))

    def law(self, b: Array) -> NormalPredictor:
        """Law of the linear predictor, ``z'b`` plus the offset."""
        own = self.explained(b)
        return NormalPredictor(own.mean + self.offset.mean, math.hypot(own.sd, self.offset.sd))

    def expected(self, b: Array, truth: Array, tuning: Tuning) -> tuple[Array, Array]:
        """``E z psi`` for the score psi at `b` where responses follow `truth`, and its Jacobian.

        The mean of psi is taken as its value at `b` plus its slope there times the difference of
        the means: exact where nothing is clipped. With standard normal g, h, the predictors z'b = m
        + s g and z'truth = m' + p g + q h have the covariances u and v of z with g and h, and
        Stein's identity (integration by parts) gives, for any function f of them,

            E[f z]    = a E f + u E[f g] + v E[f h],
            E[f z z'] = C E f + sum over pairs of (a, u, v) of E[f Hermite polynomials in g, h].
        """
        family = tuning.family
        s, u = self._along(b)
        p = float(u @ truth)
        rest = self.cov @ truth - p * u
        q = math.sqrt(max(float(truth @ rest), 0.0))
        v = rest / q if q > _LEAST_SD else np.zeros_like(b)
        g, h = _NODES[:, None], _NODES[None, :]
        vector, matrix = np.zeros_like(b), np.zeros_like(self.cov)
        for offset, share in self._offsets():
            at = float(self.centre @ b) + offset + s * g
            then = float(self.centre @ truth) + offset + p * g + q * h
            m = tuning.moments(at)
            psi = m.bias + m.slope * (family.mean(then) - family.mean(at))
            vector += share * self._first(psi, u, v)
            matrix += share * self._second(m.slope * family.slope(then), u, v)
        return self.weight * vector, self.weight * matrix

    def cut_off(self, b: Array, tuning: Tuning, cap: float) -> Array:
        """What a cap on the curvature of single rows takes off ``E z z' psi'`` at `b`."""
        s, u = self._along(b)
        matrix = np.zeros_like(self.cov)
        for offset, share in self._offsets():
            at = float(self.centre @ b) + offset + s * _NODES[:, None] + np.zeros_like(_NODES)
            slope = tuning.moments(at).slope * tuning.family.slope(at)
            excess = np.maximum(slope - cap, 0.0)
            matrix += share * self._second(excess, u, np.zeros_like(b))
        return self.weight * matrix

    def _offsets(self) -> list[tuple[float, float]]:
        """Nodes of the offset and their shares; one where there is none."""
        if self.offset.sd == 0:
            return [(self.offset.mean, 1.0)]
        return list(zip(self.offset.eta.tolist(), _WEIGHTS.tolist(), strict=True))

    def _along(self, b: Array) -> tuple[float, Array]:
        """Standard deviation s of ``z'b``, and the covariances of z with ``(z - E z)'b / s``."""
        s = self.explained(b).sd
        return s, self.cov @ b / s if s > _LEAST_SD else np.zeros_like(b)

    def _first(self, f: Array, u: Array, v: Array) -> Array:
        mean, along_u, along_v = (_expectation(f, i, j) for i, j in ((0, 0), (1, 0), (0, 1)))
        vector: Array = self.centre * mean + u * along_u + v * along_v
        return vector

    def _second(self, f: Array, u: Array, v: Array) -> Array:
        a = self.centre
        matrix: Array = (self.cov + np.outer(a, a)) * _expectation(f, 0, 0)
        for x, y, i, j in ((a, u, 1, 0), (a, v, 0, 1), (u, v, 1, 1)):
            matrix = matrix + (np.outer(x, y) + np.outer(y, x)) * _expectation(f, i, j)
        for x, i, j in ((u, 2, 0), (v, 0, 2)):
            matrix = matrix + np.outer(x, x) * _expectation(f, i, j)
        return matrix


_HERMITE = np.array([np.ones_like(_NODES), _NODES, _NODES**2 - 1])


def _expectation(f: Array, i: int, j: int) -> float:
    """``E[f He_i(g) He_j(h)]``; f at nodes of g (rows) and h (columns)."""
    return float((_WEIGHTS * _HERMITE[i]) @ f @ (_WEIGHTS * _HERMITE[j]))


# -- choosing weights and clips ----------------------------------------------------------------


def tune(family: Family, law: NormalPredictor, noise: float, spread: float, n: float) -> Tuning:
    """The weight and the clip with the least error of a coefficient, noise in the account.

    In whitened coordinates and units of 1/n a score leaves ``(E psi^2 + noise clip^2 + n (doubt E
    psi)^2) / (E slope)^2``: what the model says of the bias is taken off, but not quite believed.
    Of the pairs within 3 % of the best, the one with the widest clip and then the least
    damping is taken: it is nearest to the likelihood.

    Parameters
    ----------
    family : Family
        Undamped.
    law : Law
        Linear predictor.
    noise : float
        Variance of the score's noise at clip 1, over n.
    spread : float
        See `Tuning`.
    n : float
        Number of rows.
    """
    found = []
    for damped, clips in _candidates(family, law, spread):
        distrust = Tuning(damped, 1.0, spread).distrust
        m = _moments(damped, law.eta, clips[:, None], spread)
        square, slope = law.average(m.square), law.average(m.slope * family.slope(law.eta))
        doubt = n * (distrust * law.average(m.bias)) ** 2
        variance = (square + noise * clips**2 + doubt) / np.maximum(slope, 1e-12) ** 2
        found += [(float(t), float(c), damped) for t, c in zip(variance, clips, strict=True)]
    limit = (1 + _SLACK) * min(variance for variance, _, _ in found)
    close = [(c, damped) for variance, c, damped in found if variance <= limit]
    clip, damped = max(close, key=lambda pair: (pair[0], _mildness(pair[1])))
    return Tuning(damped, clip, spread)


def _mildness(family: DampedFamily) -> float:
    """Larger for less damping."""
    return -family.level if family.link == "identity" else family.level


def _candidates(
    family: Family, law: NormalPredictor, spread: float
) -> list[tuple[DampedFamily, Array]]:
    """Weights, each with clips of a score whose residuals are as large as the model's."""
    if family.name == "binomial":
        levels = np.linspace(0.5, 1.0, 11)
        return [(DampedFamily(family.name, family.link, float(v)), np.ones(1)) for v in levels]
    mu = np.maximum(family.mean(law.mean + law.sd * _LEVELS), 1e-6)
    root = family.name == "poisson" and family.link == "log"
    damped = [
        DampedFamily(family.name, family.link, float(v))
        for v in np.unique(np.sqrt(mu) if root else mu)
    ]
    typical = np.array([law.mean, law.mean + law.sd])
    mean = family.mean(typical)
    sd = spread if family.name == "gaussian" else np.sqrt(mean * (1 + spread * mean))
    return [(f, float(np.max(f.factor(typical) * sd)) * _CLIPS) for f in damped]


def residual_quantile(family: Family, law: NormalPredictor, share: float, spread: float) -> float:
    """The `share` quantile of ``|factor (y - mean)|`` that the model expects."""
    mu, factor = family.mean(law.eta), family.factor(law.eta)
    low, high = 0.0, 4.0 * float(np.max(factor * (spread + mu + 1.0)))
    for _ in range(40):
        middle = (low + high) / 2
        inside = float(law.average(_INSIDE[family.name](mu, middle / factor, spread)))
        low, high = (middle, high) if inside < share else (low, middle)
    return high


def dispersion(family: Family, law: NormalPredictor, clip: float, square: float) -> float:
    """Dispersion at which residuals clipped at `clip` have this mean square; 0 at the least."""

    def expected(alpha: float) -> float:
        m = _moments(family, law.eta, np.asarray(clip), alpha)
        return float(law.average(m.square))

    if square <= expected(0.0):
        return 0.0
    low, high = 1e-3, _LARGEST_DISPERSION
    for _ in range(20):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if expected(middle) < square else (low, middle)
    return low


def _counts_inside(mu: Array, c: Array, spread: float) -> Array:
    inside: Array = _count_law(mu, spread, 0, np.floor(mu + c))
    return inside - _count_law(mu, spread, 0, np.ceil(mu - c) - 1)


# P(|y - mu| <= c).
_INSIDE: dict[str, Callable[[Array, Array, float], Array]] = {
    "poisson": _counts_inside,
    "gaussian": lambda mu, c, spread: unclipped(c / spread),
}


class SolvedScore(NamedTuple):
    """Coefficients at which a score is expected, and their covariance due to its noise."""

    b: Array
    cov: Array


def pooled_steps(early: SolvedScore, late: SolvedScore, blurred: float) -> SolvedScore:
    """The last two steps as one, by weights inverse to the noise in them.

    Both end at the root of one score of the rows, each off by its own noise and by the error of its
    curvature times the way it went, of size `blurred` for the later one. What they disagree by
    beyond that counts as noise of the earlier one.
    """
    own, other = float(np.trace(late.cov)), float(np.trace(early.cov))
    gap = float(((late.b - early.b) ** 2).sum())
    weight = own / (own + other + max(0.0, gap - own - other - blurred))
    return SolvedScore(
        (1 - weight) * late.b + weight * early.b,
        (1 - weight) ** 2 * late.cov + weight**2 * early.cov,
    )
