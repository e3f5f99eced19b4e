"""Linear regression through clipped responses: what clipping does to means is undone by the model.

A narrow clip makes privacy cheap, since noise grows with the width of the interval, but it shrinks
coefficients. For normal errors the mean of a clipped response is known in closed form, and fitting
that mean instead of a line takes the shrinkage back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.estimators.label_base import Responses

__all__ = ["Clipped", "clipped_mean", "spread_of"]

Array = NDArray[np.float64]

_STEPS = 30
_CLOSE = 1e-8
_LEAST = 0.02  # of the response's variance is error, however well columns explain it
_SPREADS = np.geomspace(0.3, 3.3, 97)  # tried, in guessed standard deviations
_TRUST = {True: 0.25, False: 0.6}  # sd of the guess's logarithm: a declared scale, or none
_ROOT_2PI = math.sqrt(2 * math.pi)


def clipped_mean(eta: Any, sd: Any, half: float) -> tuple[Array, Array, Array]:
    """Moments of ``clip(eta + sd e, -half, half)`` for standard normal e.

    Returns
    -------
    mean, slope, square : ndarray
        Its mean, the derivative of that by eta (the share that is not clipped), its second moment.
    """
    from scipy.special import ndtr

    low, high = (-half - eta) / sd, (half - eta) / sd
    below, above = ndtr(low), ndtr(-high)
    inside = 1.0 - below - above
    d_low, d_high = (np.exp(-0.5 * v**2) / _ROOT_2PI for v in (low, high))
    mean = eta * inside + sd * (d_low - d_high) + half * (above - below)
    square = (
        (eta**2 + sd**2) * inside
        + sd * ((eta - half) * d_low - (eta + half) * d_high)
        + half**2 * (above + below)
    )
    return mean, inside, square


def spread_of(z: Array, how: Responses, declared: bool) -> float:
    """Standard deviation of the response, from the second moment of what was sent and the guess.

    One bit says nothing about it; then it is the guess.
    """
    assert how.channel is not None
    half, middle = how.interval.half, how.interval.middle
    none, all_ = how.noise(0.0), how.noise(1.0)
    per_square = 1 + (all_ - none) / half**2
    tried = how.sd * _SPREADS
    penalty = (np.log(_SPREADS) / _TRUST[declared]) ** 2
    if per_square > 1e-6:
        squares = (z - middle) ** 2
        own = (float(squares.mean()) - none) / per_square
        error = float(squares.std()) / per_square / math.sqrt(len(z))
        means = _means(float(z.mean()) - middle, tried, half)
        penalty = penalty + ((clipped_mean(means, tried, half)[2] - own) / max(error, 1e-12)) ** 2
    return float(tried[np.argmin(penalty)])


def _means(observed: float, sds: Array, half: float) -> Array:
    """Means of responses whose clipped mean was observed, one for each standard deviation."""
    observed = min(max(observed, -0.9 * half), 0.9 * half)
    means = np.full_like(sds, observed)
    for _ in range(_STEPS):
        mean, slope, _ = clipped_mean(means, sds, half)
        means = means - np.clip((mean - observed) / np.maximum(slope, 0.05), -half, half)
    return means


@dataclass(frozen=True, eq=False)
class Clipped:
    """Estimating equations ``X'(z - m(X params)) = 0`` for the mean m of clipped responses.

    Attributes
    ----------
    z : ndarray of shape (n,)
        Randomised responses less the middle of the interval.
    known : ndarray of shape (n,) or float
        Known part of the linear predictor, less the middle of the interval.
    half : float
        Half-width of the interval.
    spread : float
        Standard deviation of a response: errors have what fitted values leave of its square.
    """

    z: Array
    known: Any
    half: float
    spread: float

    def error(self, eta: Array) -> float:
        """Standard deviation of the errors."""
        total = self.spread**2
        return math.sqrt(max(total - float(np.var(eta)), _LEAST * total))

    def mean(self, eta: Array) -> tuple[Array, Array]:
        """Mean of z, and its slope, at linear predictors (n,)."""
        mean, slope, _ = clipped_mean(eta, self.error(eta), self.half)
        return mean, slope

    def fit(self, x: Array) -> Array:
        """Coefficients of columns (n, k), by Newton steps from the linear fit."""
        n, k = x.shape
        params = np.zeros(k)
        best, least = params, math.inf
        for step in range(_STEPS):
            eta = self._held(x, params) + self.known
            mean, slope = self.mean(eta)
            score = x.T @ (self.z - mean)
            if step == 0:
                slope = np.full(n, float(slope.mean()))
            size = float(np.linalg.norm(score))
            if size < least:
                best, least = params, size
            hessian = (x * slope[:, None]).T @ x
            hessian[np.diag_indices(k)] += 1e-9 * n
            change = np.linalg.solve(hessian, score)
            params = params + change
            if float(np.abs(change).max(initial=0.0)) < _CLOSE * self.spread:
                return params
        return best

    def _held(self, x: Array, params: Array) -> Array:
        """Linear predictors that vary by no more than responses do."""
        eta: Array = x @ params
        most, own = self.spread**2 * (1 - _LEAST), float(np.var(eta))
        if own > most:
            params *= math.sqrt(most / own)
            eta = x @ params
        return eta
